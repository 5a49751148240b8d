#include "models/model_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "models/parameters.h"

namespace foretrain {
namespace {

UserErrorText refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const UserError& e) {
        return e.text();
    }
    ADD_FAILURE() << "not refused";
    return {};
}

ModelSpec model(std::string_view text) { return model_from_json(Json::parse(text, "model.json")); }

// GPT-2: V h + P h + L (4 h h + 4 h + 2 h f + f + h + 4 h) + 2 h, written out as its authors count.
std::int64_t gpt2_count(std::int64_t layers, std::int64_t h, std::int64_t vocab, std::int64_t positions) {
    const std::int64_t f = 4 * h;
    const std::int64_t attention = h * 3 * h + 3 * h + h * h + h;
    const std::int64_t mlp = h * f + f + f * h + h;
    return vocab * h + positions * h + layers * (attention + mlp + 4 * h) + 2 * h;
}

// Llama: 2 V h + L (q and o: 2 h a d; k and v: 2 h g d; three of h f; two norms) + h.
std::int64_t llama_count(std::int64_t layers, std::int64_t h, std::int64_t kv, std::int64_t f, std::int64_t vocab) {
    return 2 * vocab * h + layers * (2 * h * h + 2 * h * kv + 3 * h * f + 2 * h) + h;
}

