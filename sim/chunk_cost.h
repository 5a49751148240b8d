// What the bodies of one chunk of layers cost, for many plans at once. Most of it does not change with the
// number of data ranks or the ZeRO stage, nor with how many layers there are: `ChunkTime` is made once for a
// tensor, context and micro-batch size and a form of recompute, and asked for any number of layers. It holds
// the chunk's passes in compact form (plan/program/compact_body.h), so that the passes over data ranks and
// the run on symbolic clocks take microseconds.
//
// The answers are those of the whole stage (build_stage, body_costs), to the byte and the picosecond.
//
//   ChunkBodies b = chunk_bodies(context, shape, ChunkTime(context, shape, cost), times, cost, stage_number);
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/program/compact_body.h"
#include "sim/body_cost.h"
#include "sim/cost.h"

namespace foretrain {

using Times = std::array<std::int64_t, 2>;  // how often each repeat of the layout runs

// What a chunk's passes take.
struct ChunkTime {
    ChunkTime(const StageContext& context, const StageShape& shape, const CostModel& cost);

    struct Pass {
        CompactBody compact;
        std::vector<Time> durations;  // by merged instruction
    };
    StageLayout layout;
    Pass forward, backward;
};

// Costs of the bodies, in the order of Stage::bodies; only what decides their clocks.
using ChunkBodies = std::array<BodyCost, bodies_of_chunk>;

ChunkBodies chunk_bodies(const StageContext& context, const StageShape& shape, const ChunkTime& base,
                         const Times& times, const CostModel& cost, std::int64_t stage_number);

// The region that a chunk's passes need for what lives inside them.
Bytes working_set(const StageContext& context, const StageShape& shape);

// How long each stream of a chunk is busy with what does not depend on the micro-batch: the passes over data ranks
// and the optimizer, in the order of Stage::bodies. Exact but for recompute that gathers weights again, which is
// left out.
struct ChunkReplicas {
    // `one`, `two`: of chunks of one and two layers, nothing recomputed.
    ChunkReplicas(const StageContext& context, const StageShape& shape, const ChunkTime& one, const ChunkTime& two,
                  const CostModel& cost);

    using Busy = std::array<std::array<Time, body_streams>, bodies_of_chunk>;
    // The compute stream: in the optimizer's body alone.
    Busy of(std::int64_t layers) const;
    // What computing loses, at least, to collectives beside pass `body` over so many layers, each computed
    // in `layer`; beside the first one's, `first` is.
    Time lost(std::size_t body, std::int64_t layers, Time layer, Time first) const;

private:
    Busy apart_{}, layer_{};
    std::int16_t share_ = 0;
};

// Bytes that stand all through the step, of what the chunk has besides layers and of each layer.
struct ChunkState {
    ChunkState(const StageContext& context, const StageShape& shape);
    std::array<Bytes, region_count> apart{}, layer{};
    Bytes tied_gradient;  // of a first chunk's embedding, as the two stages that hold it sum it
    Bytes of(Region region, std::int64_t layers) const {
        const auto r = static_cast<std::size_t>(region);
        return apart[r] + layer[r] * layers;
    }
};

}  // namespace foretrain
