// Rungs 1 and 2 of the ladder: `bound` and `estimate` fold the skeleton; neither unrolls a kernel.
//
// `estimate` walks the chunk-level instructions of every stage once, with one clock a stream and
// bodies as max-plus maps; it equals `simulate` to the picosecond where nothing contends. `bound` is
// a true lower bound of it, from the busy times of streams alone.
//
//   Estimator e(skeleton, cost);
//   e.bound() <= e.estimate().step
#pragma once

#include <map>
#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/body_cost.h"
#include "sim/cost.h"
#include "sim/timeline.h"

namespace foretrain {

class Estimator {
public:
    // Keeps references to both.
    Estimator(const Skeleton& skeleton, const CostModel& cost);
    Estimator(const Estimator&) = delete;  // bodies_ points into costs_
    Estimator& operator=(const Estimator&) = delete;

    Time bound() const;
    Estimate estimate() const;
    // With a timeline that serves the plan, made before.
    Estimate estimate(const Timeline& timeline) const;
    std::uint32_t activity() const { return activity_of(bodies_); }

    // Exact, in closed form: no clock is needed.
    std::vector<StageMemory> memory() const;  // without what is reserved outside
    std::vector<WireCount> wire() const;      // of each stage's first rank
    // Executed in a step by all ranks: &BodyCost::gemm_flops or &BodyCost::attention_flops.
    double executed(Flops BodyCost::*kind) const;

private:
    bool is_last_backward(std::size_t stage, const Instruction& pass) const;

    using Busy = std::array<Time, body_streams>;
    struct ChunkBusy {
        Busy forward, backward, backward_last, optimizer;
    };
    ChunkBusy busy(std::size_t stage, const ChunkSkeleton& chunk) const;

    const Skeleton& skeleton_;
    const CostModel& cost_;
    std::map<const Stage*, std::vector<BodyCost>> costs_;  // chunks alike share theirs
    StageBodies bodies_;                                   // as instructions name them
};

}  // namespace foretrain
