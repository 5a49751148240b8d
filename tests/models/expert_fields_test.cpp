#include "models/expert_fields.h"

#include <gtest/gtest.h>

#include "models/model_file.h"
#include "models/parameters.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

const std::string sizes =
    R"("layers": 4, "hidden_size": 64, "attention_heads": 4, "vocab_size": 100, "gated_mlp": true)";

ModelSpec model(const std::string& more) {
    return model_from_json(Json::parse("{" + sizes + ", " + more + "}", "model.json"));
}
std::string field(const std::string& more) {
    return refusal([&] { model(more); }).field;
}

TEST(ExpertFields, AreReadWithTheirDefaults) {
    const ModelSpec m = model(R"("ffn_hidden_size": 96, "moe": {"experts": 8, "topk": 2, "moe_ffn": 32,
        "shared_experts": 2, "first_dense_layers": 1}, "mla": null)");
    EXPECT_EQ(m.moe, (MixtureOfExperts{
                         .experts = 8, .topk = 2, .ffn_hidden_size = 32, .shared_ffn = 64, .first_dense_layers = 1}));
    EXPECT_FALSE(m.is_latent());
    EXPECT_EQ(m.expert_layers(), 3);
    // One gate beside two shared experts of a stated width, and no layer without experts.
    const ModelSpec all = model(R"("ffn_hidden_size": null, "moe": {"experts": 8, "topk": 2, "moe_ffn": 32,
        "shared_experts": 1, "shared_ffn": 40, "shared_gate": true, "router_bias": true, "capacity_factor": 1.25,
        "pad_to_capacity": true})");
    EXPECT_EQ(all.moe.shared_ffn, 40);
    EXPECT_EQ(all.ffn_hidden_size, 0);
    EXPECT_EQ(all.moe.capacity_factor, 1.25);
    EXPECT_TRUE(all.moe.pad_to_capacity && all.moe.shared_gate && all.moe.router_bias);
}

TEST(ExpertFields, LatentAttentionSaysHowLargeAHeadIs) {
    const ModelSpec m = model(R"("mla": {"q_lora": null, "kv_lora": 24, "qk_nope": 16, "qk_rope": 8, "v_dim": 12})");
    EXPECT_EQ(m.mla, (LatentAttention{.kv_lora = 24, .q_lora = 0, .qk_nope = 16, .qk_rope = 8, .v_dim = 12}));
    EXPECT_EQ(m.head_dim, 24);
    EXPECT_EQ(m.attended_size(), 4 * 12);
    EXPECT_EQ(m.ffn_hidden_size, 256);
}

TEST(ExpertFields, AreWrittenAsTheyAreRead) {
    for (const char* more : {R"("moe": {"experts": 8, "topk": 2, "moe_ffn": 32})",
                             R"("ffn_hidden_size": 96, "moe": {"experts": 8, "topk": 2, "moe_ffn": 32, "every": 2,
                                "shared_ffn": 48, "shared_gate": true, "router_bias": true,
                                "capacity_factor": 1.5, "pad_to_capacity": true})",
                             R"("mla": {"q_lora": 40, "kv_lora": 24, "qk_nope": 16, "qk_rope": 8, "v_dim": 12})",
                             R"("mla": {"kv_lora": 24, "qk_nope": 16, "qk_rope": 8, "v_dim": 12},
                                "moe": {"experts": 8, "topk": 2, "moe_ffn": 32})",
                             R"("attention_sinks": true)"}) {
        const ModelSpec m = model(more);
        Json file = model_to_json(m).set("parameters", parameter_count(m));
        file.set("active_parameters", active_parameter_count(m));
        EXPECT_EQ(model_from_json(Json::parse(file.dump(), "written.json")), m) << more;
        file.set("active_parameters", active_parameter_count(m) + 1);
        EXPECT_EQ(refusal([&] { model_from_json(Json::parse(file.dump(), "written.json")); }).field,
                  "active_parameters");
    }
    EXPECT_FALSE(model_to_json(read_model("llama-3-8b")).has("moe"));
}

TEST(ExpertFields, WhatDoesNotFitTogetherIsRefused) {
    const std::string experts = R"("experts": 8, "topk": 2, "moe_ffn": 32)";
    const auto moe = [&](const std::string& more) { return field(R"("moe": {)" + experts + ", " + more + "}"); };
    EXPECT_EQ(field(R"("moe": {"experts": 8, "topk": 2})"), "moe");  // without its moe_ffn
    EXPECT_EQ(field(R"("moe": {"experts": 8, "topk": 9, "moe_ffn": 32})"), "moe.topk");
    EXPECT_EQ(field(R"("moe": 8)"), "moe");
    EXPECT_EQ(moe(R"("top_k": 2)"), "moe.top_k");
    EXPECT_EQ(moe(R"("shared_experts": 2, "shared_ffn": 0)"), "moe.shared_ffn");
    EXPECT_EQ(moe(R"("shared_gate": true)"), "moe.shared_gate");
    EXPECT_EQ(moe(R"("pad_to_capacity": true)"), "moe.pad_to_capacity");
    EXPECT_EQ(moe(R"("first_dense_layers": 1)"), "ffn_hidden_size");  // what is the dense layer's?
    EXPECT_EQ(field(R"("ffn_hidden_size": 96, "moe": {)" + experts + R"(, "first_dense_layers": 4})"), "moe");
    EXPECT_EQ(field(R"("ffn_hidden_size": 96, "moe": {)" + experts + R"(, "every": 5})"), "moe");
    EXPECT_EQ(field(R"("block": "parallel", "moe": {)" + experts + "}"), "moe");
    EXPECT_EQ(field(R"("mla": {"q_lora": null})"), "mla");  // without its kv_lora
    const std::string latent = R"("mla": {"kv_lora": 24, "qk_nope": 16, "qk_rope": 8, "v_dim": 12}, )";
    EXPECT_EQ(field(latent + R"("kv_heads": 2)"), "kv_heads");
    EXPECT_EQ(field(latent + R"("head_dim": 16)"), "head_dim");
    EXPECT_EQ(field(latent + R"("attention_bias": true)"), "mla");
    EXPECT_EQ(field(latent + R"("query_key_norm": "shared")"), "mla");
    EXPECT_EQ(field(latent + R"("positions": "alibi")"), "positions");
    EXPECT_EQ(field(R"("mla": {"kv_lora": 24, "qk_nope": 16, "qk_rope": 7, "v_dim": 12})"), "head_dim");
}

TEST(ExpertFields, SlipsDoNotOverflow) {
    EXPECT_EQ(field(R"("moe": {"experts": 65537, "topk": 2, "moe_ffn": 32})"), "moe.experts");
    EXPECT_EQ(field(R"("moe": {"experts": 8, "topk": 2, "moe_ffn": 67108864, "shared_experts": 65536})"),
              "moe.shared_experts");
    for (const char* more : {R"("moe": {"experts": 65536, "topk": 2, "moe_ffn": 67108864})",
                             R"("mla": {"kv_lora": 67108864, "q_lora": 67108864, "qk_nope": 1048576, "qk_rope": 2,
                                "v_dim": 1048576})"})
        EXPECT_EQ(refusal([&] {
                      model_from_json(Json::parse(R"({"layers": 4096, "hidden_size": 4096, "attention_heads": 4,
                          "vocab_size": 100, "gated_mlp": true, )" +
                                                      std::string(more) + "}",
                                                  "model.json"));
                  }).field,
                  "hidden_size");
}

}  // namespace
}  // namespace foretrain
