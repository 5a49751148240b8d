// What the costs of a plan are put together from, made once for all plans that share it: how layers run through a
// pipeline, what a chunk's passes hold and compute, its state, its bodies, how many passes are in flight, timelines.
//
// A part is known by what it depends on: a key of its own, whose fields say so. What keys leave out is the base's
// for all plans: besides model, cluster, framework and training how layers are shared among stages
// (stage_layers, first_stage_layers, last_stage_layers, embedding_and_head_as_layers) and what overlaps.
//
//   PlanParts parts(base);
//   parts.set(parallelism);                          // precondition: check is empty
//   const ChunkState& state = parts.state_of(parts.shape_of(stage, chunk));
//
// Parts are small, but of some kinds there are nearly as many as plans: those are forgotten now and then, in
// set(). The others are as many as there are pipelines, meshes and ways to shard, and are kept; PlanCosts holds on
// to flights from plan to plan.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"
#include "sim/chunk_cost.h"
#include "sim/chunk_pieces.h"
#include "sim/flight.h"
#include "sim/timeline.h"

namespace foretrain {

class PlanParts {
public:
    explicit PlanParts(const Plan& base);

    // CHECKs that it differs from the base in nothing that keys leave out.
    void set(const Parallelism& parallelism);

    const Plan& plan() const { return plan_; }
    std::int64_t stages() const { return plan_.parallelism.pipeline; }
    std::int64_t chunks() const { return plan_.parallelism.virtual_pipeline; }
    int zero() const { return plan_.parallelism.effective_zero(); }
    std::int64_t microbatches() const { return microbatches_; }
    Bytes message() const { return message_; }                // between stages; the input of a layer is as large
    const LayerPattern& pattern() const { return pattern_; }  // as layer_pattern
    LayerCounts layers_of(const StageShape& shape) const { return count_layers(plan_.model, shape); }

    // The runs of layers of a pipeline, in the model's order.
    struct Runs {
        std::vector<std::int64_t> layers;
        std::vector<std::int64_t> first_layer;  // that it is like
        std::int64_t fewest = 0;                // layers of a run
    };
    const Runs& runs();
    StageShape shape_of(std::int64_t stage, std::int64_t chunk);

    const CostModel& cost() { return mesh().cost; }

    // Of the plan's messages, between the stages of its mesh.
    struct Messages {
        TimelineDurations durations;
        Time longest;
        Time stall;  // of a pass that receives one
    };
    const Messages& messages();

    ChunkPieces::Whole passes_of(const StageShape& shape);
    Bytes working_set_of(const StageShape& shape);
    const ChunkState& state_of(const StageShape& shape);
    const ChunkReplicas& replicas_of(const StageShape& shape);
    const Flight& flight_of_stage(std::int64_t stage);

    struct Bodies {
        ChunkBodies costs;
        BodyActivity activity;
    };
    const Bodies& bodies_of(const StageShape& shape);
    // One that serves the plan. See activity_of.
    const Timeline& timeline(std::uint32_t activity);

private:
    // Of integers alone, without gaps: hashed as they stand.
    struct KeyHash {
        template <class Key>
        std::size_t operator()(const Key& key) const {
            static_assert(std::has_unique_object_representations_v<Key> && sizeof(Key) % sizeof(std::uint64_t) == 0);
            std::uint64_t h = 0;
            for (const std::uint64_t part :
                 std::bit_cast<std::array<std::uint64_t, sizeof(Key) / sizeof(std::uint64_t)>>(key)) {
                h = (h ^ part) * 0x9E3779B97F4A7C15U;
                h ^= h >> 29;
            }
            return h;
        }
    };
    template <class Key, class Part>
    using Parts = std::unordered_map<Key, std::unique_ptr<Part>, KeyHash>;

