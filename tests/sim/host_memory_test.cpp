// Host memory of the node that needs most, with sums that a person can check.
#include "sim/host_memory.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "sim/predict.h"

namespace foretrain {
namespace {

Prediction of(const char* framework, Parallelism parallelism, std::int64_t nodes = 1) {
    Plan plan;
    plan.model = read_model("gpt2");
    plan.cluster = read_cluster("dgx-a100");
    scale_to_nodes(plan.cluster, nodes);
    plan.framework = framework;
    plan.training = {.global_batch_size = 64, .sequence_length = 1024};
    plan.parallelism = parallelism;
    Prediction p = estimate(plan);
    EXPECT_FALSE(p.memory.empty()) << text(p.rejections.front());
    return p;
}

TEST(HostMemory, DeepSpeedBuildsWholeModelsOnEachRank) {
    const Prediction p = of("deepspeed", {.data = 8, .zero_stage = 2});
    const Bytes parameters = p.memory[0].weights / 2;  // bf16
    EXPECT_EQ(p.host.building, 8 * 6 * parameters) << "8 ranks, 4 bytes, times 1.5";
    EXPECT_EQ(p.host.checkpoint, Bytes{}) << "not known to write beside training";
    EXPECT_EQ(p.host.batch, Bytes{8 * 16 * (64 / 8) * 1024});
    EXPECT_EQ(p.host.needed(), p.host.building + p.host.batch);
    EXPECT_EQ(p.host.capacity, read_cluster("dgx-a100").host_memory);
    EXPECT_FALSE(p.host.too_much());
    EXPECT_EQ(of("deepspeed@2021", {.data = 8, .zero_stage = 3}).host.building, Bytes{8 * 6 * 50304 * 768})
        << "with zero.Init only the largest weight, the embedding's";
}

TEST(HostMemory, ACheckpointBesideTrainingIsACopyOfEachRanksState) {
    const Prediction p = of("megatron-lm", {.tensor = 2, .data = 4, .zero_stage = 1});
    EXPECT_EQ(p.host.checkpoint, 8 * (p.memory[0].weights + p.memory[0].optimizer));
    EXPECT_EQ(p.host.building, Bytes{});
    EXPECT_EQ(of("megatron-lm@2022", {.tensor = 2, .data = 4}).host.checkpoint, Bytes{});
}

TEST(HostMemory, IsThatOfTheNodeThatNeedsMost) {
    const auto state = [](const Prediction& p, std::size_t s) { return p.memory[s].weights + p.memory[s].optimizer; };
    const Prediction apart = of("megatron-lm", {.tensor = 2, .pipeline = 2, .data = 4}, 2);  // a stage a node
    EXPECT_EQ(apart.host.checkpoint, 8 * std::max(state(apart, 0), state(apart, 1)));
    const Prediction both = of("megatron-lm", {.tensor = 2, .pipeline = 4, .data = 2}, 2);  // two stages a node
    EXPECT_EQ(both.host.checkpoint, 4 * std::max(state(both, 0) + state(both, 1), state(both, 2) + state(both, 3)));
}

TEST(HostMemory, OurEngineHoldsAllInItsDevices) {
    const HostMemory h = of("foretrain", {.data = 8}).host;
    EXPECT_EQ(h.needed(), Bytes{});
    EXPECT_GT(h.capacity, Bytes{});
}

TEST(HostMemory, SaysWhatIsTooMuch) {
    const HostMemory h{.building = Bytes{10}, .checkpoint = Bytes{20}, .batch = Bytes{1}, .capacity = Bytes{20}};
    EXPECT_EQ(h.needed(), Bytes{21});
    EXPECT_TRUE(h.too_much());
    EXPECT_FALSE((HostMemory{.building = Bytes{10}}.too_much())) << "of what is unknown nothing is too much";
}

}  // namespace
}  // namespace foretrain