TEST(ModelFile, PresetsHaveTheirPublishedParameterCounts) {
    const std::map<std::string, std::int64_t> published{{"gpt2", 124'439'808},
                                                        {"gpt2-medium", 354'823'168},
                                                        {"gpt2-large", 774'030'080},
                                                        {"gpt2-xl", 1'557'611'200},
                                                        {"llama-2-7b", 6'738'415'616},
                                                        {"llama-2-70b", 68'976'648'192},
                                                        {"llama-3-8b", 8'030'261'248},
                                                        {"llama-3-70b", 70'553'706'496},
                                                        {"llama-3.1-8b", 8'030'261'248},
                                                        {"llama-3.1-70b", 70'553'706'496},
                                                        {"llama-3.1-405b", 405'853'388'800}};
    for (const auto& [name, count] : published) EXPECT_EQ(parameter_count(read_model(name)), count) << name;
}

TEST(ModelFile, AParameterCountIsHeldAgainstTheSizes) {
    Json file = model_to_json(read_model("gpt2")).set("parameters", std::int64_t{124'439'808});
    EXPECT_EQ(model(file.dump()), read_model("gpt2"));
    const UserErrorText wrong = refusal([&] { model(file.set("layers", 13).dump()); });
    EXPECT_EQ(wrong.field, "parameters");
    EXPECT_EQ(wrong.suggestion, std::to_string(gpt2_count(13, 768, 50257, 1024)));
}

TEST(ModelFile, AConfigWithoutItsModelTypeIsToldSo) {
    for (const char* config : {R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096})",
                               R"({"num_hidden_layers": 32, "hidden_size": 4096})", R"({"n_layer": 12})"}) {
        const UserErrorText no = refusal([&] { model(config); });
        EXPECT_EQ(no.found.rfind("no model_type", 0), 0u) << no.found;
        EXPECT_EQ(no.file, "model.json");
    }
}

TEST(ModelFile, PresetsAgreeWithFormulasByHand) {
    EXPECT_EQ(parameter_count(read_model("gpt2")), gpt2_count(12, 768, 50257, 1024));
    EXPECT_EQ(parameter_count(read_model("gpt3-175b")), gpt2_count(96, 12288, 50257, 2048));
    EXPECT_EQ(parameter_count(read_model("gpt-mini")), gpt2_count(4, 128, 1024, 256));
    EXPECT_EQ(parameter_count(read_model("llama-mini")), llama_count(4, 128, 64, 352, 1024));
    EXPECT_EQ(parameter_count(read_model("llama-3.1-405b")), llama_count(126, 16384, 1024, 53248, 128256));
}

TEST(ModelFile, EveryPresetIsNamedAfterItsFileAndReadsBackEqual) {
    EXPECT_EQ(model_preset_names().size(), 14u);
    for (const std::string& name : model_preset_names()) {
        const ModelSpec m = read_model(name);
        EXPECT_EQ(m.name, name);
        EXPECT_EQ(model(model_to_json(m).dump()), m) << name;
        EXPECT_EQ(m.head_dim * m.attention_heads, m.hidden_size) << name;
    }
}

TEST(ModelFile, FillsInWhatIsLeftOut) {
    const ModelSpec gpt =
        model(R"({"layers": 2, "hidden_size": 64, "attention_heads": 4, "vocab_size": 100, "moe": null})");
    EXPECT_EQ(gpt.name, "model");
    EXPECT_EQ(gpt.kv_heads, 4);
    EXPECT_EQ(gpt.head_dim, 16);
    EXPECT_EQ(gpt.ffn_hidden_size, 256);
    EXPECT_EQ(gpt.positions, Positions::learned);
    EXPECT_EQ(gpt.max_positions, 1024);
    EXPECT_TRUE(gpt.bias && gpt.tied_embeddings);
    const ModelSpec llama = model(
        R"({"name": "x", "layers": 2, "hidden_size": 96, "attention_heads": 4, "head_dim": 32, "vocab_size": 100, "gated_mlp": true})");
    EXPECT_EQ(llama.positions, Positions::rope);
    EXPECT_EQ(llama.norm, Norm::rmsnorm);
    EXPECT_EQ(llama.activation, Activation::silu);
    EXPECT_FALSE(llama.bias || llama.tied_embeddings);
    EXPECT_EQ(llama.query_size(), 128);
}

TEST(ModelFile, ReadsAndWritesWhatFewModelsHave) {
    const ModelSpec m = model(R"({"name": "rare", "layers": 4, "hidden_size": 64, "attention_heads": 4,
        "vocab_size": 100, "bias": false, "attention_bias": true, "projection_bias": true, "mlp_bias": true,
        "tied_embeddings": false, "head_bias": true, "norm_bias": false, "block": "parallel_shared_norm",
        "query_key_norm": "per_head", "embedding_norm": true, "positions": "rope", "rotary_dim": 8,
        "position_offset": 2, "sliding_window": {"size": 32, "full_every": 3}, "activation": "squared_relu",
        "elementwise_scaling": true, "note": "of no use"})");
    EXPECT_EQ(m.block, Block::parallel_shared_norm);
    EXPECT_EQ(m.query_key_norm, QueryKeyNorm::per_head);
    EXPECT_EQ(m.activation, Activation::squared_relu);
    EXPECT_TRUE(m.qkv_biased() && m.projection_biased() && m.mlp_biased() && m.head_bias && !m.norm_biased());
    EXPECT_EQ(model(model_to_json(m).dump()), m);
    EXPECT_EQ(model_to_json(read_model("llama-3-8b")).get("block").is_null(), true);  // the usual is left out
    for (std::int64_t layer : {0, 1, 3}) EXPECT_EQ(m.window_of(layer, 100), 32);
    EXPECT_EQ(m.window_of(2, 100), 0);
    EXPECT_EQ(m.window_of(0, 32), 0);
}

TEST(ModelFile, RefusesWhatItCannotPlan) {
    const std::string base = R"("layers": 2, "hidden_size": 64, "attention_heads": 4, "vocab_size": 100)";
    const auto field = [&](const std::string& more) {
        return refusal([&] { model("{" + base + ", " + more + "}"); }).field;
    };
    EXPECT_EQ(field(R"("moe": {"experts": 8})"), "moe");
    EXPECT_EQ(field(R"("mla": {})"), "mla");
    EXPECT_EQ(field(R"("sliding_window": {"every": 2})"), "sliding_window.every");
    EXPECT_EQ(field(R"("sliding_window": {"size": 0})"), "sliding_window.size");
    EXPECT_EQ(field(R"("sliding_window": 4096)"), "sliding_window");
    EXPECT_EQ(field(R"("positions": "rop")"), "positions");
    EXPECT_EQ(field(R"("kv_head": 2)"), "kv_head");
    EXPECT_EQ(field(R"("kv_heads": 3)"), "kv_heads");
    EXPECT_EQ(field(R"("kv_heads": 8)"), "kv_heads");
    EXPECT_EQ(field(R"("kv_heads": 0)"), "kv_heads");
    EXPECT_EQ(field(R"("ffn_hidden_size": -1)"), "ffn_hidden_size");
    EXPECT_EQ(field(R"("activation": "tanh")"), "activation");
    EXPECT_EQ(field(R"("block": "serial")"), "block");
    EXPECT_EQ(field(R"("query_key_norm": "all")"), "query_key_norm");
    EXPECT_EQ(field(R"("rotary_dim": 3)"), "rotary_dim");
    EXPECT_EQ(field(R"("rotary_dim": 18)"), "rotary_dim");
    EXPECT_EQ(field(R"("head_bias": true)"), "head_bias");    // the head is tied
    EXPECT_EQ(field(R"("post_norms": true)"), "post_norms");  // of biased layers
    EXPECT_EQ(field(R"("bias": false, "post_norms": true, "block": "parallel")"), "post_norms");
    EXPECT_EQ(field(R"("gated_mlp": true, "head_dim": 15)"), "head_dim");
    EXPECT_EQ(field(R"("norm_epsilon": 0)"), "norm_epsilon");
    EXPECT_EQ(field(R"("head_dim": 1.5)"), "head_dim");
    EXPECT_EQ(field(R"("format": "foretrain.plan/1")"), "format");
}

TEST(ModelFile, RefusesSizesThatCannotBe) {
    const auto sized = [](const std::string& layers, const std::string& hidden, const std::string& heads) {
        return refusal([&] {
            model(R"({"layers": )" + layers + R"(, "hidden_size": )" + hidden + R"(, "attention_heads": )" + heads +
                  R"(, "vocab_size": 1000})");
        });
    };
    sized("0", "64", "4");
    sized("1000000000000000000", "64", "4");
    sized("2", "1000000000000000000", "4");
    EXPECT_EQ(sized("2", "64", "5").field, "attention_heads");
    EXPECT_EQ(sized("65536", "67108864", "4").field, "hidden_size");  // each fits, their product does not
    refusal([] { model(R"({"layers": 2, "hidden_size": 64, "attention_heads": 4})"); });
    refusal([] { model("[]"); });
    refusal([] { model("null"); });
    refusal([] { model("{}"); });
    refusal([] { model("{\"name\": \"llama\"}"); });
    EXPECT_EQ(refusal([] { model(R"({"layer": 2, "hidden_size": 64})"); }).suggestion, "layers");
}

TEST(ModelFile, AnswersAMisspeltPreset) {
    EXPECT_EQ(refusal([] { read_model("lama-3-8b"); }).suggestion, "llama-3-8b");
    EXPECT_EQ(refusal([] { model("\"gpt3\""); }).file, "model.json");
    refusal([] { read_model(""); });
    refusal([] { read_model(std::string(1 << 20, 'x')); });
    EXPECT_EQ(refusal([] { read_model("no/such/config.json"); }).file, "no/such/config.json");
}

}  // namespace
}  // namespace foretrain
