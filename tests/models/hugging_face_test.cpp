#include "models/hugging_face.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "base/error.h"
#include "models/model_file.h"
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

const char* const llama_config = R"({
  "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.31.0",
  "use_cache": true, "vocab_size": 32000})";

const char* const gpt2_config = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_type": "cls_index",
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})";

ModelSpec changed(const char* config, const char* key, const Json& value) {
    return model_from_json(Json::parse(Json::parse(config, "f").set(key, value).dump(), "some-model/config.json"));
}

TEST(HuggingFace, ReadsLlamaLikeThePreset) {
    ModelSpec m = model_from_hugging_face(Json::parse(llama_config, "config.json"));
    EXPECT_EQ(m.name, "Llama-2-7b-hf");
    m.name = "llama-2-7b";
    EXPECT_EQ(m, read_model("llama-2-7b"));
}

TEST(HuggingFace, ReadsGpt2LikeThePreset) {
    ModelSpec m = model_from_hugging_face(Json::parse(gpt2_config, "gpt2/config.json"));
    EXPECT_EQ(m, read_model("gpt2"));  // named after its folder
}

TEST(HuggingFace, NullAndLeftOutTakeTheDefaults) {
    EXPECT_EQ(changed(llama_config, "num_key_value_heads", Json()).kv_heads, 32);
    EXPECT_EQ(changed(llama_config, "num_key_value_heads", Json(8)).kv_heads, 8);
    EXPECT_EQ(changed(llama_config, "head_dim", Json()).head_dim, 128);
    EXPECT_EQ(changed(llama_config, "head_dim", Json(64)).head_dim, 64);
    EXPECT_EQ(changed(llama_config, "rope_theta", Json(5e5)).rope_theta, 5e5);
    EXPECT_EQ(changed(gpt2_config, "n_inner", Json()).ffn_hidden_size, 3072);
    EXPECT_EQ(changed(gpt2_config, "n_inner", Json(100)).ffn_hidden_size, 100);
    EXPECT_TRUE(changed(gpt2_config, "n_inner", Json()).tied_embeddings);
    EXPECT_FALSE(changed(gpt2_config, "tie_word_embeddings", Json(false)).tied_embeddings);
    EXPECT_FALSE(changed(llama_config, "tie_word_embeddings", Json()).tied_embeddings);
    EXPECT_TRUE(changed(llama_config, "tie_word_embeddings", Json(true)).tied_embeddings);
}

TEST(HuggingFace, RefusesWhatItCannotSay) {
    EXPECT_EQ(refusal([] { changed(llama_config, "attention_bias", Json(true)); }).field, "attention_bias");
    EXPECT_EQ(refusal([] { changed(llama_config, "mlp_bias", Json(true)); }).field, "mlp_bias");
    EXPECT_EQ(refusal([] { changed(llama_config, "hidden_act", Json("relu")); }).field, "hidden_act");
    EXPECT_EQ(refusal([] { changed(llama_config, "quantization_config", Json::object()); }).field,
              "quantization_config");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_hidden_layer", Json(3)); }).suggestion, "num_hidden_layers");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_attention_heads", Json(33)); }).field, "num_attention_heads");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_key_value_heads", Json(5)); }).field, "kv_heads");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "activation_function", Json("relu")); }).field, "activation_function");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "add_cross_attention", Json(true)); }).field, "add_cross_attention");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "n_layer", Json(0)); }).field, "n_layer");
    EXPECT_NE(refusal([] { changed(gpt2_config, "model_type", Json("mixtral")); }).found.find("mixtral"),
              std::string::npos);
}

// Each published file that users keep, with a count worked out by hand: see model_file_test.cpp.
TEST(HuggingFace, ReadsPublishedFiles) {
    const char* reference = std::getenv("FORETRAIN_REFERENCE");
    if (reference == nullptr) GTEST_SKIP() << "FORETRAIN_REFERENCE is not set: the published files are not here";
    const std::map<std::string, std::int64_t> expected{
        {"HPMLL_llm-benchmark__models__Llama-2-7b-hf__config.json", 6'738'415'616},
        {"meta-llama--Meta-Llama-3.1-405B_config.json", 405'853'388'800},
        {"meta-llama--Meta-Llama-3.1-70B_config.json", 70'553'706'496},
        {"meta-llama--Meta-Llama-3.1-8B_config.json", 8'030'261'248},
        {"70B_config_llama3__config.json", 70'553'706'496},
        {"7B_config_llama2__config.json", 6'738'415'616},
        {"8B_config_llama3.1__config.json", 8'030'261'248},
        {"8B_config_llama3__config.json", 8'030'261'248},
        {"DAFNet__models__gpt2-xl__config.json", 1'557'611'200},
        {"testdata__llama3.json", 70'553'706'496},
        {"testdata__llama3_1.json", 70'553'706'496},
        // tied: 128256 * 3072 + 28 (2 * 3072 * 3072 + 2 * 3072 * 1024 + 3 * 3072 * 8192 + 2 * 3072) + 3072
        {"testdata__llama3_2_3b.json", 3'212'749'824},
        // a reward model, planned as the language model that it was trained from
        {"testdata__skywork_reward_llama.json", 8'030'261'248},
    };
    std::size_t read = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(reference) / "user_files" / "hf_config")) {
        const std::string path = entry.path().string();
        const Json config = Json::parse_file(path);
        const std::string type = config.has("model_type") ? config.at("model_type").string() : "";
        if (type != "gpt2" && type != "llama") {
            const UserErrorText t = refusal([&] { read_model(path); });
            EXPECT_EQ(t.file, path);
            EXPECT_NE((t.found + t.expected).find(type.empty() ? "model_type" : "\"" + type + "\""), std::string::npos)
                << t.found;
            continue;
        }
        const ModelSpec m = read_model(path);
        bool known = false;
        for (const auto& [ending, count] : expected)
            if (path.ends_with(ending)) {
                EXPECT_EQ(parameter_count(m), count) << path;
                known = true;
            }
        EXPECT_TRUE(known) << "no expected count for " << path;
        ++read;
    }
    EXPECT_EQ(read, expected.size());
}

}  // namespace
}  // namespace foretrain
