#include <gtest/gtest.h>

#include "models/model_file.h"
#include "models/parameters.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

ModelSpec read(const std::string& text) { return model_from_json(Json::parse(text, "config.json")); }

struct Counted {
    const char* model;
    std::int64_t total, active;
};

// Totals as the hub states them. Active ones by hand: with both tables of the vocabulary, of which some authors
// count one (DeepSeek, gpt-oss: 5.13 B beside the 0.58 B of an embedding).
TEST(MoeTypes, PresetsHaveTheirPublishedCounts) {
    const Counted published[] = {
        {"mixtral-8x7b", 46'702'792'704, 12'879'925'248},
        {"mixtral-8x22b", 140'620'634'112, 39'152'031'744},
        {"qwen3-30b-a3b", 30'532'122'624, 3'353'032'704},
        {"qwen3-235b-a22b", 235'093'634'560, 22'190'763'520},
        {"qwen1.5-moe-a2.7b", 14'315'784'192, 2'689'173'504},
        {"deepseek-v2", 235'741'434'880, 21'375'800'320},
        {"deepseek-v2-lite", 15'706'484'224, 2'661'150'208},
        {"deepseek-v3", 671'026'404'352, 37'552'282'624},
        {"moonlight-16b-a3b", 15'960'108'544, 2'914'774'528},
        {"kimi-k2", 1'026'408'209'408, 32'861'477'888},
        {"gpt-oss-20b", 20'914'757'184, 4'187'440'704},
        {"gpt-oss-120b", 116'829'156'672, 5'711'982'912},
        {"llama-4-scout", 107'769'861'120, 17'172'894'720},
        {"llama-4-maverick", 400'711'848'960, 17'184'691'200},
        {"dbrx", 131'596'523'520, 36'469'708'800},
    };
    for (const Counted& c : published) {
        const ModelSpec m = read_model(c.model);
        EXPECT_EQ(parameter_count(m), c.total) << c.model;
        EXPECT_EQ(active_parameter_count(m), c.active) << c.model;
    }
}

// Files as published, without the keys that change nothing: what they give beside the presets.
TEST(MoeTypes, CountsWhatIsPublishedForEachType) {
    const std::pair<const char*, Counted> published[] = {
        {R"({"model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
             "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64,
             "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
             "vocab_size": 102400})",
         {"DeepSeek-MoE 16B", 16'375'728'128, 2'828'650'496}},
        {R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16,
             "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 64, "num_experts_per_tok": 8,
             "clip_qkv": null, "vocab_size": 50304})",
         {"OLMoE-1B-7B", 6'919'161'856, 1'282'017'280}},
        {R"({"model_type": "phimoe", "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 16, "num_experts_per_tok": 2,
             "attention_bias": true, "lm_head_bias": true, "sliding_window": 131072, "vocab_size": 32064})",
         {"Phi-3.5-MoE", 41'873'153'344, 6'640'999'744}},
        {R"({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408,
             "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
             "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
             "attention_bias": true, "use_qk_norm": false, "partial_rotary_factor": 0.5,
             "num_nextn_predict_layers": 1, "vocab_size": 151552})",
         {"GLM-4.5-Air", 106'852'245'504, 13'424'123'904}},
        {R"({"model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
             "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
             "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
             "attention_bias": true, "use_qk_norm": true, "partial_rotary_factor": 0.5, "vocab_size": 151552})",
         {"GLM-4.5", 352'797'814'784, 33'632'251'904}},
        {R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
             "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
             "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4,
                            "ffn_act_fn": {"name": "silu"}}, "vocab_size": 100352})",
         {"DBRX", 131'596'523'520, 36'469'708'800}},
    };
    for (const auto& [text, counted] : published) {
        EXPECT_EQ(parameter_count(read(text)), counted.total) << counted.model;
        EXPECT_EQ(active_parameter_count(read(text)), counted.active) << counted.model;
    }
}

const std::string sizes = R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100})";
ModelSpec small(const std::string& head) { return read(head + ", " + sizes); }
UserErrorText refused(const std::string& head) {
    return refusal([&] { small(head); });
}

TEST(MoeTypes, MixtralAsPublishedIsThePreset) {
    ModelSpec m = read(R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
        "vocab_size": 32000})");
    m.name = "mixtral-8x7b";
    EXPECT_EQ(m, read_model("mixtral-8x7b"));
}

