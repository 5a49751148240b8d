// Memory, bound and step time of many plans of one model, cluster and batch: what a sweep asks for.
// Memory and step are exact, the same as Estimator's (sim/estimate.h); the bound is rung 1 of the ladder, a
// true lower bound of the step from busy times of streams alone. What makes all cheap is that plans share
// their parts (sim/plan_parts.h). What chunks hold and compute is put together from pieces that all plans with the same
// sizes share (sim/chunk_pieces.h), their bodies are made once for these sizes (sim/chunk_cost.h), timelines once for a
// schedule (sim/timeline.h).
//
//   PlanCosts costs(base);                        // model, cluster, framework, training; one for a thread
//   costs.set(parallelism);                       // precondition: check is empty
//   costs.peak_bytes(); costs.bound(); costs.step();
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "plan/framework.h"
#include "plan/plan.h"
#include "sim/live_peak.h"
#include "sim/plan_parts.h"

namespace foretrain {

class PlanCosts {
public:
    explicit PlanCosts(const Plan& base);

    // CHECKs that it differs from the base in nothing that all plans of one PlanCosts share: how layers are shared
    // among stages (stage_layers and its like) and what overlaps.
    void set(const Parallelism& parallelism);

    // Of the state of the parameters and the inputs of layers alone: <= peak_bytes(), and cheaper.
    Bytes least_bytes();
    Bytes peak_bytes();  // of the stage that needs most, with what is reserved: Prediction::peak_bytes()
    Time bound();        // <= step()
    Time step();
    // One that serves the plan. See activity_of.
    const Timeline& timeline(std::uint32_t activity) { return parts_.timeline(activity); }

private:
    // By distinct stage, the same for plans in a row that `Key` does not tell apart.
    template <class Key, class T>
    struct OfStages {
        Key key;
        std::vector<T> values;
    };
    struct FlightsKey {
        Schedule schedule = Schedule::one_f_one_b;
        std::int64_t stages = 0, chunks = 0, microbatches = 0;
        bool operator==(const FlightsKey&) const = default;
    };
    struct StandingKey {
        std::int64_t tensor = 0, replicas = 0, zero = 0, shard = 0, stages = 0, chunks = 0, expert = 0,
                     expert_tensor = 0;
        bool operator==(const StandingKey&) const = default;
    };
    // One chunk of the plan at hand.
    struct Chunk {
        StageShape shape;
        LayerCounts layers;
        ChunkPieces::Whole passes;
        const ChunkReplicas* replicas = nullptr;  // once it is asked for
        const ChunkState* state = nullptr;
        Holding holding;
    };
    // Of one stage, as bound() adds them up.
    struct StageWork {
        Time passes;      // computing in all passes
        Time hosting;     // of the host in them
        Time first;       // computing in a forward and the last backward pass of the first chunk
        Time reductions;  // that remain when computing is over
        Time ending;      // the optimizer, or the gathers that follow it
        Time alongside;   // the busiest of the other streams
    };

    // The stages among which the largest and the slowest are, one for all that are alike.
    const std::vector<std::int64_t>& distinct_stages();
    // Of the distinct stages.
    const std::vector<const Flight*>& flights();
    const std::vector<Bytes>& standing();
    Chunk& chunk_of(std::int64_t stage, std::int64_t chunk);
    Bytes beside_program() const;
    // Of the stage whose chunks are gathered.
    void gather_chunks(std::int64_t stage);
    Bytes stands() const;
    Bytes live(const Flight& flight) const;
    Bytes allocated(const Flight& flight);
    Bytes pooled_slots(const Flight& flight, std::size_t chunk) const;
    const ChunkReplicas& replicas_of(Chunk& chunk);
    StageWork work_of(std::int64_t stage);

    PlanParts parts_;
    const Framework& framework_;
    std::vector<std::int64_t> distinct_stages_;
    OfStages<FlightsKey, const Flight*> flights_;
    OfStages<StandingKey, Bytes> standing_;
    std::deque<Chunk> chunks_;   // of the plan at hand, by shape
    std::vector<Chunk*> stage_;  // of the stage at hand
    std::vector<std::int64_t> clocks_;
    StageBodies bodies_;
};

}  // namespace foretrain