    struct RunsKey {
        std::int64_t stages = 0, chunks = 0;
        bool operator==(const RunsKey&) const = default;
    };
    struct MeshKey {
        std::int64_t tensor = 0, context = 0, data = 0, pipeline = 0, shard = 0, expert = 0, expert_tensor = 0,
                     sequence_parallel = 0;
        bool operator==(const MeshKey&) const = default;
    };
    struct MessagesKey {
        std::int64_t bytes = 0, interleaved = 0;
        bool operator==(const MessagesKey&) const = default;
    };
    // What passes over layers depend on whatever they are.
    struct PassesKey {
        std::int64_t tensor = 0, context = 0, context_method = 0, sequence_parallel = 0, micro_batch_size = 0;
        std::int64_t staged = 0;     // ZeRO-2 and 3
        std::int64_t pipelined = 0;  // a host may wait for messages
        std::int64_t expert = 0, expert_tensor = 0;
        bool operator==(const PassesKey&) const = default;
    };
    struct PiecesKey {
        PassesKey passes;
        std::int64_t kind = 0;  // of recompute, where it decides more than which layers are computed again
        bool operator==(const PiecesKey&) const = default;
    };
    // The passes of a chunk, but for how often its layers repeat.
    struct ChunkKey {
        PassesKey passes;
        std::int64_t first = 0, last = 0, first_layer = 0;
        std::int64_t layers = 0, recompute = 0, recompute_layers = 0, repeated = 0;  // see BriefLayers
        RepeatTimes runs{};
        bool operator==(const ChunkKey&) const = default;
    };
    // The same of a chunk of so many layers, nothing recomputed, for what no micro-batch changes.
    struct OutlineKey {
        PassesKey passes;  // of a micro-batch of 0
        std::int64_t first = 0, last = 0, layers = 0, first_layer = 0;
        bool operator==(const OutlineKey&) const = default;
    };
    struct StateKey {
        std::int64_t tensor = 0, replicas = 0, zero = 0, shard = 0, first = 0, last = 0, expert = 0, expert_tensor = 0;
        bool operator==(const StateKey&) const = default;
    };
    struct ReplicasKey {
        MeshKey mesh;
        std::int64_t chunks = 0, zero = 0, first = 0, last = 0;
        bool operator==(const ReplicasKey&) const = default;
    };
    // Between which nodes messages go, and whether chunks take turns, decides what passes lose to them.
    struct BodiesKey {
        std::int64_t timed = 0;  // Timed::number
        std::int64_t data = 0, zero = 0, shard = 0, pipeline = 0, chunks = 0;
        Times times{};
        bool operator==(const BodiesKey&) const = default;
    };
    struct FlightKey {
        std::int64_t schedule = 0, stages = 0, chunks = 0, microbatches = 0, stage = 0;
        bool operator==(const FlightKey&) const = default;
    };
    struct TimelineKey {
        std::int64_t schedule = 0, stages = 0, chunks = 0, microbatches = 0, activity = 0;
        std::int64_t data = 0, context = 0;  // are there several
        bool operator==(const TimelineKey&) const = default;
    };

    struct Mesh {
        explicit Mesh(const Plan& plan) : cost(plan) {}
        CostModel cost;
        std::unordered_map<MessagesKey, Messages, KeyHash> messages;
    };
    struct Timed : ChunkTime {
        Timed(const StageContext& context, const StageShape& shape, const CostModel& cost, std::int64_t n)
            : ChunkTime(context, shape, cost), number(n) {}
        std::int64_t number = 0;  // of its own among all
    };

    Mesh& mesh();
    MeshKey mesh_key() const;
    PassesKey passes_key() const;
    ChunkKey chunk_key(const StageShape& shape, const BriefLayers& brief) const;
    BriefLayers brief_of(const StageShape& shape) const;
    const Timed& time_of(const StageShape& shape, const BriefLayers& brief);
    const Timed& outline_of(const StageShape& shape);
    const Timeline& timeline(std::uint32_t activity, std::int64_t microbatches);
    void forget_if_many();

    Plan plan_;
    LayerPattern pattern_;
    std::int64_t microbatches_ = 0;
    Bytes message_;
    // Of the plan at hand, once they are asked for.
    const Runs* runs_ = nullptr;
    Mesh* mesh_ = nullptr;
    ChunkPieces* pieces_ = nullptr;
    const Messages* messages_ = nullptr;

    Parts<RunsKey, Runs> known_runs_;
    Parts<MeshKey, Mesh> known_meshes_;
    Parts<PiecesKey, ChunkPieces> known_pieces_;
    Parts<ChunkKey, Bytes> known_working_sets_;
    Parts<ChunkKey, Timed> known_times_;
    Parts<OutlineKey, Timed> known_outlines_;
    std::int64_t times_made_ = 0;
    Parts<StateKey, ChunkState> known_states_;
    Parts<ReplicasKey, ChunkReplicas> known_replicas_;
    Parts<BodiesKey, Bodies> known_bodies_;
    Parts<FlightKey, Flight> known_flights_;
    Parts<TimelineKey, Timeline> known_timelines_;
};

}  // namespace foretrain
