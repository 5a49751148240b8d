#include "sim/chunk_cost.h"

#include <algorithm>

#include "plan/program/body_passes.h"
#include "plan/program/stage_state.h"
#include "sim/durations.h"

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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

// A pass as it is on one of several data ranks.
struct DataPass {
    Body body;
    const std::vector<Time>* durations = nullptr;  // of merged instructions

    Ways ways(InstructionDurations& others, const CostModel& cost) const {
        std::vector<Time> times(body.code.size());
        for (std::size_t i = 0; i < times.size(); ++i) {
            const Instruction& instruction = body.code[i];
            if (durations == nullptr || instruction.body < 0) {
                times[i] = others.of(instruction, cost);
                continue;
            }
            times[i] = (*durations)[at(instruction.body)];
            others.took(instruction, times[i]);
        }
        return ways_through(body, times);
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
    forward = timed_pass(stage, stage.bodies[0], durations, cost);
    backward = timed_pass(stage, stage.bodies[1], durations, cost);
    layout = std::move(stage.layout);
}

ChunkBodies chunk_bodies(const StageContext& context, const StageShape& shape, const ChunkTime& base,
                         const Times& times, const CostModel& cost, std::int64_t stage_number) {
    Stage state;
    state.shape = shape;
    state.layout = base.layout;
    for (std::size_t r = 0; r < state.layout.repeats.size(); ++r) state.layout.repeats[r].times = times[r];
    build_stage_state(context, state);

    std::array<DataPass, 4> passes;
    passes[0] = {base.forward.compact.body, &base.forward.durations};
    passes[1] = {base.backward.compact.body, &base.backward.durations};
    passes[2] = passes[1];
    for (std::size_t b = 0; b < 3; ++b) {
        add_message_stalls(context, shape, passes[b].body);
        add_parameter_gather(context, state, passes[b].body);
        if (b > 0) add_gradient_reduce(context, state, state.kernels, passes[b].body, b == 2);
    }
    passes[3].body = build_optimizer(context, state);

    InstructionDurations others;
    others.begin_stage(state.kernels, stage_number, 1);
    ChunkBodies out;
    for (std::size_t b = 0; b < passes.size(); ++b) {
        passes[b].body.repeats = code_repeats(state.layout, passes[b].body);
        out[b].exit = passes[b].ways(others, cost);
    }
    return out;
}

ChunkReplicas::ChunkReplicas(const StageContext& context, const StageShape& shape, const CostModel& cost) {
    constexpr Time long_enough{1'000'000'000'000'000};  // a computation that hides every collective
    StageContext stored = context;
    stored.parallelism.recompute = {};
    const auto busy_with = [&](std::int64_t layers) {
        StageShape few = shape;
        few.layers = layers;
        Stage stage = build_passes(stored, few, Depth::full);
        std::array<Body, 4> bodies{stage.bodies[0], stage.bodies[1], stage.bodies[1], build_optimizer(stored, stage)};
        for (std::size_t b = 0; b < 3; ++b) {
            constexpr std::int32_t plain = 0;
            for (Instruction& i : bodies[b].code) i.body = plain;
            add_parameter_gather(stored, stage, bodies[b]);
            if (b > 0) add_gradient_reduce(stored, stage, stage.kernels, bodies[b], b == 2);
        }
        InstructionDurations durations;
        durations.begin_stage(stage.kernels, 0, 1);
        Busy out{};
        for (std::size_t b = 0; b < bodies.size(); ++b)
            for (const Instruction& i : bodies[b].code) {
                if (i.body < 0)
                    out[b][at(static_cast<std::int64_t>(i.stream))] += durations.of(i, cost);
                else
                    durations.took(i, long_enough);
            }
        return out;
    };
    share_ = context.added.beside_data;
    apart_ = busy_with(1);
    const Busy two = busy_with(2);
    for (std::size_t b = 0; b < two.size(); ++b)
        for (std::size_t s = 0; s < body_streams; ++s) {
            layer_[b][s] = two[b][s] - apart_[b][s];
            apart_[b][s] -= layer_[b][s];
        }
}

ChunkReplicas::Busy ChunkReplicas::of(std::int64_t layers) const {
    Busy out = apart_;
    for (std::size_t b = 0; b < out.size(); ++b)
        for (std::size_t s = 0; s < body_streams; ++s) out[b][s] += layer_[b][s] * layers;
    for (std::size_t b = 0; b + 1 < out.size(); ++b) out[b][0] = {};
    return out;
}

// Of the first layer of a pass a part may be computed before all that counts.
Time ChunkReplicas::lost(std::size_t body, std::int64_t layers, Time layer) const {
    return std::min(layer_[body][0], most_lost(layer, share_)) * (layers - 1);
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
