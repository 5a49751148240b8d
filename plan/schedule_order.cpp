#include "plan/schedule_order.h"

#include <algorithm>

namespace foretrain {

namespace {

// The n-th forward pass, counted from 0; the n-th backward pass is the same with its chunks reversed.
Pass forward_pass(std::int64_t n, std::int64_t stages, std::int64_t chunks) {
    const std::int64_t in_round = n % (stages * chunks);
    const std::int64_t round = n / (stages * chunks);
    return {false, static_cast<std::int32_t>(in_round / stages),
            static_cast<std::int32_t>(round * stages + in_round % stages)};
}

}  // namespace

std::vector<Pass> schedule_order(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches,
                                 std::int64_t chunks) {
    const std::int64_t passes = microbatches * chunks;
    const std::int64_t after = stages - stage - 1;
    const std::int64_t warm_up = schedule == Schedule::gpipe ? passes
                                 : chunks == 1               ? std::min(passes, after)
                                                             : std::min(passes, 2 * after + (chunks - 1) * stages);
    std::vector<Pass> order;
    order.reserve(static_cast<std::size_t>(2 * passes));
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    const auto run_forward = [&] { order.push_back(forward_pass(forward++, stages, chunks)); };
    const auto run_backward = [&] {
        const Pass mirrored = forward_pass(backward++, stages, chunks);
        order.push_back({true, static_cast<std::int32_t>(chunks - 1) - mirrored.chunk, mirrored.microbatch});
    };
    while (forward < warm_up) run_forward();
    while (forward < passes) {
        run_forward();
        run_backward();
    }
    while (backward < passes) run_backward();
    return order;
}

std::int64_t enough_microbatches(Schedule schedule, std::int64_t stages, std::int64_t chunks,
                                 std::int64_t microbatches) {
    if (schedule == Schedule::gpipe) return microbatches;
    return std::min(microbatches, chunks == 1 ? stages + 8 : 6 * stages);
}

}  // namespace foretrain
