// Memory, bound and step time of many plans of one model, cluster and batch: what a sweep asks for.
// Memory and step are exact, the same as Estimator's (sim/estimate.h); the bound is rung 1 of the ladder, a
// true lower bound of the step from busy times of streams alone. What makes all cheap is that plans share
// their parts. What chunks hold and compute is put together from pieces that all plans with the same sizes share
// (sim/chunk_pieces.h), their bodies are made once for these sizes (sim/chunk_cost.h), timelines once for a
// schedule (sim/timeline.h).
//
//   PlanCosts costs(base);                        // model, cluster, framework, training; one for a thread
//   costs.set(parallelism);                       // precondition: check is empty
//   costs.peak_bytes(); costs.bound(); costs.step();
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plan/framework.h"
#include "plan/plan.h"
#include "sim/chunk_cost.h"
#include "sim/chunk_pieces.h"
#include "sim/live_peak.h"
#include "sim/timeline.h"

namespace foretrain {

class PlanCosts {
public:
    // What the parts' keys leave out is the base's for all plans: besides model, cluster, framework and training
    // how layers are shared among stages (stage_layers, first_stage_layers, last_stage_layers,
    // embedding_and_head_as_layers) and what overlaps.
    explicit PlanCosts(const Plan& base);

    // CHECKs that it differs from the base in nothing of those.
    void set(const Parallelism& parallelism);

    // Of the state of the parameters and the inputs of layers alone: <= peak_bytes(), and cheaper.
    Bytes least_bytes();
    Bytes peak_bytes();  // of the stage that needs most, with what is reserved: Prediction::peak_bytes()
    Time bound();        // <= step()
    Time step();
    // One that serves the plan. See activity_of.
    const Timeline& timeline(std::uint32_t activity);

private:
    // What a part depends on.
    struct Key {
        std::array<std::int64_t, 8> parts{};
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    template <class Part>
    using Parts = std::unordered_map<Key, std::unique_ptr<Part>, KeyHash>;

    // The runs of layers of a pipeline, in the model's order.
    struct Runs {
        std::vector<std::int64_t> layers;
        std::vector<std::int64_t> first_layer;  // modulo the alternation of windows
        std::int64_t fewest = 0;                // layers of a run
    };
    // Of one size, between the stages of a grid.
    struct Messages {
        TimelineDurations durations;
        Time stall;  // of a pass that receives one
    };
    struct Mesh {
        explicit Mesh(const Plan& plan) : cost(plan) {}
        CostModel cost;
        std::unordered_map<std::int64_t, Messages> messages;
    };
    struct Bodies {
        ChunkBodies costs;
        std::uint32_t activity = 0;
    };
    struct Timed : ChunkTime {
        Timed(const StageContext& context, const StageShape& shape, const CostModel& cost, std::int64_t n)
            : ChunkTime(context, shape, cost), number(n) {}
        std::int64_t number = 0;
    };
    // By distinct stage, the same for many plans in a row.
    template <class T>
    struct OfStages {
        Key key;
        std::vector<T> values;
    };
    // One chunk of the plan at hand.
    struct Chunk {
        StageShape shape;
        ChunkPieces::Whole passes;
        const ChunkReplicas* replicas = nullptr;  // once it is asked for
        const ChunkState* state = nullptr;
        Holding holding;
    };

    std::int64_t stages() const { return plan_.parallelism.pipeline; }
    std::int64_t chunks() const { return plan_.parallelism.virtual_pipeline; }
    int zero() const { return plan_.parallelism.effective_zero(); }
    const Runs& runs();
    Mesh& mesh();
    StageShape shape_of(std::int64_t stage, std::int64_t chunk);
    // The stages among which the largest and the slowest are, one for all that are alike.
    const std::vector<std::int64_t>& distinct_stages();
    Chunk& chunk_of(std::int64_t stage, std::int64_t chunk);
    const ChunkReplicas& replicas_of(Chunk& chunk);
    // Of one stage, as bound() adds them up.
    struct StageWork {
        Time passes;      // computing in all passes
        Time hosting;     // of the host in them
        Time first;       // computing in a forward and the last backward pass of the first chunk
        Time reductions;  // that remain when computing is over
        Time ending;      // the optimizer, or the gathers that follow it
        Time alongside;   // the busiest of the other streams
    };
    StageWork work_of(std::int64_t stage);
    Key key_of(const StageShape& shape, const BriefLayers& brief) const;
    ChunkPieces& pieces();
    BriefLayers brief_of(const Chunk& chunk) const;
    const Timed& time_of(const Chunk& chunk, const BriefLayers& brief);
    // Of so many layers, nothing recomputed, whatever the micro-batch: for what does not depend on it.
    const Timed& outline_of(StageShape shape, std::int64_t layers);
    Bytes working_set_of(const Chunk& chunk);
    const ChunkState& state_of(const StageShape& shape);
    const Bodies& bodies_of(const Chunk& chunk);
    // Of the distinct stages.
    const std::vector<const Flight*>& flights();
    const std::vector<Bytes>& standing();
    Messages& messages();
    // Of the stage whose chunks are gathered.
    void gather_chunks(std::int64_t stage);
    Bytes stands() const;
    Bytes live(const Flight& flight) const;
    Bytes allocated(const Flight& flight);
    Bytes pooled_slots(const Flight& flight, std::size_t chunk) const;
    void forget_if_many();

    Plan plan_;
    const Framework& framework_;
    std::int64_t alternation_ = 1;
    std::int64_t microbatches_ = 0;
    Bytes message_;  // between stages; the input of a layer is as large

    const Runs* runs_ = nullptr;
    Mesh* mesh_ = nullptr;
    ChunkPieces* pieces_ = nullptr;
    std::vector<std::int64_t> distinct_stages_;
    OfStages<const Flight*> flights_;
    OfStages<Bytes> standing_;
    std::deque<Chunk> chunks_;   // of the plan at hand, by shape
    std::vector<Chunk*> stage_;  // of the stage at hand
    std::vector<std::int64_t> clocks_;
    StageBodies bodies_;

    Parts<Runs> known_runs_;
    Parts<Mesh> known_meshes_;
    Parts<ChunkPieces> known_pieces_;
    Parts<Bytes> known_working_sets_;
    Parts<Timed> known_times_;
    std::int64_t times_made_ = 0;
    Parts<ChunkState> known_states_;
    Parts<ChunkReplicas> known_replicas_;
    Parts<Bodies> known_bodies_;
    Parts<Flight> known_flights_;
    Parts<Timeline> known_timelines_;
};

}  // namespace foretrain
