#include "plan/schedule_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace foretrain {
namespace {

std::string text(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches) {
    std::string s;
    for (const Pass& p : schedule_order(schedule, stages, stage, microbatches))
        s += (s.empty() ? "" : " ") + std::string(p.backward ? "B" : "F") + std::to_string(p.microbatch);
    return s;
}

TEST(ScheduleOrder, IsTheOneInTheBooks) {
    EXPECT_EQ(text(Schedule::gpipe, 4, 0, 3), "F0 F1 F2 B0 B1 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 3, 3), "F0 B0 F1 B1 F2 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 2, 3), "F0 F1 B0 F2 B1 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 0, 6), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 0, 2), "F0 F1 B0 B1");  // fewer microbatches than warm-up
}

// 1F1B holds min(m, p - r) microbatches on stage r, GPipe all of them.
TEST(ScheduleOrder, HoldsAsManyMicrobatchesAsStagesFollow) {
    for (std::int64_t stages : {1, 2, 4, 7})
        for (std::int64_t m : {1, 2, 5, 16})
            for (std::int64_t r = 0; r < stages; ++r) {
                const auto order = schedule_order(Schedule::one_f_one_b, stages, r, m);
                EXPECT_EQ(static_cast<std::int64_t>(order.size()), 2 * m);
                EXPECT_EQ(most_in_flight(order), std::min(m, stages - r));
                EXPECT_EQ(most_in_flight(schedule_order(Schedule::gpipe, stages, r, m)), m);
            }
}

}  // namespace
}  // namespace foretrain
