#include "plan/corrections.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "models/model_file.h"

namespace foretrain {
namespace {

TEST(Corrections, ReplaceWhatHasTheSameName) {
    Plan plan;
    plan.model = read_model("gpt2");
    plan.cluster = read_cluster("dgx-a100");
    plan.framework = "megatron-lm";
    Corrections c;
    c.frameworks.push_back(framework_named("megatron-lm@2022"));
    c.clusters.push_back(read_cluster("dgx-h100"));
    c.clusters.back().network.constants.efficiency = 0.5;
    Plan other = plan;
    correct(other, c);
    EXPECT_EQ(other.framework, plan.framework) << "the newest is another version";
    EXPECT_EQ(other.cluster.device, plan.cluster.device);
    EXPECT_EQ(other.cluster.network.constants.efficiency, 0.5) << "both are InfiniBand";
    EXPECT_EQ(other.cluster.network.nics_per_node, plan.cluster.network.nics_per_node);

    c.frameworks.push_back(framework_named("megatron-lm@2024"));
    c.frameworks.back().costs.stall.step_us = 7;
    c.clusters.push_back(plan.cluster);
    c.clusters.back().device.calibration.memory_bound.efficiency = 0.25;
    correct(plan, c);
    EXPECT_EQ(framework_named(plan.framework).costs.stall.step_us, 7);
    EXPECT_EQ(plan.cluster.device.calibration.memory_bound.efficiency, 0.25);
}

}  // namespace
}  // namespace foretrain
