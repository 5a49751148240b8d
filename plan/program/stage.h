// What one pipeline stage holds and does, for every microbatch alike: its units of parameters with
// their state, the tensors saved between forward and backward, and the bodies of its passes. It
// depends on the number of layers and on whether the stage is first or last, not on its number, so
// that equal stages share one.
//
//   StageContext context = make_context(plan);
//   auto stage = build_stage(context, {.layers = 8, .first = true, .last = false});
//   stage->bodies[Stage::forward].code
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/parameters.h"
#include "plan/framework.h"
#include "plan/plan.h"
#include "plan/program/added_costs.h"
#include "plan/program/body.h"
#include "plan/program/expert_share.h"
#include "plan/program/memory_terms.h"
#include "plan/program/stage_layout.h"

namespace foretrain {

// What all stages of a plan share.
struct StageContext {
    ModelSpec model;
    Training training;
    Parallelism parallelism;
    StateTypes types;
    DType statistics = DType::fp32;  // of per-row results: lse, maxima, sums
    bool recompute_stops_early = false;
    bool reduces_whole = false;  // gradients are summed for every replica in full, whoever uses which
    AddedCosts added;
    MemoryTerms memory;
    std::int64_t vocabulary = 0;        // padded
    int zero = 0;                       // effective: 0 where there is one replica
    double quantised_weight_bytes = 0;  // kept beside each matrix of a layer, a weight
    double expert_imbalance = 1;        // tokens that the busiest experts' rank gets, over the mean

    // Tokens of a microbatch on one rank, and of each of its sequences.
    std::int64_t tokens() const { return parallelism.micro_batch_size * sequence(); }
    std::int64_t sequence() const { return training.sequence_length / parallelism.context; }
    std::int64_t replicas() const { return parallelism.replicas(); }
    // Of those the ones that share out a unit under ZeRO, and how many such groups there are.
    std::int64_t shards() const { return parallelism.zero_shard_size == 0 ? replicas() : parallelism.zero_shard_size; }
    std::int64_t shard_groups() const { return replicas() / shards(); }
    Axis shard_axis() const { return shard_groups() > 1 ? Axis::shard : Axis::replica; }
    // Those of a unit: routed experts are held by other ranks together than all else is.
    Axis replica_axis(UnitKind kind) const { return kind == UnitKind::experts ? Axis::expert_replica : Axis::replica; }
    Axis shard_axis(UnitKind kind) const { return kind == UnitKind::experts ? Axis::expert_replica : shard_axis(); }
    std::int64_t replicas(UnitKind kind) const {
        return kind == UnitKind::experts ? parallelism.expert_replicas() : replicas();
    }
    std::int64_t shards(UnitKind kind) const { return kind == UnitKind::experts ? replicas(kind) : shards(); }
    ExpertShare expert_share() const { return foretrain::expert_share(model, parallelism, rows(), expert_imbalance); }
    std::int64_t rows() const { return parallelism.rows(training.sequence_length); }
    std::int64_t boundary_elements() const { return foretrain::boundary_elements(model, training, parallelism); }
    Bytes message() const { return Bytes{boundary_elements() * size_of(types.weight)}; }  // between stages
};

StageContext make_context(const Plan& plan);

struct StageShape {
    std::int64_t layers = 0;
    bool first = false;
    bool last = false;
    std::int64_t first_layer = 0;  // the first that is like it (LayerPattern): 0 where layers are alike
    auto operator<=>(const StageShape&) const = default;
};

// The tensors of one kind of unit, as one tensor rank holds them, in a flat run.
struct UnitShape {
    UnitKind kind = UnitKind::layer;
    bool routed = false;                    // of a layer with experts
    std::vector<ParameterSpec> parameters;  // of one representative
    std::vector<std::int64_t> offsets;      // elements; one more than parameters: the end
    std::int64_t elements = 0;              // padded to a multiple of the unit's shards
    std::int64_t replicated_from = 0;       // offset of the first tensor that all tensor ranks hold
    std::int64_t over_heads_to = 0;         // end of those, next to it, whose gradient sums over all heads

    // Index of the tensor whose name ends in `suffix`. It must exist.
    std::int32_t find(std::string_view suffix) const;
};

struct StageUnit {
    std::int32_t shape = 0;   // index in Stage::unit_shapes
    std::int32_t layer = -1;  // within the stage
    Unit unit;                // buffer indices into Stage::fixed; the name is set by lower
};

struct Stage {
    // Bodies of a chunk, in the order of `bodies`. backward_last: of the last microbatch, which reduces gradients
    // that others leave where they are.
    enum BodyIndex : std::int32_t { forward, backward, backward_last, optimizer };

    StageShape shape;
    StageLayout layout;  // of the layers that are written out
    std::vector<UnitShape> unit_shapes;
    std::vector<StageUnit> units;
    std::vector<BodyBuffer> fixed;  // whole-step buffers: parameters and their state, loss
    std::vector<BodyBuffer> saved;  // from forward to backward, offsets within a slot
    std::vector<KernelArgs> kernels;
    std::vector<Label> sections;
    std::vector<Body> bodies;
    std::int32_t loss = -1;  // index in fixed
    Bytes slot_bytes;
    std::array<Bytes, region_count> region_bytes{};  // activations and communication: see Skeleton
};

constexpr std::size_t bodies_of_chunk = Stage::optimizer + 1;

// The steps of build_stage, for those who need but some of them. First the units with their state, and
// forward and backward pass as plain arithmetic.
Stage build_passes(const StageContext& context, const StageShape& shape, Depth depth);
// What the layers that stand for many keep of a microbatch, once.
Bytes saved_bytes(const Stage& stage, const Repeat& repeat);
// The optimizer step, its kernels added to the stage's.
Body build_optimizer(const StageContext& context, Stage& stage);
// Frees, addresses and life of a body's tensors; nothing is inserted after that.
void place_tensors(const StageLayout& layout, Body& body);
// Where the code of the layer, or layers, that stand for many begins and ends.
std::vector<CodeRepeat> code_repeats(const StageLayout& layout, const Body& body);

std::shared_ptr<const Stage> build_stage(const StageContext& context, const StageShape& shape,
                                         Depth depth = Depth::full);

}  // namespace foretrain