TEST(MoeTypes, QwenNamesLayersWithoutExperts) {
    const std::string qwen = R"({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32)";
    EXPECT_EQ(small(qwen).expert_layers(), 6);
    EXPECT_EQ(small(qwen).ffn_hidden_size, 0);
    const ModelSpec mixed = small(qwen + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [0, 1])");
    EXPECT_EQ(mixed.expert_layers(), 2);
    EXPECT_EQ(mixed.ffn_hidden_size, 96);
    for (const std::int64_t layer : {0, 1, 2, 4}) EXPECT_FALSE(mixed.has_experts(layer)) << layer;
    for (const std::int64_t layer : {3, 5}) EXPECT_TRUE(mixed.has_experts(layer)) << layer;
    EXPECT_EQ(refused(qwen + R"(, "mlp_only_layers": [2])").field, "mlp_only_layers");
    EXPECT_EQ(refused(qwen + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [0])").field, "mlp_only_layers");
    EXPECT_EQ(refused(qwen + R"(, "top_k_experts": 2)").field, "top_k_experts");
    EXPECT_TRUE(small(R"({"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 40)")
                    .moe.shared_gate);
}

TEST(MoeTypes, DeepSeekProjectsQueriesDirectlyWhereItsRankIsNull) {
    const std::string experts = R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "n_shared_experts": 2, "first_k_dense_replace": 1, )";
    const std::string latents = R"("kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 12)";
    const ModelSpec v2 = small(R"({"model_type": "deepseek_v2", "q_lora_rank": null, )" + experts + latents);
    EXPECT_EQ(v2.mla, (LatentAttention{.kv_lora = 24, .q_lora = 0, .qk_nope = 16, .qk_rope = 8, .v_dim = 12}));
    EXPECT_EQ(v2.moe.shared_ffn, 64);
    EXPECT_EQ(v2.head_dim, 24);
    const ModelSpec v3 = small(R"({"model_type": "deepseek_v3", "q_lora_rank": 40, "head_dim": 8, )" + experts +
                               latents + R"(, "num_nextn_predict_layers": 1)");
    EXPECT_EQ(v3.mla.q_lora, 40);
    EXPECT_NE(v3.note.find("1 more layer(s) of multi-token prediction are not planned"), std::string::npos) << v3.note;
    const ModelSpec ordinary = small(R"({"model_type": "deepseek_v2", "use_mla": false, )" + experts +
                                     R"("kv_lora_rank": null, "q_lora_rank": null)");
    EXPECT_FALSE(ordinary.is_latent());
    EXPECT_EQ(ordinary.head_dim, 16);
    EXPECT_EQ(
        refused(R"({"model_type": "deepseek_v3", "q_lora_rank": 40, "moe_layer_freq": 2, )" + experts + latents).field,
        "moe_layer_freq");
    EXPECT_EQ(
        refused(R"({"model_type": "deepseek_v3", "q_lora_rank": 40, "attention_bias": true, )" + experts + latents)
            .field,
        "attention_bias");
    EXPECT_FALSE(small(R"({"model_type": "deepseek_v3", "first_k_dense_replace": 6, "n_routed_experts": 8, )" + latents)
                     .has_experts());
}

TEST(MoeTypes, GptOssHasSinksAndAWindowOnEverySecondLayer) {
    const ModelSpec m = small(R"({"model_type": "gpt_oss", "num_local_experts": 8, "experts_per_token": 2,
        "num_experts_per_tok": 2, "sliding_window": 128)");
    EXPECT_TRUE(m.attention_sinks && m.moe.router_bias && m.mlp_biased() && m.projection_biased());
    EXPECT_EQ(m.sliding_window, (SlidingWindow{128, 2}));
}

TEST(MoeTypes, Llama4PutsExpertsOnEachNthLayer) {
    const std::string experts = R"({"model_type": "llama4_text", "num_local_experts": 8, "num_experts_per_tok": 1,
        "intermediate_size_mlp": 128, "interleave_moe_layer_step": )";
    const ModelSpec scout = small(experts + "1"), maverick = small(experts + "2");
    EXPECT_EQ(scout.ffn_hidden_size, 0);
    EXPECT_EQ(scout.moe.ffn_hidden_size, 96);
    EXPECT_EQ(scout.moe.shared_ffn, 96);
    EXPECT_EQ(maverick.ffn_hidden_size, 128);
    EXPECT_TRUE(maverick.has_experts(1) && !maverick.has_experts(0));
    EXPECT_EQ(scout.sliding_window, (SlidingWindow{8192, 4}));
    EXPECT_EQ(small(experts + R"(1, "attention_chunk_size": null)").sliding_window, SlidingWindow{});
}

TEST(MoeTypes, OtherFamilies) {
    const ModelSpec granite = small(R"({"model_type": "granitemoeshared", "num_local_experts": 8,
        "num_experts_per_tok": 2, "shared_intermediate_size": 40, "logits_scaling": 6)");
    EXPECT_EQ(granite.moe, (MixtureOfExperts{.experts = 8, .topk = 2, .ffn_hidden_size = 96, .shared_ffn = 40}));
    EXPECT_TRUE(granite.elementwise_scaling);
    const ModelSpec minicpm = small(R"({"model_type": "minicpm3", "q_lora_rank": 40, "kv_lora_rank": 24,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8)");
    EXPECT_EQ(minicpm.mla.v_dim, 16);  // an even share of the hidden size
    EXPECT_FALSE(minicpm.has_experts());
    EXPECT_TRUE(minicpm.tied_embeddings);
    EXPECT_EQ(refused(R"({"model_type": "mixtral", "num_local_experts": 100000, "num_experts_per_tok": 2)").field,
              "num_local_experts");
    EXPECT_EQ(refused(R"({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9)").field,
              "moe.topk");
}

}  // namespace
}  // namespace foretrain
