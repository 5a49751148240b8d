#include "sim/batch_advice.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(BatchAdvice, IsNearTheBatchThatWasAskedFor) {
    EXPECT_EQ(batch_near(1024, {3, 6, 48, 96, 384}), 1152) << "3 x 384, an eighth more";
    EXPECT_EQ(batch_near(1000, {8, 512}), 1024);
    EXPECT_EQ(batch_near(100, {8, 512}), 96) << "512 is another training";
    EXPECT_EQ(batch_near(4, {8, 16}), 8) << "none is near: the fewest ranks";
}

TEST(BatchAdvice, ABatchThatAllDivideLeavesNothingOut) {
    EXPECT_EQ(left_out_by_batch(1024, {{1, 5}, {512, 3}}).combinations, 0);
}

TEST(BatchAdvice, CountsWhatABatchLeavesOutAndFindsOneThatDoesNot) {
    const LeftOutByBatch all = left_out_by_batch(1000, {{1, 1}, {8, 20}, {16, 30}, {512, 4}});
    EXPECT_EQ(all.of, 55);
    EXPECT_EQ(all.combinations, 34);
    EXPECT_EQ(all.batch, 1024);
    EXPECT_EQ(all.then_left_out, 0);

    const LeftOutByBatch most = left_out_by_batch(100, {{1, 1}, {16, 30}, {512, 4}});
    EXPECT_EQ(most.batch, 96) << "512 is too far away";
    EXPECT_EQ(most.then_left_out, 4);

    const LeftOutByBatch far = left_out_by_batch(8, {{8, 1}, {512, 4}});
    EXPECT_EQ(far.batch, 512) << "nothing near is better";
    EXPECT_EQ(far.then_left_out, 0);
}

}  // namespace
}  // namespace foretrain
