// Metamorphic laws: what must hold between two predictions, whatever the numbers are.
#include <gtest/gtest.h>

#include "models/parameters.h"
#include "plan/program/lower.h"
#include "sim/predict.h"
#include "tests/laws/support/plans.h"

namespace foretrain::test {
namespace {

Plan with_twice_the_bandwidth(Plan plan) {
    DomainConstants& d = plan.cluster.domain;
    d.ring_gbps *= 2;
    d.nvls_gbps *= 2;
    d.pairwise_gbps *= 2;
    plan.cluster.network.nic.bytes_per_second *= 2;
    plan.cluster.device.memory_bandwidth.bytes_per_second *= 2;
    return plan;
}

TEST(Metamorphic, TwiceTheBandwidthIsNeverSlower) {
    std::mt19937 random(4);
    int faster = 0;
    for (int n = 0; n < 100; ++n) {
        const Plan plan = random_plan(random);
        const Time before = estimate(plan).step;
        const Time after = estimate(with_twice_the_bandwidth(plan)).step;
        ASSERT_LE(after, before) << describe(plan.parallelism);
        faster += after < before ? 1 : 0;
    }
    EXPECT_EQ(faster, 100);
}

TEST(Metamorphic, MoreWorkTakesLonger) {
    std::mt19937 random(5);
    for (int n = 0; n < 50; ++n) {
        Plan plan = random_plan(random);
        const Time before = estimate(plan).step;
        plan.training.global_batch_size *= 2;
        EXPECT_GT(estimate(plan).step, before);
        plan.parallelism.recompute = {Recompute::Kind::full, 0};
        const Prediction full = estimate(plan);
        plan.parallelism.recompute = {};
        const Prediction none = estimate(plan);
        EXPECT_GE(none.memory[0].activations, full.memory[0].activations);
        EXPECT_LE(none.hardware_flops, full.hardware_flops);
        EXPECT_EQ(none.model_flops, full.model_flops);
    }
}

// Tied weights count once over all stages; every tensor rank holds the replicated tensors whole.
TEST(Metamorphic, StageParametersSumToTheModels) {
    std::mt19937 random(6);
    for (int n = 0; n < 100; ++n) {
        const Plan plan = random_plan(random);
        const Program program = lower(make_skeleton(plan));
        const std::int64_t vocabulary = make_context(plan).vocabulary;
        std::int64_t total = 0;
        for (const StageProgram& stage : program.stages)
            for (const Parameter& p : stage.parameters) {
                const bool copy = plan.model.tied_embeddings && p.name == "embedding.weight" &&
                                  stage.units[static_cast<std::size_t>(p.unit)].name == "head";
                if (!copy) total += p.outer * p.sharded * p.inner;
            }
        const std::int64_t tables = plan.model.tied_embeddings ? 1 : 2;
        const std::int64_t a_row = tables * plan.model.hidden_size + (plan.model.head_bias ? 1 : 0);
        const std::int64_t padding = (vocabulary - plan.model.vocab_size) * a_row;
        EXPECT_EQ(total - padding, parameter_count(plan.model)) << describe(plan.parallelism);
    }
}

// Model states by hand (mechanics of Megatron-LM's distributed optimizer): 18 bytes a parameter
// in bf16 with fp32 gradients, 6 + 12/d with the optimizer state sharded over d data ranks.
TEST(Metamorphic, ModelStatesAreEighteenOrSixPlusTwelveOverD) {
    for (const int zero : {0, 1}) {
        Parallelism p;
        p.data = 4;
        p.zero_stage = zero;
        Plan plan = small_plan(small_llama(), p);
        plan.model.hidden_size = 512;
        plan.model.head_dim = 64;
        plan.model.ffn_hidden_size = 1024;
        plan.training.precision = DType::bf16;
        const StageMemory m = estimate(plan).memory[0];
        const double states = static_cast<double>((m.weights + m.gradients + m.optimizer).value);
        const double expected = zero == 0 ? 18.0 : 6 + 12.0 / 4;
        EXPECT_NEAR(states / static_cast<double>(parameter_count(plan.model)), expected, 0.01);
    }
}

}  // namespace
}  // namespace foretrain::test
