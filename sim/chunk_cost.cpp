#include "sim/chunk_cost.h"

#include <algorithm>

#include "base/index.h"
#include "plan/program/body_passes.h"
#include "plan/program/stage_state.h"
#include "sim/durations.h"

namespace foretrain {

namespace {

ChunkTime::Pass timed_pass(const Stage& stage, const Body& body, InstructionDurations& durations,
                           const CostModel& cost) {
    ChunkTime::Pass out;
    out.compact = compact(stage, body);
    out.durations.resize(out.compact.body.code.size());
    for (std::size_t i = 0; i < body.code.size(); ++i)
        if (const std::int32_t merged = out.compact.merged[i]; merged >= 0)
            out.durations[at(merged)] += durations.of(body.code[i], cost);
    return out;
}

// The bodies of a chunk as they are on one of several data ranks, with its passes compact.
struct ReplicaBodies {
    Stage state;
    std::array<Body, bodies_of_chunk> bodies;
    const ChunkTime& base;

    ReplicaBodies(const StageContext& context, const StageShape& shape, const ChunkTime& chunk, const Times& times)
        : base(chunk) {
        state.shape = shape;
        state.layout = base.layout;
        for (std::size_t r = 0; r < state.layout.repeats.size(); ++r) state.layout.repeats[r].times = times[r];
        build_stage_state(context, state);
        bodies[Stage::forward] = base.forward.compact.body;
        bodies[Stage::backward] = bodies[Stage::backward_last] = base.backward.compact.body;
        for (const auto b : {Stage::forward, Stage::backward, Stage::backward_last}) {
            add_message_stalls(context, shape, bodies[at(b)]);
            add_parameter_gather(context, state, bodies[at(b)]);
            if (b == Stage::forward) continue;
            add_gradient_reduce(context, state, state.kernels, bodies[at(b)], b == Stage::backward_last);
        }
        bodies[Stage::optimizer] = build_optimizer(context, state);
    }

