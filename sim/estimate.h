// Rung 2 of the ladder: `estimate` folds the skeleton and unrolls no kernel.
//
// It walks the chunk-level instructions of every stage once, with one clock a stream and bodies as
// max-plus maps; it equals `simulate` to the picosecond where nothing contends. The bound, rung 1, is
// PlanCosts' (sim/plan_costs.h).
//
//   Estimator e(skeleton, cost);
//   Estimate estimate = e.estimate();      // estimate.step, estimate.times[stage]
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/body_cost.h"
#include "sim/cost.h"
#include "sim/flight.h"
#include "sim/live_peak.h"
#include "sim/timeline.h"

namespace foretrain {

class Estimator {
public:
    // Keeps a reference to the skeleton.
    Estimator(const Skeleton& skeleton, const CostModel& cost);
    Estimator(const Estimator&) = delete;  // bodies_ points into costs_
    Estimator& operator=(const Estimator&) = delete;

    Estimate estimate();
    // The same if what runs between stages took no time, and passes did not stand still for it: what it is shorter
    // by is what messages cost.
    Estimate estimate_with_free_messages();

    // A timeline that serves the plan, made before; else the first estimate makes one.
    void use(const Timeline& timeline) { timeline_ = &timeline; }
    std::uint32_t activity() const { return activity_of(bodies_) | activity_of(free_); }

    // Exact, in closed form: no clock is needed.
    std::vector<StageMemory> memory() const;  // without what is reserved outside
    std::vector<WireCount> wire() const;      // of each stage's first rank
    std::vector<PeakMoment> peaks() const;
    // Executed in a step by all ranks: &BodyCost::gemm_flops or &BodyCost::attention_flops.
    double executed(Flops BodyCost::*kind) const;

private:
    void count_between(InstructionKind kind, Axis axis, DType type, Bytes bytes, std::int64_t times,
                       WireCount& count) const;
    void make_timeline();
    Estimate estimate_with(const TimelineDurations& durations, Time reduce_tied, const StageBodies& bodies);

    const Timeline* timeline_ = nullptr;
    std::unique_ptr<Timeline> own_timeline_;
    const Skeleton& skeleton_;
    TimelineDurations durations_;
    Time reduce_tied_;
    std::map<const Stage*, std::vector<BodyCost>> costs_;  // chunks alike share theirs
    StageBodies bodies_;                                   // as instructions name them
    std::deque<BodyCost> free_costs_;                      // of those that stand still for messages, if they did not
    StageBodies free_;                                     // with those in their place
    // What lives when most does, by stage.
    struct Fullest {
        Flight flight;
        std::vector<Holding> holdings;
        LivePeak peak;  // points into `flight`
    };
    std::deque<Fullest> fullest_;
};

}  // namespace foretrain
