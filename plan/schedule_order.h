// The only definition of a pipeline schedule: in which order a stage runs its chunk passes.
//
//   for (Pass p : schedule_order(Schedule::one_f_one_b, /*stages=*/4, /*stage=*/0, /*microbatches=*/8))
//       ...                      // F0 F1 F2 F3 B0 F4 B1 ...
//
// GPipe runs every forward, then every backward. 1F1B runs stages - stage - 1 forwards to warm up,
// then one forward and one backward in turn, then the remaining backwards (PipeDream-flush,
// arXiv:2006.09503; the warm-up count as in Megatron-LM's schedules.py).
//
// With several chunks a stage they are interleaved (arXiv:2104.04473): microbatches go in rounds of
// `stages`, a round through one chunk after the other, backward from the last chunk to the first.
// 1F1B then warms up with 2 (stages - stage - 1) + (chunks - 1) stages forwards. The microbatches
// must fill their rounds (plan/check.h).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace foretrain {

struct Pass {
    bool backward = false;
    std::int32_t chunk = 0;
    std::int32_t microbatch = 0;
    bool operator==(const Pass&) const = default;
};

std::vector<Pass> schedule_order(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches,
                                 std::int64_t chunks = 1);

// So many of a step's microbatches show all that the schedule does: after the warm-up 1F1B repeats itself,
// every microbatch or, interleaved, every round of `stages`, and what is in flight with it.
std::int64_t enough_microbatches(Schedule schedule, std::int64_t stages, std::int64_t chunks,
                                 std::int64_t microbatches);

}  // namespace foretrain