    // Calls f(body, instruction, time, is it of the chunk's own pass?) for all, in order. Own instructions take as
    // long as they do, or `own`.
    template <class F>
    void for_each(const CostModel& cost, std::int64_t stage_number, const Time* own, F&& f) const {
        InstructionDurations others;
        others.begin_stage(state.kernels, stage_number, 1);
        for (std::size_t b = 0; b < bodies.size(); ++b)
            for (const Instruction& i : bodies[b].code) {
                const bool of_pass = b != Stage::optimizer && i.body >= 0;
                if (!of_pass) {
                    f(b, i, others.of(i, cost), of_pass);
                    continue;
                }
                const ChunkTime::Pass& pass = b == Stage::forward ? base.forward : base.backward;
                const Time time = own != nullptr ? *own : pass.durations[at(i.body)];
                others.took(i, time);
                f(b, i, time, of_pass);
            }
    }
};

}  // namespace

Bytes working_set(const StageContext& context, const StageShape& shape) {
    Stage stage = build_passes(context, shape, Depth::brief);
    Bytes most;
    for (Body& body : stage.bodies) {
        place_tensors(stage.layout, body);
        most = std::max(most, body.transient_bytes);
    }
    return most;
}

ChunkTime::ChunkTime(const StageContext& context, const StageShape& shape, const CostModel& cost) {
    Stage stage = build_passes(context, shape, Depth::brief);
    InstructionDurations durations;
    durations.begin_stage(stage.kernels, 0, 1);
    forward = timed_pass(stage, stage.bodies[Stage::forward], durations, cost);
    backward = timed_pass(stage, stage.bodies[Stage::backward], durations, cost);
    layout = std::move(stage.layout);
}

ChunkBodies chunk_bodies(const StageContext& context, const StageShape& shape, const ChunkTime& base,
                         const Times& times, const CostModel& cost, std::int64_t stage_number) {
    ReplicaBodies replica(context, shape, base, times);
    std::array<std::vector<Time>, bodies_of_chunk> taken;
    replica.for_each(cost, stage_number, nullptr,
                     [&](std::size_t b, const Instruction&, Time time, bool) { taken[b].push_back(time); });
    ChunkBodies out;
    for (std::size_t b = 0; b < out.size(); ++b) {
        replica.bodies[b].repeats = code_repeats(replica.state.layout, replica.bodies[b]);
        out[b].exit = ways_through(replica.bodies[b], taken[b]);
    }
    return out;
}

LayerCounts count_layers(const ModelSpec& model, const StageShape& shape) {
    LayerCounts out{.dense = shape.layers};
    if (!model.has_experts()) return out;
    const auto before = [&](std::int64_t layer) {
        return std::max<std::int64_t>(0, layer - model.moe.first_dense_layers) / model.moe.every;
    };
    out.routed = before(shape.first_layer + shape.layers) - before(shape.first_layer);
    out.dense -= out.routed;
    return out;
}

ChunkReplicas::Busy ChunkReplicas::busy_in(const StageContext& context, const StageShape& shape, const ChunkTime& time,
                                           const CostModel& cost) {
    constexpr Time long_enough{1'000'000'000'000'000};  // a computation that hides every collective
    Busy out{};
    ReplicaBodies(context, shape, time, {1, 1, 1})
        .for_each(cost, 0, &long_enough, [&](std::size_t b, const Instruction& i, Time took, bool of_pass) {
            const bool message = i.kind == InstructionKind::stall && stall_for(i) == StallFor::message;
            if (!of_pass && !message) out[b][at(static_cast<std::int64_t>(i.stream))] += took;
        });
    return out;
}

ChunkReplicas::Busy ChunkReplicas::minus(Busy a, const Busy& b) {
    for (std::size_t body = 0; body < a.size(); ++body)
        for (std::size_t s = 0; s < body_streams; ++s) a[body][s] -= b[body][s];
    return a;
}

ChunkReplicas::Busy ChunkReplicas::of(const LayerCounts& layers) const {
    Busy out = apart_;
    for (std::size_t b = 0; b < out.size(); ++b)
        for (std::size_t s = 0; s < body_streams; ++s)
            out[b][s] += dense_[b][s] * layers.dense + routed_[b][s] * layers.routed;
    for (const auto b : {Stage::forward, Stage::backward, Stage::backward_last}) out[at(b)][0] = {};
    return out;
}

Time ChunkReplicas::lost(std::size_t body, const LayerCounts& layers, Time layer, Time first) const {
    const auto in = [&](Time computed) { return std::min(dense_[body][0], most_lost(computed, share_)); };
    const Time others = in(layer)*std::max<std::int64_t>(0, layers.dense - 1);
    return layers.routed > 0 ? others : others + in(first);
}

ChunkState::ChunkState(const StageContext& context, const StageShape& shape) {
    // Of layers like these of the model.
    const auto regions_of = [&](const std::vector<std::int64_t>& layers) {
        Stage state;
        state.shape = shape;
        state.layout.layers = static_cast<std::int32_t>(layers.size());
        state.layout.like = layers;
        build_stage_state(context, state);
        const Unit& first = state.units.front().unit;
        tied_gradient = state.fixed[at(context.zero >= 1 ? first.gradient_shard : first.gradient)].bytes();
        return state.region_bytes;
    };
    const auto minus = [](std::array<Bytes, region_count> a, const std::array<Bytes, region_count>& b) {
        for (std::size_t r = 0; r < region_count; ++r) a[r] -= b[r];
        return a;
    };
    const ModelSpec& m = context.model;
    const std::int64_t layer = m.has_experts() ? m.moe.first_dense_layers + m.moe.every - 1 : 0;
    const auto one = regions_of({layer});
    auto& kind = m.has_experts() ? routed : dense;
    kind = minus(regions_of({layer, layer}), one);
    apart = minus(one, kind);
    (m.has_experts() ? ring_of_routed : ring_of_dense) = one;
    if (!m.has_experts() || m.has_experts(0)) return;
    ring_of_dense = regions_of({0});
    ring_of_both = regions_of({0, layer});
    dense = minus(ring_of_dense, apart);
}

}  // namespace foretrain
