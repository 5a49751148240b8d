// Every combination of the axes, and which is best: the optimum over the whole space, not a sample.
//
// Enumerated are the tuples that divide. Each is checked, laid out in memory (exactly) and bounded;
// estimated is whatever the bounds cannot exclude. An estimate is what a simulation says, to the
// picosecond (tests/laws): there is no need to simulate the best. A plan is passed over only if an
// estimated plan is at least as fast as its time bound with no more memory, and its bound exceeds the
// N-th best time. The answer is the same for any number of threads; ties go to the plan
// that was enumerated first.
//
//   SweepResult r = sweep(plan, {.top = 10});     // plan: model, cluster, framework, training
//   r.best[0].plan.parallelism
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/program/result.h"
#include "sim/enumerate.h"

namespace foretrain {

struct SweepOptions {
    SweepSpace space;
    int top = 10;
    int threads = 0;                                                   // 0: as many as the machine has
    bool exhaustive = false;                                           // estimate every feasible plan
    std::optional<Bytes> max_memory;                                   // a device's, if less than it has
    std::function<void(std::int64_t done, std::int64_t of)> progress;  // called from one thread
};

SweepResult sweep(const Plan& base, const SweepOptions& options);

}  // namespace foretrain
