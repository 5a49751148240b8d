#include "plan/schedule_order.h"

#include <algorithm>

namespace foretrain {

std::vector<Pass> schedule_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                 std::int64_t microbatches) {
    const std::int64_t warm_up =
        schedule == Schedule::gpipe ? microbatches : std::min(microbatches, stages - stage - 1);
    std::vector<Pass> order;
    order.reserve(static_cast<std::size_t>(2 * microbatches));
    std::int32_t forward = 0;
    std::int32_t backward = 0;
    while (forward < warm_up) order.push_back({false, 0, forward++});
    while (forward < microbatches) {
        order.push_back({false, 0, forward++});
        order.push_back({true, 0, backward++});
    }
    while (backward < microbatches) order.push_back({true, 0, backward++});
    return order;
}

std::int64_t most_in_flight(const std::vector<Pass>& order) {
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const Pass& pass : order) {
        now += pass.backward ? -1 : 1;
        most = std::max(most, now);
    }
    return most;
}

}  // namespace foretrain
