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

using Times = RepeatTimes;  // how often each repeat of the layout runs

// Layers of a chunk, by what stands on them.
struct LayerCounts {
    std::int64_t dense = 0, routed = 0;
    std::int64_t all() const { return dense + routed; }
};
LayerCounts count_layers(const ModelSpec& model, const StageShape& shape);

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
    // `time(first, layers)`: of a chunk of so many layers of the model from `first` on, nothing recomputed.
    template <class Time>
    ChunkReplicas(const StageContext& context, StageShape shape, const CostModel& cost, Time&& time) {
        share_ = context.added.beside_data_share;
        const auto busy = [&](std::int64_t first, std::int64_t layers) {
            shape.first_layer = first;
            shape.layers = layers;
            return busy_in(context, shape, time(shape), cost);
        };
        by_kind(context.model, busy);
    }

    using Busy = std::array<std::array<Time, body_streams>, bodies_of_chunk>;
    // The compute stream: in the optimizer's body alone.
    Busy of(const LayerCounts& layers) const;
    // What computing loses, at least, to collectives beside pass `body` over so many layers, each computed
    // in `layer`; beside the first one's, `first` is. Beside layers with experts, which are reduced in two parts,
    // nothing is counted.
    Time lost(std::size_t body, const LayerCounts& layers, Time layer, Time first) const;

private:
    static Busy busy_in(const StageContext& context, const StageShape& shape, const ChunkTime& time,
                        const CostModel& cost);
    // `busy(first, layers)`, as above.
    template <class F>
    void by_kind(const ModelSpec& model, F&& busy) {
        const MixtureOfExperts& moe = model.moe;
        const std::int64_t routed = model.has_experts() ? moe.first_dense_layers + moe.every - 1 : 0;
        const std::int64_t period = model.has_experts() ? moe.every : 1;
        const Busy one = busy(routed, 1);
        Busy& layer = model.has_experts() ? routed_ : dense_;
        layer = minus(busy(routed, period + 1), period == 1 ? one : busy(routed, period));
        apart_ = minus(one, layer);
        if (model.has_experts() && !model.has_experts(0)) dense_ = minus(busy(0, 1), apart_);
    }
    static Busy minus(Busy a, const Busy& b);

    Busy apart_{}, dense_{}, routed_{};
    std::int16_t share_ = 0;
};

// Bytes that stand all through the step, of what the chunk has besides layers and of each layer.
struct ChunkState {
    ChunkState(const StageContext& context, const StageShape& shape);
    std::array<Bytes, region_count> apart{}, dense{}, routed{};
    // Of the rings of ZeRO-2 and 3, which hold the largest unit: where there are such layers.
    std::array<Bytes, region_count> ring_of_dense{}, ring_of_routed{}, ring_of_both{};
    Bytes tied_gradient;  // of a first chunk's embedding, as the two stages that hold it sum it
    Bytes of(Region region, const LayerCounts& layers) const {
        const auto r = static_cast<std::size_t>(region);
        if (region != Region::gathered && region != Region::staging)
            return apart[r] + dense[r] * layers.dense + routed[r] * layers.routed;
        return layers.routed == 0 ? ring_of_dense[r] : layers.dense == 0 ? ring_of_routed[r] : ring_of_both[r];
    }
};

}  // namespace foretrain
