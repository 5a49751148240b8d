// Rungs 1 and 2 of the ladder: `bound` and `estimate` fold the skeleton; neither unrolls a kernel.
//
// `estimate` walks the chunk-level instructions of every stage once, with one clock a stream and
// bodies as max-plus maps; it equals `simulate` to the picosecond where nothing contends. `bound` is
// a true lower bound of it, from the busy times of streams alone.
//
//   Estimator e(skeleton, cost);
//   e.bound() <= e.estimate().step
#pragma once

#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/body_cost.h"
#include "sim/cost.h"
#include "sim/timeline.h"

namespace foretrain {

class Estimator {
public:
    Estimator(const Skeleton& skeleton, const CostModel& cost);

    Time bound() const;
    Estimate estimate() const;
    // The same if what runs between stages took no time: what it is shorter by is what messages cost.
    Estimate estimate_with_free_messages() const;

    // Exact, in closed form: no clock is needed.
    std::vector<StageMemory> memory() const;  // without what is reserved outside
    std::vector<WireCount> wire() const;      // of each stage's first rank
    // Executed in a step by all ranks: &BodyCost::gemm_flops or &BodyCost::attention_flops.
    double executed(Flops BodyCost::*kind) const;

private:
    Estimate estimate_with(const TimelineDurations& durations) const;

    using Busy = std::array<Time, body_streams>;
    struct StageBusy {
        Busy forward, backward, backward_last, optimizer;
    };
    StageBusy busy(std::size_t stage) const;

    const Skeleton& skeleton_;
    const CostModel& cost_;
    std::vector<std::vector<BodyCost>> bodies_;  // by stage, then as in Stage::bodies
};

}  // namespace foretrain
