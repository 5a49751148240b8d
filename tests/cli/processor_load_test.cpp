#include "cli/processor_load.h"

#include <gtest/gtest.h>

namespace foretrain::cli {
namespace {

// Ten seconds of a machine: its processors, and the seconds that all and that our own programs used.
double taken(std::int64_t processors, double busy_s, double own_s, std::int64_t ranks) {
    const ProcessorTimes before{.processors = processors, .busy_s = 100, .children_s = 5, .clock_s = 1000};
    const ProcessorTimes after{.processors = processors,
                               .busy_s = before.busy_s + busy_s,
                               .children_s = before.children_s + own_s,
                               .clock_s = before.clock_s + 10};
    return taken_by_others(before, after, ranks);
}

TEST(ProcessorLoad, CountsWhatOthersTookOfTheProcessorsNeeded) {
    EXPECT_NEAR(taken(2, 20, 12, 2), 0.8, 1e-12);
    EXPECT_NEAR(taken(4, 35, 15, 3), 1, 1e-12) << "one of the two that others had was free";
    EXPECT_NEAR(taken(2, 20, 10, 8), 1, 1e-12) << "more ranks than processors";
}

TEST(ProcessorLoad, NothingIsTakenWhereThereIsRoom) {
    EXPECT_EQ(taken(2, 20, 20, 2), 0);
    EXPECT_EQ(taken(2, 20, 19, 2), 0) << "a machine is never quite still";
    EXPECT_EQ(taken(64, 300, 20, 2), 0);
    EXPECT_EQ(taken(2, 12, 12, 2), 0) << "ranks that wait for each other";
    EXPECT_EQ(taken(0, 20, 0, 2), 0) << "not known";
}

TEST(ProcessorLoad, TimesOnlyGrow) {
    const ProcessorTimes a = processor_times(), b = processor_times();
    EXPECT_GE(b.busy_s, a.busy_s);
    EXPECT_GE(b.clock_s, a.clock_s);
}

}  // namespace
}  // namespace foretrain::cli
