// Layers with experts and latent attention in numbers that a person can check, and against measured memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/json.h"
#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "models/parameters.h"
#include "plan/check.h"
#include "plan/program/expert_share.h"
#include "sim/flops.h"
#include "sim/predict.h"
#include "tests/sim/support/reference.h"

namespace foretrain {
namespace {

constexpr std::int64_t mixtral_expert = 3 * 4096 * 14336;  // gate, up and down projection
constexpr std::int64_t mixtral_attention = 4096 * 6144 + 4096 * 4096;
constexpr std::int64_t mixtral_apart = mixtral_attention + 8 * 4096 + 2 * 4096;  // router and norms besides

Plan mixtral(std::int64_t expert) {
    Plan plan;
    plan.model = read_model("mixtral-8x7b");
    plan.cluster = read_cluster("dgx-h100");
    plan.framework = "megatron-lm";
    plan.training.global_batch_size = 16;
    plan.training.sequence_length = 4096;
    plan.training.expert_imbalance = 1;
    plan.parallelism.data = 8;
    plan.parallelism.expert = expert;
    plan.parallelism.zero_stage = 1;
    plan.parallelism.recompute = {Recompute::Kind::full, 0};
    return plan;
}

TEST(Experts, StatesOfMixtral) {
    const Prediction p = estimate(mixtral(8));
    ASSERT_FALSE(p.memory.empty());
    const std::int64_t apart = 32 * mixtral_apart + 2 * 32000 * 4096 + 4096, experts = 32 * mixtral_expert;
    EXPECT_EQ(p.memory[0].weights, Bytes{2 * (apart + experts)});
    // Only the rest is held by all eight ranks, who share out its optimizer state.
    EXPECT_EQ(p.memory[0].optimizer, Bytes{12 * (apart / 8 + experts)});
    const Prediction whole = estimate(mixtral(1));
    EXPECT_EQ(whole.memory[0].weights, Bytes{2 * (apart + 8 * experts)});
    EXPECT_EQ(whole.memory[0].optimizer, Bytes{12 * (apart / 8 + experts)});
}

TEST(Experts, TokensGoOutAndComeBackInEachPass) {
    Plan plan = mixtral(8);
    plan.parallelism.recompute = {};
    const Prediction p = estimate(plan);
    const std::int64_t copies = 4096 * 2;                                    // tokens of a microbatch, two experts each
    const std::int64_t sent = copies * 4096 * 2 / 8 * 7;                     // all but those for this rank's own expert
    EXPECT_EQ(p.wire[0].at("expert.all_to_all"), Bytes{sent * 4 * 32 * 2});  // 4 a layer, 2 microbatches
    plan.parallelism.recompute = {Recompute::Kind::full, 0};
    EXPECT_EQ(estimate(plan).wire[0].at("expert.all_to_all"), Bytes{sent * 6 * 32 * 2});
    EXPECT_GT(p.times[0].expert_exposed, Time{});
    EXPECT_EQ(estimate(mixtral(1)).wire[0].count("expert.all_to_all"), 0U);
}

TEST(Experts, FlopsAreThoseOfTheExpertsThatATokenVisits) {
    const Plan plan = mixtral(8);
    const double tokens = 16 * 4096;
    const ModelFlops flops = model_flops(plan.model, tokens, 4096);
    const double matrices = 32.0 * (mixtral_attention + 8 * 4096 + 2.0 * mixtral_expert) + 32000.0 * 4096;
    const double pairs = 32.0 * 4096 * 2 * 4096;
    EXPECT_DOUBLE_EQ(flops.full, 6 * tokens * (matrices + pairs));
    // What is executed is that and nothing else, without recompute; a router counts as little as it does.
    Plan stored = plan;
    stored.parallelism.recompute = {};
    EXPECT_NEAR(estimate(stored).hardware_flops / flops.full, 1, 0.05);
}

TEST(Experts, RowsOfARank) {
    ModelSpec m = read_model("mixtral-8x7b");
    const auto share = [&](double imbalance) { return expert_share(m, {.expert = 4}, 4096, imbalance); };
    EXPECT_EQ(share(1).local, 2);
    EXPECT_EQ(share(1).capacity, 1024);     // of 8192 copies an eighth each
    EXPECT_EQ(share(1).of_expert(), 4096);  // from four ranks
    EXPECT_EQ(share(1).gathered(), 8192);
    EXPECT_EQ(share(1.5).capacity, 1536);
    m.moe.capacity_factor = 1.25;
    EXPECT_EQ(share(1).capacity, 1024);
    EXPECT_EQ(share(1.5).capacity, 1280);  // the rest is dropped
    m.moe.pad_to_capacity = true;
    EXPECT_EQ(share(1).capacity, 1280);
    // 6 copies of 3 tokens to 8 experts: 0.75 each, times the factor, and only then rounded up.
    m.moe.capacity_factor = 1.25;
    EXPECT_EQ(expert_share(m, {.expert = 4}, 3, 1).capacity, 1);
    m.moe.capacity_factor = 1.5;
    EXPECT_EQ(expert_share(m, {.expert = 4}, 3, 1).capacity, 2);
}

TEST(Experts, TensorRanksHoldExpertsOfTheirOwn) {
    Plan plan = mixtral(8);
    plan.parallelism.tensor = 2;
    plan.parallelism.data = 4;
    plan.parallelism.sequence_parallel = true;
    const Prediction own = estimate(plan);
    ASSERT_TRUE(check(plan).empty());
    // Half a rank's tokens each, so half the copies that a rank without tensor ranks has.
    EXPECT_EQ(own.wire[0].at("expert.all_to_all"), Bytes{std::int64_t{4096} * 4096 * 2 / 8 * 7 * 6 * 32 * 4});
    plan.parallelism.expert = 4;
    plan.parallelism.expert_tensor = 2;
    const Prediction shared = estimate(plan);
    EXPECT_EQ(shared.memory[0].weights, own.memory[0].weights);  // two halves of experts, or one
    // The copies of half a microbatch's tokens to the other of two ranks: forward, backward and again, 32 layers, 4
    // times.
    EXPECT_EQ(shared.wire[0].at("expert_tensor.all_gather"), Bytes{std::int64_t{2048} * 2 * 4096 * 2 * 3 * 32 * 4});
}

TEST(Experts, AreRefusedByName) {
    const auto reasons = [](const Plan& plan) {
        std::string all;
        for (const Rejection& r : check(plan)) all += r.reason + " ";
        return all;
    };
    EXPECT_EQ(reasons(mixtral(8)), "");
    EXPECT_NE(reasons(mixtral(3)).find("expert_divides_experts"), std::string::npos);
    Plan plan = mixtral(8);
    plan.framework = "fsdp";
    EXPECT_NE(reasons(plan).find("framework_experts"), std::string::npos);
    plan = mixtral(8);
    plan.parallelism.tensor = 2;
    plan.parallelism.data = 4;
    EXPECT_NE(reasons(plan).find("experts_need_sequence_parallel"), std::string::npos);
    plan.parallelism.expert_tensor = 4;
    EXPECT_NE(reasons(plan).find("expert_tensor_is_one_or_tensor"), std::string::npos);
    plan = mixtral(8);
    plan.framework = "foretrain";
    plan.training.precision = DType::fp32;
    ASSERT_FALSE(check_runnable(plan).empty());
    EXPECT_EQ(check_runnable(plan)[0].reason, "model_not_runnable");
    plan.model = read_model("llama-3-8b");
    EXPECT_NE(reasons(plan).find("experts_to_share_out"), std::string::npos);
}

// What one more layer keeps of a microbatch, as the table of Megatron-LM's saved tensors has it.
// A rank that holds all experts gets all tokens, and no expert gets a token twice.
TEST(Experts, ImbalanceIsAtMostWhatCanBe) {
    Plan plan;
    plan.model = read_model("mixtral-8x7b");
    plan.cluster = read_cluster("dgx-h100");
    plan.framework = "megatron-lm";
    plan.training.global_batch_size = 64;
    plan.training.sequence_length = 4096;
    plan.parallelism.data = 8;
    plan.parallelism.zero_stage = 1;
    const auto refused = [&](std::int64_t ranks, double imbalance) {
        plan.parallelism.expert = ranks;
        plan.training.expert_imbalance = imbalance;
        const std::vector<Rejection> all = check(plan);
        return std::any_of(all.begin(), all.end(),
                           [](const Rejection& r) { return r.reason == "imbalance_of_experts"; });
    };
    EXPECT_TRUE(refused(1, 1.1));
    EXPECT_FALSE(refused(8, 4));
    EXPECT_TRUE(refused(8, 4.1)) << "8 experts, of which a token visits 2";
    EXPECT_FALSE(refused(2, 2));
    plan.model = read_model("llama-3-8b");
    EXPECT_TRUE(refused(1, 1.5));
    EXPECT_FALSE(refused(1, 0));
}

TEST(LatentAttention, KeepsItsLatents) {
    Plan plan;
    plan.model = read_model("deepseek-v3");
    plan.model.moe = {};
    plan.cluster = read_cluster("dgx-h100");
    plan.framework = "megatron-lm";
    plan.training.global_batch_size = 8;
    plan.training.sequence_length = 4096;
    plan.parallelism.data = 8;
    const auto kept = [&](std::int64_t layers) {
        plan.model.layers = layers;
        return estimate(plan).memory[0].activations;
    };
    constexpr std::int64_t h = 7168, heads = 128, ffn = 18432, q_lora = 1536, kv_lora = 512, rope = 64;
    const std::int64_t stream = 4 * 2 * h + 2 * 4;  // inputs, outputs and statistics of both norms
    const std::int64_t latents = 4 * q_lora + 4 * kv_lora + 2 * rope;
    const std::int64_t attention = 2 * heads * (2 * 192 + 128) + 2 * heads * 128 + 4 * heads;
    EXPECT_EQ(kept(3) - kept(2), Bytes{4096 * (stream + latents + attention + 6 * ffn)});
    // Scores and values are of other widths, and so are the products' FLOPs.
    const double tokens = 4096;
    const ModelFlops full = model_flops(plan.model, tokens, 4096);
    EXPECT_DOUBLE_EQ(full.full - full.causal, 6 * tokens * 3 * 4096 / 2.0 * heads * (192 + 128));
}

// Runs of DeepSeek models cut to four layers, on 8 B200, experts padded to a capacity of 1: what is allocated is
// known but for the framework's workspaces.
TEST(Experts, MemoryOfMeasuredRuns) {
    const auto path = support::reference_file("published_runs.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with published_runs.jsonl: memory NOT checked";
    std::ifstream file(*path);
    int compared = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.find("\"id\": \"simumax-b200") == std::string::npos || line.find("\"moe\": {") == std::string::npos)
            continue;
        const Json row = Json::parse(line, "published_runs.jsonl");
        const Json p = row.at("parallelism");
        const bool third = row.at("model").at("name").string().find("v3") != std::string::npos;
        Plan plan;
        plan.model = read_model(third ? "deepseek-v3" : "deepseek-v2");
        plan.model.layers = 4;
        plan.model.moe.first_dense_layers = 1;
        plan.model.moe.capacity_factor = 1;
        plan.model.moe.pad_to_capacity = true;
        plan.cluster = read_cluster("dgx-b200");
        plan.framework = "megatron-lm";
        plan.training.global_batch_size = row.at("training").at("global_batch_size").integer(1, 1 << 20);
        plan.training.sequence_length = 4096;
        plan.parallelism.pipeline = p.at("pipeline").integer(1, 8);
        plan.parallelism.data = p.at("data").integer(1, 8);
        plan.parallelism.expert = p.at("expert").integer(1, 8);
        plan.parallelism.zero_stage = 1;
        const Prediction prediction = estimate(plan);
        ASSERT_FALSE(prediction.memory.empty());
        Bytes most;
        for (const StageMemory& m : prediction.memory) most = std::max(most, m.live_peak);
        const double measured = row.at("measured").at("peak_allocated_gib").number(0, 1000);
        EXPECT_NEAR(gibibytes(most) / measured, 1, 0.02) << line.substr(0, 40);
        ++compared;
    }
    EXPECT_EQ(compared, 10);
}

}  // namespace
}  // namespace foretrain
