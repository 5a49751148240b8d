#include "sim/chunk_cost.h"

#include <algorithm>

#include "plan/program/body_passes.h"
#include "plan/program/stage_state.h"
#include "sim/durations.h"

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<Time> computing_by_piece(const Body& body, const std::vector<Time>& durations) {
    std::vector<Time> out(2 * body.repeats.size() + 1);
    std::size_t piece = 0;
    for (std::size_t i = 0; i < body.code.size(); ++i) {
        const auto here = static_cast<std::int32_t>(i);
        while (piece / 2 < body.repeats.size() &&
               here >= (piece % 2 == 0 ? body.repeats[piece / 2].begin : body.repeats[piece / 2].end))
            ++piece;
        if (body.code[i].stream == Stream::compute) out[piece] += durations[i];
    }
    return out;
}

std::vector<std::size_t> repeats_of(const Body& body) {
    std::vector<std::size_t> out;
    for (const CodeRepeat& r : body.repeats) out.push_back(at(r.repeat));
    return out;
}

ChunkTime::Pass timed_pass(Stage& stage, Body& body, InstructionDurations& durations, const CostModel& cost) {
    ChunkTime::Pass out;
    out.compact = compact(stage, body);
    out.durations.resize(out.compact.body.code.size());
    std::vector<Time> each(body.code.size());
    for (std::size_t i = 0; i < each.size(); ++i) {
        each[i] = durations.of(body.code[i], cost);
        if (out.compact.merged[i] >= 0) out.durations[at(out.compact.merged[i])] += each[i];
    }
    body.repeats = code_repeats(stage.layout, body);
    out.computing = computing_by_piece(body, each);
    out.repeats = repeats_of(body);
    return out;
}

ChunkMemory::Pass held_pass(const Stage& stage, Body& body) {
    place_tensors(stage.layout, body);
    return {body.life, repeats_of(body)};
}

// A pass as it is on one of several data ranks.
struct DataPass {
    Body body;
    const std::vector<Time>* durations = nullptr;  // of merged instructions

    Ways ways(InstructionDurations& others, const CostModel& cost) const {
        std::vector<Time> times(body.code.size());
        for (std::size_t i = 0; i < times.size(); ++i) {
            const Instruction& instruction = body.code[i];
            times[i] = durations != nullptr && instruction.body >= 0 ? (*durations)[at(instruction.body)]
                                                                     : others.of(instruction, cost);
        }
        return ways_through(body, times);
    }
};

}  // namespace

Time ChunkTime::Pass::computing_of(const Times& times) const {
    Time out;
    for (std::size_t p = 0; p < computing.size(); ++p) out += computing[p] * (p % 2 == 0 ? 1 : times[repeats[p / 2]]);
    return out;
}

Life ChunkMemory::Pass::life_of(const Times& times) const {
    Times mine{};
    for (std::size_t r = 0; r < repeats.size(); ++r) mine[r] = times[repeats[r]];
    return foretrain::life_of(life, mine);
}

Bytes ChunkMemory::slot_of(const Times& times) const {
    Bytes out = slot;
    for (std::size_t r = 0; r < slot_more.size(); ++r) out += slot_more[r] * (times[r] - 1);
    return out;
}

ChunkMemory::ChunkMemory(const StageContext& context, const StageShape& shape) {
    Stage stage = build_passes(context, shape, Depth::brief);
    forward = held_pass(stage, stage.bodies[0]);
    backward = held_pass(stage, stage.bodies[1]);
    transients = std::max(stage.bodies[0].transient_bytes, stage.bodies[1].transient_bytes);
    message = Bytes{stage.boundary_elements * size_of(context.types.weight)};
    slot = stage.slot_bytes;
    for (const Repeat& r : stage.layout.repeats) {
        slot_more.push_back(saved_bytes(stage, r));
        slot -= slot_more.back() * (r.times - 1);
    }
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
