// Every combination of the axes, and which is best: the optimum over the whole space, not a sample.
//
// Enumerated are the tuples that divide. Each is checked, laid out in memory (exactly) and bounded;
// estimated is whatever the bounds cannot exclude; the best are simulated. A plan is passed over only
// if an estimated plan is at least as fast as its time bound with no more memory, and its bound
// exceeds the N-th best time. The answer is the same for any number of threads; ties go to the plan
// that was enumerated first.
//
//   SweepResult r = sweep(plan, {.top = 10});     // plan: model, cluster, framework, training
//   r.best[0].plan.parallelism
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/check.h"
#include "plan/plan.h"
#include "plan/program/result.h"

namespace foretrain {

// The values of each axis; empty: the default axis.
//   tensor, pipeline: every divisor of the number of devices that divides the model;
//   virtual_pipeline: every number of chunks that divides a stage's layers, if the framework
//   interleaves, for 1f1b whose microbatches fill their rounds;
//   context: from 16k tokens a sequence on powers of two up to 16, else 1; context_method: the base plan's;
//   data: what tensor, context and pipeline leave;
//   micro_batch_size: powers of two up to 64 that divide a data rank's share of the global batch;
//   zero_stage: the framework's (0 alone where there is one data rank);
//   zero_shard_size: all replicas (0); of those given, where a stage shards, what divides the replicas;
//   recompute: none, selective, full, and block 1/4, 1/2, 3/4 of a stage's layers, if the framework
//   has them;  schedule: the base plan's.
struct SweepSpace {
    std::vector<std::int64_t> tensor, context, pipeline, virtual_pipeline, data, micro_batch_size;
    std::vector<ContextMethod> context_method;
    std::vector<int> zero_stage;
    std::vector<std::int64_t> zero_shard_size;
    std::vector<Schedule> schedule;
    std::vector<Recompute> recompute;
    std::optional<bool> sequence_parallel;  // empty: the framework's, wherever it can be
};

struct SweepOptions {
    SweepSpace space;
    int top = 10;
    int threads = 0;                                                   // 0: as many as the machine has
    bool exhaustive = false;                                           // estimate every feasible plan
    std::optional<Bytes> max_memory;                                   // a device's, if less than it has
    std::function<void(std::int64_t done, std::int64_t of)> progress;  // called from one thread
};

// The plans of the space, in order. `base` gives everything but the axes.
std::vector<Plan> enumerate(const Plan& base, const SweepSpace& space);
// What stands in the way where `enumerate` finds nothing: the axis or the batch, and what would do.
Rejection why_nothing(const Plan& base, const SweepSpace& space);

SweepResult sweep(const Plan& base, const SweepOptions& options);

}  // namespace foretrain
