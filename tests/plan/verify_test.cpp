#include "plan/program/verify.h"

#include <gtest/gtest.h>

#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "tests/plan/support/small_plans.h"

namespace foretrain {
namespace {

using testing::small_gpt;
using testing::plan_name;
using testing::small_plan;

TEST(Verify, EveryPlanHolds) {
    const std::vector<Plan> plans = testing::varied_plans();
    EXPECT_GE(plans.size(), 60U);
    for (const Plan& plan : plans) {
        for (const Rejection& no : check(plan)) ADD_FAILURE() << plan_name(plan) << ": " << text(no);
        const Skeleton skeleton = make_skeleton(plan);
        EXPECT_EQ(verify(unroll(skeleton)).value_or(""), "") << "unrolled, " << plan_name(plan);
        EXPECT_EQ(verify(lower(skeleton)).value_or(""), "") << "lowered, " << plan_name(plan);
    }
}

}  // namespace
}  // namespace foretrain
