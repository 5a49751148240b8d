#include "models/model_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/parameters.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

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

// As the hub states them for the files that the presets name.
TEST(ModelFile, PresetsHaveTheirPublishedParameterCounts) {
    const std::pair<const char*, std::int64_t> published[] = {
        {"gpt2", 124'439'808},
        {"gpt2-medium", 354'823'168},
        {"gpt2-large", 774'030'080},
        {"gpt2-xl", 1'557'611'200},
        {"opt-125m", 125'239'296},
        {"opt-1.3b", 1'315'758'080},
        {"opt-2.7b", 2'651'596'800},
        {"opt-6.7b", 6'658'473'984},
        {"opt-13b", 12'853'473'280},
        {"opt-30b", 29'974'540'288},
        {"opt-66b", 65'719'701'504},
        {"bloom-560m", 559'214'592},
        {"bloom-1b1", 1'065'314'304},
        {"bloom-1b7", 1'722'408'960},
        {"bloom-3b", 3'002'557'440},
        {"bloom-7b1", 7'069'016'064},
        {"bloom-176b", 176'247'271'424},
        {"llama-7b", 6'738'415'616},
        {"llama-13b", 13'015'864'320},
        {"llama-30b", 32'528'943'616},
        {"llama-65b", 65'285'660'672},
        {"llama-2-7b", 6'738'415'616},
        {"llama-2-13b", 13'015'864'320},
        {"llama-2-70b", 68'976'648'192},
        {"llama-3-8b", 8'030'261'248},
        {"llama-3-70b", 70'553'706'496},
        {"llama-3.1-8b", 8'030'261'248},
        {"llama-3.1-70b", 70'553'706'496},
        {"llama-3.1-405b", 405'853'388'800},
        {"llama-3.2-1b", 1'235'814'400},
        {"llama-3.2-3b", 3'212'749'824},
        {"llama-3.3-70b", 70'553'706'496},
        {"mistral-7b", 7'241'732'096},
        {"mistral-7b-v0.3", 7'248'023'552},
        {"mistral-nemo-12b", 12'247'782'400},
        {"mistral-small-22b", 22'247'282'688},
        {"mistral-small-24b", 23'572'403'200},
        {"mistral-large-123b", 122'610'069'504},
        {"qwen2.5-0.5b", 494'032'768},
        {"qwen2.5-1.5b", 1'543'714'304},
        {"qwen2.5-3b", 3'085'938'688},
        {"qwen2.5-7b", 7'615'616'512},
        {"qwen2.5-14b", 14'770'033'664},
        {"qwen2.5-32b", 32'763'876'352},
        {"qwen2.5-72b", 72'706'203'648},
        {"qwen3-0.6b", 596'049'920},
        {"qwen3-1.7b", 1'720'574'976},
        {"qwen3-4b", 4'022'468'096},
        {"qwen3-8b", 8'190'735'360},
        {"qwen3-14b", 14'768'307'200},
        {"qwen3-32b", 32'762'123'264},
        {"gemma-2b", 2'506'172'416},
        {"gemma-7b", 8'537'680'896},
        {"gemma-2-2b", 2'614'341'888},
        {"gemma-2-9b", 9'241'705'984},
        {"gemma-2-27b", 27'227'128'320},
        {"gemma-3-1b", 999'885'952},
        {"gemma-3-4b", 3'880'263'168},
        {"gemma-3-12b", 11'766'034'176},
        {"gemma-3-27b", 27'009'346'304},
        {"phi-1", 1'418'270'720},
        {"phi-1.5", 1'418'270'720},
        {"phi-2", 2'779'683'840},
        {"phi-3-mini", 3'821'079'552},
        {"phi-3-medium", 13'960'238'080},
        {"phi-4", 14'659'507'200},
        {"phi-4-mini", 3'836'021'760},
        {"gpt-neox-20b", 20'554'567'680},
        {"gpt-j-6b", 6'050'882'784},
        {"falcon-7b", 6'921'720'704},
        {"falcon-40b", 41'303'293'952},
        {"mpt-7b", 6'649'286'656},
        {"command-r-35b", 34'980'831'232},
    };
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
    EXPECT_EQ(parameter_count(read_model("gpt3-13b")), gpt2_count(40, 5120, 50257, 2048));
    EXPECT_EQ(parameter_count(read_model("gpt3-175b")), gpt2_count(96, 12288, 50257, 2048));
    EXPECT_EQ(parameter_count(read_model("megatron-1t")), gpt2_count(128, 25600, 51200, 2048));
    EXPECT_EQ(parameter_count(read_model("gpt-mini")), gpt2_count(4, 128, 1024, 256));
    EXPECT_EQ(parameter_count(read_model("llama-mini")), llama_count(4, 128, 64, 352, 1024));
    EXPECT_EQ(parameter_count(read_model("llama-3.1-405b")), llama_count(126, 16384, 1024, 53248, 128256));
    // OPT's table has two rows more; BLOOM has no table but a norm behind the embedding.
    EXPECT_EQ(parameter_count(read_model("opt-175b")), gpt2_count(96, 12288, 50272, 2050));
    EXPECT_EQ(parameter_count(read_model("bloom-7b1")), gpt2_count(30, 4096, 250880, 2));
    // A GPT-2 whose head is its own, padded to 50304, without positions, biases and norms.
    EXPECT_EQ(parameter_count(model(R"({"layers": 12, "hidden_size": 768, "attention_heads": 12, "vocab_size": 50304,
                  "tied_embeddings": false, "positions": "none", "norm": "rmsnorm", "bias": false})")),
              162'201'600 + 25 * 768);
}

// In thousands of millions, within what a table's last digit or a name leaves open.
TEST(ModelFile, PresetsAreAsLargeAsTheirNamesSay) {
    const std::pair<const char*, double> sizes[] = {
        {"gpt3-125m", 0.125}, {"gpt3-350m", 0.35},    {"gpt3-760m", 0.76},    {"gpt3-1.3b", 1.3},
        {"gpt3-2.7b", 2.7},   {"gpt3-6.7b", 6.7},     {"gpt3-13b", 13},       {"gpt3-175b", 175},
        {"megatron-22b", 22}, {"megatron-175b", 175}, {"megatron-530b", 530}, {"megatron-1t", 1000},
        {"falcon-180b", 180}, {"mpt-30b", 30},        {"opt-175b", 175}};
    for (const auto& [name, billions] : sizes)
        EXPECT_NEAR(static_cast<double>(parameter_count(read_model(name))) / 1e9 / billions, 1, 0.02) << name;
}

TEST(ModelFile, EveryPresetIsNamedAfterItsFileAndReadsBackEqual) {
    EXPECT_GE(model_preset_names().size(), 105u);
    for (const std::string& name : model_preset_names()) {
        const ModelSpec m = read_model(name);
        EXPECT_EQ(m.name, name);
        EXPECT_EQ(model(model_to_json(m).dump()), m) << name;
        // Not so of Gemma, Qwen 3, Mistral's later models and gpt-oss; of latent attention by design.
        const bool free = m.is_latent() || name.starts_with("gpt-oss") || name.starts_with("gemma") ||
                          name.starts_with("qwen3") || name.starts_with("mistral");
        if (!free) {
            EXPECT_EQ(m.head_dim * m.attention_heads, m.hidden_size) << name;
        }
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
    EXPECT_EQ(sized("4097", "64", "4").field, "layers");
    EXPECT_EQ(sized("4096", "67108864", "4").field, "hidden_size");  // each fits, their product does not
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
