// What repeats: the stages of a plan with their bodies, the order of their passes, and the size of
// every memory region. `unroll` makes the chunk-level program of it, `lower` (lower.h) the full one;
// `bound` and `estimate` fold it. Making a skeleton is cheap enough for a sweep.
//
// Memory is defined here, in closed form, once: activations are as many slots as microbatches are
// ever in flight, messages stand in small rings, everything else was placed by the stage's builder.
//
//   Skeleton s = make_skeleton(plan);      // precondition: check(plan) is empty
//   s.stages[0].region_bytes[...]          // == what lower lays out == what the engine allocates
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "plan/program/stage.h"
#include "plan/schedule_order.h"

namespace foretrain {

// A ring of message buffers: entry k mod `entries` serves microbatch k.
struct Ring {
    Bytes offset;  // in the communication region
    Bytes entry;
    std::int64_t entries = 0;
};

struct StageSkeleton {
    std::shared_ptr<const Stage> stage;
    std::int64_t first_layer = 0;
    std::int64_t slots = 0;  // most microbatches in flight
    std::vector<Pass> order;
    Ring output, input_gradient, output_gradient, input;  // in the order of their layout
    std::array<Bytes, region_count> region_bytes{};

    const Ring& ring(Home home) const;
    // The unit as the model names it: layers count from the model's first.
    UnitRef ref(const StageUnit& unit) const;
    // Index, among the stage program's buffers, of a ring's entry for a microbatch: the rings follow
    // the stage's fixed buffers.
    std::int32_t ring_buffer(Home home, std::int64_t microbatch) const;
};

struct Skeleton {
    Plan plan;
    StageContext context;
    std::int64_t microbatches = 0;
    std::vector<StageSkeleton> stages;

    bool first(std::size_t stage) const { return stage == 0; }
    bool last(std::size_t stage) const { return stage + 1 == stages.size(); }
    // A weight that first and last stage share, each with a copy whose gradients are summed.
    bool tied_across_stages() const { return plan.model.tied_embeddings && stages.size() > 1; }
};

// Gradients of a tied embedding that its two stages sum, as each holds them.
Bytes tied_gradient_bytes(const Skeleton& skeleton);

Skeleton make_skeleton(const Plan& plan, Depth depth = Depth::full);

// The chunk-level instructions of one stage: ForwardChunk, BackwardChunk and OptimizerStep name
// bodies; messages, alloc and free of ring entries, and the step's tail are themselves. `out` is
// overwritten, so that a sweep reuses its memory.
void unroll_stage(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out);

}  // namespace foretrain
