#include "plan/program/training_cost.h"

#include <gtest/gtest.h>

#include "plan/program/result.h"

namespace foretrain {
namespace {

// 8 GPUs, 1e6 tokens a step of 10 s.
Prediction ten_seconds() {
    Prediction p;
    p.plan.cluster.name = "bench";
    p.plan.cluster.nodes = 2;
    p.plan.cluster.devices_per_node = 4;
    p.plan.training.global_batch_size = 1000;
    p.plan.training.sequence_length = 1000;
    p.step = from_seconds(10);
    return p;
}

TEST(TrainingCost, IsStepsTimesTheStep) {
    // 8.64e9 tokens: 8640 steps of 10 s, one day; 8 GPUs for 24 hours.
    const TrainingCost c = training_cost(ten_seconds(), {.tokens = 8.64e9, .price = 2.0, .watts = 500});
    EXPECT_DOUBLE_EQ(c.steps, 8640);
    EXPECT_DOUBLE_EQ(c.days, 1);
    EXPECT_DOUBLE_EQ(c.device_hours, 192);
    EXPECT_DOUBLE_EQ(c.money_least, 384);
    EXPECT_DOUBLE_EQ(c.money_most, 384);
    EXPECT_DOUBLE_EQ(c.megawatt_hours, 0.096);
    EXPECT_TRUE(c.assumed.empty()) << "all was stated";
}

TEST(TrainingCost, SaysWhatItAssumed) {
    Prediction p = ten_seconds();
    p.plan.cluster.price = {1, 3};
    p.plan.cluster.power_watts_per_node = 4000;
    p.plan.cluster.device.power_watts = 700;
    const TrainingCost c = training_cost(p, {.tokens = 8.64e9});
    EXPECT_DOUBLE_EQ(c.money_least, 192);
    EXPECT_DOUBLE_EQ(c.money_most, 576);
    EXPECT_DOUBLE_EQ(c.watts, 1000) << "a quarter of the node";
    ASSERT_EQ(c.assumed.size(), 2u);
    EXPECT_NE(c.assumed[0].find("1 to 3 US dollars"), std::string::npos) << c.assumed[0];
    EXPECT_NE(c.assumed[1].find("1000 W"), std::string::npos) << c.assumed[1];
    p.plan.cluster.devices_per_whole_node = 2 * p.plan.cluster.devices_per_node;
    EXPECT_DOUBLE_EQ(training_cost(p, {.tokens = 1}).watts, 500) << "of a node that is used by half";
    p.plan.cluster.power_watts_per_node = 0;
    EXPECT_DOUBLE_EQ(training_cost(p, {.tokens = 1}).watts, 700);
}

TEST(TrainingCost, TheUnknownStaysUnknown) {
    const TrainingCost c = training_cost(ten_seconds(), {.tokens = 1e9});
    EXPECT_EQ(c.price, PriceRange{});
    EXPECT_EQ(c.watts, 0);
    EXPECT_TRUE(c.assumed.empty());
}

TEST(MemoryVerdict, TightIsATwentiethOrLessToSpare) {
    Prediction p;
    p.memory = {{.weights = Bytes{60}}, {.weights = Bytes{80}}};
    p.capacity = Bytes{100};
    EXPECT_EQ(verdict_of(p).fit, Fit::fits);
    EXPECT_EQ(verdict_of(p).margin, Bytes{20});
    EXPECT_DOUBLE_EQ(verdict_of(p).margin_share, 0.2);
    p.memory[1].reserved = Bytes{15};
    EXPECT_EQ(verdict_of(p).fit, Fit::fits) << "exactly a twentieth";
    p.memory[1].reserved = Bytes{16};
    EXPECT_EQ(verdict_of(p).fit, Fit::tight);
    p.memory[1].reserved = Bytes{20};
    EXPECT_EQ(verdict_of(p).fit, Fit::tight) << "to the last byte";
    p.memory[1].reserved = Bytes{21};
    EXPECT_EQ(verdict_of(p).fit, Fit::out_of_memory);
    EXPECT_EQ(verdict_of(p).margin, Bytes{-1});
}

TEST(PeakMoment, IsSaidInWords) {
    EXPECT_EQ(text(PeakMoment{}), "throughout the step");
    EXPECT_EQ(text(PeakMoment{"backward", 3, 4, "layer3.mlp"}),
              "backward pass of microbatch 3, in layer3.mlp; 4 in flight");
    EXPECT_EQ(text(PeakMoment{"message", 0, 1, ""}), "message of microbatch 0, between passes; 1 in flight");
}

}  // namespace
}  // namespace foretrain
