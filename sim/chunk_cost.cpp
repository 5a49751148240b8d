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

ChunkReplicas::ChunkReplicas(const StageContext& context, const StageShape& shape, const ChunkTime& one,
                             const ChunkTime& two, const CostModel& cost) {
    constexpr Time long_enough{1'000'000'000'000'000};  // a computation that hides every collective
    share_ = context.added.beside_data_share;
    const auto busy_in = [&](const ChunkTime& chunk) {
        Busy out{};
        ReplicaBodies(context, shape, chunk, {1, 1})
            .for_each(cost, 0, &long_enough, [&](std::size_t b, const Instruction& i, Time time, bool of_pass) {
                const bool message = i.kind == InstructionKind::stall && stall_for(i) == StallFor::message;
                if (!of_pass && !message) out[b][at(static_cast<std::int64_t>(i.stream))] += time;
            });
        return out;
    };
    apart_ = busy_in(one);
    const Busy with_two = busy_in(two);
    for (std::size_t b = 0; b < with_two.size(); ++b)
        for (std::size_t s = 0; s < body_streams; ++s) {
            layer_[b][s] = with_two[b][s] - apart_[b][s];
            apart_[b][s] -= layer_[b][s];
        }
}

ChunkReplicas::Busy ChunkReplicas::of(std::int64_t layers) const {
    Busy out = apart_;
    for (std::size_t b = 0; b < out.size(); ++b)
        for (std::size_t s = 0; s < body_streams; ++s) out[b][s] += layer_[b][s] * layers;
    for (const auto b : {Stage::forward, Stage::backward, Stage::backward_last}) out[at(b)][0] = {};
    return out;
}

Time ChunkReplicas::lost(std::size_t body, std::int64_t layers, Time layer, Time first) const {
    const auto in = [&](Time computed) { return std::min(layer_[body][0], most_lost(computed, share_)); };
    return in(layer) * (layers - 1) + in(first);
}

ChunkState::ChunkState(const StageContext& context, const StageShape& shape) {
    const auto regions_of = [&](std::int32_t layers) {
        Stage state;
        state.shape = shape;
        state.layout.layers = layers;
        build_stage_state(context, state);
        const Unit& first = state.units.front().unit;
        tied_gradient = state.fixed[at(context.zero >= 1 ? first.gradient_shard : first.gradient)].bytes();
        return state.region_bytes;
    };
    apart = regions_of(1);
    const auto two = regions_of(2);
    for (std::size_t r = 0; r < region_count; ++r) {
        layer[r] = two[r] - apart[r];
        apart[r] -= layer[r];
    }
}

}  // namespace foretrain
