#include "sim/flops.h"

#include <gtest/gtest.h>

#include "models/model_file.h"

namespace foretrain {
namespace {

// 72 L h^2 s (1 + s/6h + V/12hL) of Megatron-LM (arXiv:2104.04473), with attention in full.
TEST(ModelFlops, AreMegatronsForAGpt) {
    const ModelSpec m = read_model("gpt3-175b");
    const double L = 96, h = 12288, s = 2048, v = 50257;
    const ModelFlops f = model_flops(m, s, s);
    EXPECT_NEAR(f.full / (72 * L * h * h * s * (1 + s / (6 * h) + v / (12 * h * L))), 1, 1e-12);
    EXPECT_NEAR((f.full - f.causal) / (72 * L * h * h * s * s / (12 * h)), 1, 1e-12);
}

// A block's shape, its norms and its biases multiply no matrices.
TEST(ModelFlops, CountMatricesOnly) {
    ModelSpec m = read_model("llama-3-8b");
    const ModelFlops before = model_flops(m, 8192, 8192);
    m.block = Block::parallel_shared_norm;
    m.query_key_norm = QueryKeyNorm::per_head;
    m.bias = m.head_bias = m.embedding_norm = true;
    m.rotary_dim = 64;
    EXPECT_EQ(model_flops(m, 8192, 8192).full, before.full);
    EXPECT_EQ(model_flops(m, 8192, 8192).causal, before.causal);
}

TEST(ModelFlops, DroppedTokensComputeNothing) {
    ModelSpec m = read_model("mixtral-8x7b");
    const double all = model_flops(m, 1000, 4096).full;
    m.moe.capacity_factor = 2;
    EXPECT_DOUBLE_EQ(model_flops(m, 1000, 4096).full, all) << "what pads is no work of the model";
    m.moe.capacity_factor = 0.25;
    const double experts = 6.0 * 1000 * 32 * 2 * 3 * 4096 * 14336;  // layers, topk, matrices of hidden x ffn
    EXPECT_NEAR(all - model_flops(m, 1000, 4096).full, 0.75 * experts, 1e-6 * experts);
}

TEST(ModelFlops, AWindowCountsItsPairs) {
    ModelSpec m = read_model("llama-3-8b");  // 32 layers, 32 heads of 128
    const double s = 8192, w = 2048, pair = 6 * 2 * 4096;
    const ModelFlops whole = model_flops(m, s, s);
    m.sliding_window = {2048, 0};
    const ModelFlops all = model_flops(m, s, s);
    EXPECT_NEAR((whole.full - all.full) / (32 * s * (s - w) * pair), 1, 1e-12);
    EXPECT_NEAR((whole.causal - all.causal) / (32 * s * (s / 2 - (w - w * w / (2 * s))) * pair), 1, 1e-12);
    m.sliding_window.full_every = 6;  // layers 6, 12, 18, 24 and 30 are full
    EXPECT_NEAR((whole.full - model_flops(m, s, s).full) / (27 * s * (s - w) * pair), 1, 1e-12);
    m.sliding_window.size = 8192;
    EXPECT_EQ(model_flops(m, s, s).causal, whole.causal);
}

}  // namespace
}  // namespace foretrain
