#include "plan/program/memory_terms.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "plan/attention_choice.h"
#include "plan/program/skeleton.h"
#include "tests/plan/support/small_plans.h"

namespace foretrain {
namespace {

using namespace testing;

Plan plan_on(const std::string& framework, const std::string& cluster) {
    Plan plan = small_plan(small_gpt(true), {.micro_batch_size = 2});
    plan.framework = framework;
    plan.cluster = read_cluster(cluster);
    plan.training.precision = DType::bf16;
    plan.training.fused_gradient_accumulation = false;
    return plan;
}

MemoryTerms terms(const Plan& plan) { return memory_terms(plan, framework_named(plan.framework)); }
Bytes libraries(const Plan& plan) { return libraries_of(plan, framework_named(plan.framework)); }

TEST(MemoryTerms, OurOwnEngineHasNone) {
    const Plan plan = plan_on("foretrain", "dgx-a100");
    EXPECT_FALSE(terms(plan).dropout_masks);
    EXPECT_EQ(terms(plan).norm_statistics, 0);
    EXPECT_EQ(libraries(plan), Bytes{});
}

TEST(MemoryTerms, AttentionFollowsTheDeviceUnlessItIsSaid) {
    Plan plan = plan_on("megatron-lm@2024", "dgx-a100");
    const Framework& f = framework_named(plan.framework);
    EXPECT_EQ(attention_of(plan, f), AttentionKind::flash2);
    EXPECT_TRUE(terms(plan).second_output);
    EXPECT_EQ(attention_of(plan_on("megatron-lm@2024", "dgx-h100"), f), AttentionKind::cudnn);
    EXPECT_FALSE(terms(plan_on("megatron-lm@2024", "dgx-h100")).second_output);
    plan.parallelism.micro_batch_size = 1;
    EXPECT_FALSE(terms(plan).second_output) << "one layout serves a batch of one";
    plan.training.attention = AttentionKind::unfused;
    EXPECT_EQ(terms(plan).score_bytes, 2) << "the softmax";
    plan.training.attention_dropout = 0.1;
    EXPECT_EQ(terms(plan).score_bytes, 5) << "and its dropout and mask";
    plan.training.software.fused_softmax = false;
    EXPECT_EQ(terms(plan).score_bytes, 7) << "a softmax of fp32";
    plan.training.attention_dropout = 0;
    EXPECT_EQ(terms(plan).score_bytes, 6) << "which is kept as the product reads it too";
    EXPECT_GT(unfused_attention(plan, f).product_efficiency, 0);
}

TEST(MemoryTerms, LossesKeepOneCopyOrNone) {
    Plan plan = plan_on("megatron-lm@2024", "dgx-a100");
    EXPECT_TRUE(terms(plan).fp32_logits);
    EXPECT_EQ(terms(plan).logit_bytes, 0);
    plan.training.cross_entropy = CrossEntropy::native;
    EXPECT_EQ(terms(plan).logit_bytes, 8);
    plan.training.compiled = true;
    EXPECT_EQ(terms(plan).logit_bytes, 4);
    plan.training.cross_entropy = CrossEntropy::fused;
    EXPECT_FALSE(terms(plan).fp32_logits);
}

// Two cuBLAS handles and Transformer Engine's: 2 x 8.125 + 4 MiB on A100, 2 x 32 + 32 from Hopper on; 5 MiB of small
// tensors where the optimizer is not shared out.
TEST(MemoryTerms, WorkspacesFollowTheDevice) {
    Plan a100 = plan_on("megatron-lm@2024", "dgx-a100");
    EXPECT_EQ(libraries(a100), Bytes{(2 * 8125 + 4000 + 5000) * MiB / 1000});
    a100.training.software.deterministic = true;
    EXPECT_EQ(libraries(a100), Bytes{(2 * 32 + 4 + 5) * MiB});
    const Plan h100 = plan_on("megatron-lm@2024", "dgx-h100");
    EXPECT_EQ(libraries(h100), Bytes{(2 * 32 + 32 + 5) * MiB});
    a100.training.software.own_layers = true;
    EXPECT_EQ(libraries(a100), Bytes{(4 * 32 + 5) * MiB});
}

// 2 bytes for each weight of a layer's four matrices.
TEST(MemoryTerms, FusedAccumulationKeepsAGradientOfEachShape) {
    Plan plan = plan_on("megatron-lm@2024", "dgx-h100");
    const Bytes without = libraries(plan);
    plan.training.fused_gradient_accumulation = true;
    const ModelSpec& m = plan.model;
    const std::int64_t weights = m.hidden_size * (m.qkv_size() + m.query_size() + m.fc1_size() + m.ffn_hidden_size);
    EXPECT_EQ(libraries(plan) - without, Bytes{2 * weights});
}

// A tied head and its embedding on one stage collect their gradients in one place, our engine's in two.
TEST(MemoryTerms, ATiedHeadHasNoGradientOfItsOwn) {
    const auto gradients = [](const std::string& framework) {
        Plan plan = plan_on(framework, "dgx-a100");
        plan.model.tied_embeddings = true;
        plan.model.vocab_size = 1024;
        return make_skeleton(plan).stages[0].region_bytes[static_cast<std::size_t>(Region::gradients)];
    };
    const std::int64_t hidden = plan_on("foretrain", "dgx-a100").model.hidden_size;
    EXPECT_EQ(gradients("foretrain") - gradients("megatron-lm@2024"), Bytes{4 * 1024 * hidden});
}

}  // namespace
}  // namespace foretrain
