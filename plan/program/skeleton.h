// What repeats: the stages of a plan with their chunks' bodies, the order of their passes, and the
// size of every memory region. `unroll` makes the chunk-level program of it, `lower` (lower.h) the
// full one; `bound` and `estimate` fold it. Making a skeleton is cheap enough for a sweep.
//
// Memory is defined here, in closed form, once. A stage's chunks stand one after the other in each
// region, except that they take turns in what one pass needs at a time. Activations are slots: chunks
// whose slots are equally large share a pool of as many as their passes are ever in flight, so that
// the slots of the chunk with the head, which are large, are few. Messages stand in small rings.
//
//   Skeleton s = make_skeleton(plan);      // precondition: check(plan) is empty
//   s.stages[0].region_bytes[...]          // == what lower lays out == what the engine allocates
//   s.stages[0].chunks[1].stage->bodies    // chunk 1 is run `pipeline` of the model's layers
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

// The rings of a chunk with so many passes in flight: 0 entries where it has no such message.
struct RingSizes {
    Bytes entry;
    std::int64_t output = 0, input_gradient = 0, output_gradient = 0, input = 0;
    Bytes bytes() const { return entry * (output + input_gradient + output_gradient + input); }
};
RingSizes ring_sizes(const StageShape& shape, Bytes message, std::int64_t in_flight, std::int64_t microbatches);

// One chunk of a stage, and where its things stand in the stage's: tables list those of chunk 0
// first, then those of chunk 1, and so on; the rings' buffers follow all the fixed ones.
struct ChunkSkeleton {
    std::shared_ptr<const Stage> stage;
    std::int64_t first_layer = 0;
    std::array<Bytes, region_count> base{};  // of its buffers, in each region
    std::int32_t first_buffer = 0;           // of Stage::fixed, among the stage program's buffers
    std::int32_t first_body = 0;             // of Stage::bodies, among its bodies
    std::int32_t first_unit = 0;
    std::int32_t first_ring = 0;                          // of the rings' entries, among its buffers
    std::int64_t slots = 0;                               // of its pool, whose base is that of the activations
    std::int64_t in_flight = 0;                           // its passes alone
    Ring output, input_gradient, output_gradient, input;  // in the order of their layout

    const Ring& ring(Home home) const;
    // The unit as the model names it: layers count from the model's first.
    UnitRef ref(const StageUnit& unit) const;
    // Index, among the stage program's buffers, of a ring's entry for a microbatch.
    std::int32_t ring_buffer(Home home, std::int64_t microbatch) const;
    std::int32_t body(std::int32_t of_stage) const { return first_body + of_stage; }
    bool first() const { return stage->shape.first; }  // of the model
    bool last() const { return stage->shape.last; }
};

struct StageSkeleton {
    std::vector<ChunkSkeleton> chunks;
    std::vector<Pass> order;
    std::array<Bytes, region_count> region_bytes{};

    const Body& body(const Instruction& chunk_pass) const;
};

struct Skeleton {
    Plan plan;
    StageContext context;
    std::int64_t microbatches = 0;
    std::int64_t listed = 0;  // of them, by the orders of the stages: a brief skeleton lists just enough
    std::vector<StageSkeleton> stages;

    // A weight that first and last stage share, each with a copy whose gradients are summed.
    bool tied_across_stages() const { return plan.model.tied_embeddings && stages.size() > 1; }
};

// Gradients of a tied embedding that its two stages sum, as each holds them: their index in Stage::fixed
// of the model's first or last chunk, and their size.
std::int32_t tied_gradient(const Skeleton& skeleton, const Stage& chunk);
Bytes tied_gradient_bytes(const Skeleton& skeleton);

// Brief: of brief stages, and with no more microbatches listed than show all that the schedule does. An outline
// does for timelines (sim/timeline.h).
Skeleton make_skeleton(const Plan& plan, Depth depth = Depth::full);

// Lists the passes of so many microbatches, and lays out memory for them.
void list_passes(Skeleton& skeleton, std::int64_t microbatches);

// Which slot of its pool each pass uses, by chunk and microbatch: the lowest that is free.
std::vector<std::vector<std::int32_t>> slots_of_passes(const StageSkeleton& stage, std::int64_t microbatches);

// The chunk-level instructions of one stage: ForwardChunk, BackwardChunk and OptimizerStep name
// bodies; messages, alloc and free of ring entries, and the step's tail are themselves. `out` is
// overwritten, so that a sweep reuses its memory. Who needs but clocks can do without alloc and free.
void unroll_stage(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out, bool lifetimes = true);

}  // namespace foretrain
