#include "plan/megatron_args.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/check.h"
#include "plan/run_record.h"

namespace foretrain {
namespace {

const std::string small =
    "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 4 "
    "--global-batch-size 32 --bf16 ";

MegatronRun run_of(const std::string& more, std::int64_t world = 8) {
    return plan_from_megatron(arguments_from_text(small + more),
                              {.origin = "job.sh", .gpu = "h100-sxm-80gb", .world = world});
}

Plan plan_of(const std::string& more, std::int64_t world = 8) {
    const MegatronRun run = run_of(more, world);
    EXPECT_TRUE(run.plan.has_value()) << run.why;
    return run.plan.value_or(Plan{});
}

TEST(MegatronArgs, TextIsReadAsAShellWouldPassIt) {
    const MegatronArguments a =
        arguments_from_text("--bf16 --lr 1e-4 \\\n  --data-path \"a b\" c # why\n--swiglu --seed=3");
    EXPECT_EQ(a, (MegatronArguments{
                     {"bf16", "true"}, {"lr", "1e-4"}, {"data-path", "a b c"}, {"swiglu", "true"}, {"seed", "3"}}));
    EXPECT_THROW(arguments_from_text("num-layers 3"), UserError);
}

TEST(MegatronArgs, DefaultsAreMegatrons) {
    const Plan p = plan_of("");
    EXPECT_EQ(p.model.ffn_hidden_size, 2048);
    EXPECT_EQ(p.model.head_dim, 64);
    EXPECT_EQ(p.model.kv_heads, 8);
    EXPECT_EQ(p.model.vocab_size, 50304) << "GPT-2's 50257, padded to 128";
    EXPECT_TRUE(p.model.tied_embeddings);
    EXPECT_TRUE(p.model.bias);
    EXPECT_EQ(p.model.positions, Positions::learned);
    EXPECT_EQ(p.model.norm, Norm::layernorm);
    EXPECT_EQ(p.parallelism.data, 8);
    EXPECT_EQ(p.parallelism.zero_stage, 0);
    EXPECT_EQ(p.training.hidden_dropout, 0.1);
    EXPECT_EQ(p.training.fused_gradient_accumulation, true);
    EXPECT_EQ(p.training.attention, std::nullopt) << "left to the framework";
    EXPECT_EQ(p.training.gradient_type, std::nullopt) << "fp32 under --bf16";
}

TEST(MegatronArgs, ModelsAreSaidInFull) {
    const Plan p = plan_of(
        "--swiglu --group-query-attention --num-query-groups 2 --kv-channels 128 --normalization RMSNorm "
        "--position-embedding-type rope --rotary-percent 0.5 --untie-embeddings-and-output-weights "
        "--disable-bias-linear --qk-layernorm --tokenizer-type Llama2Tokenizer --tensor-model-parallel-size 2");
    EXPECT_EQ(p.model.ffn_hidden_size, 1344) << "int(4 x 512 x 2 / 3) in whole 64s";
    EXPECT_EQ(p.model.kv_heads, 2);
    EXPECT_EQ(p.model.head_dim, 128);
    EXPECT_EQ(p.model.rotary_dim, 64);
    EXPECT_EQ(p.model.vocab_size, 32000);
    EXPECT_FALSE(p.model.tied_embeddings);
    EXPECT_FALSE(p.model.bias);
    EXPECT_EQ(p.model.query_key_norm, QueryKeyNorm::shared);
    EXPECT_TRUE(check(p).empty());
}

TEST(MegatronArgs, ParallelismAndTraining) {
    const Plan p = plan_of(
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3 "
        "--sequence-parallel --use-distributed-optimizer --recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1 --cross-entropy-loss-fusion --attention-backend unfused --hidden-dropout 0 "
        "--no-gradient-accumulation-fusion --deterministic-mode --overlap-grad-reduce --overlap-param-gather");
    EXPECT_EQ(p.parallelism.virtual_pipeline, 2);
    EXPECT_EQ(p.parallelism.data, 2);
    EXPECT_TRUE(p.parallelism.sequence_parallel);
    EXPECT_EQ(p.parallelism.zero_stage, 1);
    EXPECT_EQ(p.parallelism.recompute.kind, Recompute::Kind::full);
    EXPECT_TRUE(p.parallelism.overlap.gradient_reduce);
    EXPECT_EQ(p.training.attention, AttentionKind::unfused);
    EXPECT_EQ(p.training.cross_entropy, CrossEntropy::native);
    EXPECT_EQ(p.training.hidden_dropout, 0.0);
    EXPECT_EQ(p.training.attention_dropout, 0.1);
    EXPECT_EQ(p.training.fused_gradient_accumulation, false);
    EXPECT_TRUE(p.training.software.deterministic);
    EXPECT_EQ(plan_of("--fp16").training.gradient_type, DType::fp16) << "collected in 16 bits unless told otherwise";
}

TEST(MegatronArgs, LayoutsAreWrittenOut) {
    const Plan p =
        plan_of("--num-layers 12 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3|(tt|)*4tL", 2);
    EXPECT_EQ(p.parallelism.virtual_pipeline, 3);
    EXPECT_EQ(p.parallelism.stage_layers, (std::vector<std::int64_t>{3, 2, 2, 2, 2, 1}));
    EXPECT_EQ(run_of("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*12|L").refused,
              "--pipeline-model-parallel-layout");
}

TEST(MegatronArgs, ExpertsAndLatents) {
    const Plan p = plan_of(
        "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1024 --expert-model-parallel-size 4 "
        "--moe-layer-freq ([0]*3+[1]*9) --moe-grouped-gemm --multi-latent-attention --q-lora-rank 96 "
        "--position-embedding-type rope");
    EXPECT_EQ(p.model.moe.experts, 8);
    EXPECT_EQ(p.model.moe.first_dense_layers, 3);
    EXPECT_EQ(p.parallelism.expert, 4);
    EXPECT_EQ(p.parallelism.expert_tensor, 1) << "as the tensor ranks";
    EXPECT_EQ(p.model.mla.kv_lora, 512);
    EXPECT_EQ(p.model.head_dim, 192);
    EXPECT_TRUE(p.training.software.gathers_tokens) << "the default dispatcher";
}

TEST(MegatronArgs, WhatAPlanCannotSayIsRefusedByName) {
    const std::pair<const char*, const char*> cases[] = {
        {"--optimizer muon", "Muon"},
        {"--hybrid-layer-pattern M-M*", "Mamba hybrid"},
        {"--perform-rl-step", "reinforcement learning"},
        {"--mtp-num-layers 1", "multi-token prediction"},
        {"--frobnicate 3", "--frobnicate"},
        {"--recompute-granularity selective --recompute-modules [mlp]", "--recompute-modules"},
        {"--pipeline-model-parallel-size 3", "world_size"},
    };
    for (const auto& [more, reason] : cases) {
        const MegatronRun run = run_of(more);
        EXPECT_FALSE(run.plan.has_value()) << more;
        EXPECT_EQ(run.refused, reason);
        EXPECT_FALSE(run.why.empty());
    }
    EXPECT_THROW(run_of("--num-layers many"), UserError);
    for (const char* more :
         {"--recompute-granularity bogus", "--recompute-granularity full --recompute-method bogus",
          "--fp8-format bogus", "--fp8-format hybrid --fp8-recipe bogus", "--normalization bogus",
          "--transformer-impl bogus", "--context-parallel-size 2 --cp-comm-type bogus", "--num-attention-heads 7"})
        EXPECT_THROW(run_of(more), UserError) << more;
    EXPECT_THROW(plan_from_megatron(arguments_from_text("--bf16"), {.origin = "", .gpu = "h100-sxm-80gb"}), UserError);
}

TEST(MegatronArgs, ImagesTellTheGpuAndItsAttention) {
    EXPECT_EQ(image_of("dev_dgx_gb200", true).attention, AttentionKind::flash2);
    EXPECT_EQ(image_of("dev_dgx_gb200", false).attention, std::nullopt);
    EXPECT_EQ(image_of("lts_dgxa100_dracooci", true).attention, AttentionKind::unfused);
    EXPECT_EQ(image_of("lts_dgx_a100", true).gpu, "a100-sxm-80gb");
    EXPECT_EQ(image_of("somewhere", true).gpu, "");
}

}  // namespace
}  // namespace foretrain
