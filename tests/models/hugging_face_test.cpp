#include "models/hugging_face.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "models/model_file.h"
#include "models/parameters.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

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
    EXPECT_EQ(refusal([] { changed(llama_config, "hidden_act", Json("tanh")); }).field, "hidden_act");
    EXPECT_EQ(refusal([] { changed(llama_config, "sparse_attention", Json::object()); }).field, "sparse_attention");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_hidden_layer", Json(3)); }).suggestion, "num_hidden_layers");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_attention_heads", Json(33)); }).field, "num_attention_heads");
    EXPECT_EQ(refusal([] { changed(llama_config, "num_key_value_heads", Json(5)); }).field, "kv_heads");
    EXPECT_EQ(refusal([] { changed(llama_config, "hidden_size", Json()); }).field, "hidden_size");
    EXPECT_EQ(refusal([] { changed(llama_config, "is_causal", Json(false)); }).field, "is_causal");
    EXPECT_EQ(refusal([] { changed(llama_config, "is_encoder_decoder", Json(true)); }).field, "is_encoder_decoder");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "add_cross_attention", Json(true)); }).field, "add_cross_attention");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "n_layer", Json(0)); }).field, "n_layer");
    EXPECT_EQ(refusal([] { changed(gpt2_config, "hidden_size", Json(768)); }).field, "hidden_size");
}

TEST(HuggingFace, RefusesOtherTypesByName) {
    const auto found = [](const char* type, const char* key) {
        Json config = Json::parse(llama_config, "f").set("model_type", type);
        if (key != nullptr) config.set(key, 8);
        return refusal([&] { model_from_json(Json::parse(config.dump(), "config.json")); }).found;
    };
    EXPECT_EQ(found("bert", nullptr), "\"bert\", a model with an encoder, which is not supported");
    EXPECT_EQ(found("other", nullptr), "\"other\", which is not supported");
    const std::string mixture = ", a mixture of experts of a type that is not supported yet";
    EXPECT_EQ(found("jetmoe", nullptr), "\"jetmoe\"" + mixture);
    EXPECT_EQ(found("other", "num_local_experts"), "\"other\"" + mixture);
    EXPECT_EQ(found("deepseek_v9", "n_routed_experts"), "\"deepseek_v9\"" + mixture);
    EXPECT_EQ(found("other", "kv_lora_rank"), "\"other\", with latent attention of a type that is not supported yet");
    EXPECT_EQ(refusal([] { changed(llama_config, "model_type", Json("lama")); }).suggestion, "llama");
    EXPECT_EQ(refusal([] { changed(llama_config, "model_type", Json("jetmoe")); }).suggestion, "")
        << "another class of model is no way out";
    EXPECT_LT(refusal([] { changed(llama_config, "model_type", Json("jetmoe")); }).expected.size(), 100u);
}

TEST(HuggingFace, RefusesFilesWithoutALanguageModelHead) {
    for (const char* headless : {"LlamaModel", "LlamaForSequenceClassification", "LlamaForRewardModel"}) {
        const UserErrorText t =
            refusal([&] { changed(llama_config, "architectures", Json::array().push(Json(headless))); });
        EXPECT_EQ(t.field, "architectures[0]");
        EXPECT_NE(t.found.find(headless), std::string::npos);
    }
    EXPECT_EQ(parameter_count(changed(llama_config, "architectures", Json())), 6'738'415'616);
}

TEST(HuggingFace, LlamaTakesBiasesByPlace) {
    const std::int64_t none = 6'738'415'616;
    EXPECT_EQ(parameter_count(changed(llama_config, "attention_bias", Json(true))), none + 32 * 4 * 4096);
    EXPECT_EQ(parameter_count(changed(llama_config, "mlp_bias", Json(true))), none + 32 * (2 * 11008 + 4096));
}

TEST(HuggingFace, NotesWhatItTookOrLeftOut) {
    EXPECT_EQ(changed(llama_config, "model_type", Json("llama")).note, "");
    EXPECT_NE(changed(llama_config, "quantization_config", Json::object()).note.find("quantised"), std::string::npos);
    const ModelSpec inner = model_from_json(Json::parse(R"({"model_type": "llava", "vision_config": {}, "vocab_size": 7,
        "text_config": {"model_type": "llama", "vocab_size": 32064}})",
                                                        "config.json"));
    EXPECT_EQ(parameter_count(inner), 6'738'939'904);  // Llama-2-7B with 64 tokens more
    EXPECT_NE(inner.note.find("the language model of a llava"), std::string::npos) << inner.note;
    EXPECT_NE(inner.note.find("hidden_size, num_hidden_layers"), std::string::npos) << inner.note;
    EXPECT_EQ(model_from_json(Json::parse(model_to_json(inner).dump(), "model.json")), inner);
}

// Files as published, without the keys that change nothing, and the totals that their authors or the
// hub state.
TEST(HuggingFace, CountsWhatIsPublishedForEachType) {
    const std::pair<const char*, std::int64_t> published[] = {
        {R"({"model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32,
             "num_attention_heads": 32, "max_position_embeddings": 2048, "word_embed_proj_dim": 4096,
             "activation_function": "relu", "do_layer_norm_before": true, "vocab_size": 50272})",
         6'658'473'984},
        {R"({"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
             "vocab_size": 250880, "apply_residual_connection_post_layernorm": false})",
         176'247'271'424},
        {R"({"model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44,
             "num_attention_heads": 64, "rotary_pct": 0.25, "hidden_act": "gelu_fast", "vocab_size": 50432})",
         20'554'567'680},
        {R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048, "n_inner": null,
             "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": false})",
         6'050'882'784},
        {R"({"model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8,
             "parallel_attn": true, "bias": false, "alibi": false, "vocab_size": 65024})",
         41'303'293'952},
        {R"({"model_type": "RefinedWebModel", "hidden_size": 4544, "n_layer": 32, "n_head": 71, "multi_query": true,
             "parallel_attn": true, "bias": false, "alibi": false, "vocab_size": 65024})",
         6'921'720'704},
        {R"({"model_type": "falcon", "hidden_size": 14848, "num_hidden_layers": 80, "num_attention_heads": 232,
             "num_kv_heads": 8, "new_decoder_architecture": true, "multi_query": true, "vocab_size": 65024})",
         178'557'088'768},
        {R"({"model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
             "alibi": true, "bias": true, "multi_query": false, "parallel_attn": false, "vocab_size": 50304})",
         1'311'625'216},
        {R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576,
             "n_positions": 8192, "multi_query": true, "vocab_size": 49152})",
         15'517'456'384},
        {R"({"model_type": "starcoder2", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 40,
             "num_attention_heads": 48, "num_key_value_heads": 4, "use_bias": true, "vocab_size": 49152})",
         15'655'899'136},
        {R"({"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": null, "partial_rotary_factor": 0.4,
             "hidden_act": "gelu_new", "qk_layernorm": false, "vocab_size": 51200})",
         2'779'683'840},
        {R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
             "num_attention_heads": 24, "num_key_value_heads": 8, "partial_rotary_factor": 0.75,
             "tie_word_embeddings": true, "vocab_size": 200064})",
         3'836'021'760},
        {R"({"model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792, "num_hidden_layers": 64,
             "num_attention_heads": 96, "num_key_value_heads": 8, "use_qk_norm": true, "vocab_size": 256000})",
         103'810'674'688},
        {R"({"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32,
             "num_attention_heads": 32, "partial_rotary_factor": 0.25, "vocab_size": 50304})",
         2'795'443'200},
        {R"({"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40,
             "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": null,
             "vocab_size": 131072})",
         12'247'782'400},
        {R"({"model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36864, "num_hidden_layers": 46,
             "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 256000})",
         27'227'128'320},
        {R"({"model_type": "glm", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
             "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": true,
             "vocab_size": 151552})",
         9'399'951'360},
        {R"({"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": 8, "bias": false, "vocab_size": 92544})",
         7'737'708'544},
        // the same with heads of 5120 / 32
        {R"({"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40,
             "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null, "vocab_size": 131072})",
         12'772'070'400},
        // BLIP-2 keeps OPT-2.7B inside
        {R"({"model_type": "blip-2", "vision_config": {}, "text_config": {"model_type": "opt", "hidden_size": 2560,
             "ffn_dim": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "word_embed_proj_dim": 2560,
             "vocab_size": 50272}})",
         2'651'596'800},
        // the text model of Gemma 3 4B, of which its report counts 3,209 million besides 671 of embedding
        {R"({"model_type": "gemma3", "vision_config": {}, "text_config": {"model_type": "gemma3_text",
             "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}})",
         3'880'263'168},
    };
    for (const auto& [text, count] : published)
        EXPECT_EQ(parameter_count(model_from_json(Json::parse(text, "config.json"))), count) << text;
}

TEST(HuggingFace, ReadsWhatCountsDoNotShow) {
    const auto read = [](const char* text) { return model_from_json(Json::parse(text, "config.json")); };
    const char* const sizes = R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})";
    const auto small = [&](const std::string& head) { return read((head + ", " + sizes).c_str()); };
    const ModelSpec neox = small(R"({"model_type": "gpt_neox", "rotary_pct": 0.25)");
    EXPECT_EQ(neox.rotary_dim, 4);
    EXPECT_EQ(neox.block, Block::parallel);
    EXPECT_EQ(small(R"({"model_type": "gpt_neox", "use_parallel_residual": false)").block, Block::sequential);
    const ModelSpec phi = small(R"({"model_type": "phi")");
    EXPECT_EQ(phi.block, Block::parallel_shared_norm);
    EXPECT_EQ(phi.rotary_dim, 8);
    // windows: Mistral's class has one unless the file says null; Gemma's leave some layers out
    EXPECT_EQ(small(R"({"model_type": "mistral")").sliding_window, (SlidingWindow{4096, 0}));
    EXPECT_EQ(small(R"({"model_type": "mistral", "sliding_window": null)").sliding_window, SlidingWindow{});
    EXPECT_EQ(small(R"({"model_type": "gemma2")").sliding_window, (SlidingWindow{4096, 2}));
    EXPECT_EQ(small(R"({"model_type": "gemma3_text", "sliding_window": 512)").sliding_window, (SlidingWindow{512, 6}));
    const std::string three = R"("sliding_attention", "sliding_attention", "full_attention")";
    EXPECT_EQ(small(R"({"model_type": "gemma3_text", "layer_types": [)" + three + ", " + three + "]").sliding_window,
              (SlidingWindow{4096, 3}));
    EXPECT_EQ(refusal([&] {
                  small(R"({"model_type": "gemma2", "layer_types": ["full_attention", "full_attention",
                      "sliding_attention", "full_attention", "full_attention", "full_attention"])");
              }).field,
              "layer_types");
    EXPECT_EQ(small(R"({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": false)").sliding_window,
              SlidingWindow{});
    EXPECT_EQ(refusal([&] {
                  small(R"({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": true,
                      "max_window_layers": 3)");
              }).field,
              "use_sliding_window");
    // rope as transformers 5 writes it
    const ModelSpec five = small(R"({"model_type": "glm", "rope_parameters": {"rope_theta": 5e5,
        "partial_rotary_factor": 0.25})");
    EXPECT_EQ(five.rope_theta, 5e5);
    EXPECT_EQ(five.rotary_dim, 32);
    EXPECT_EQ(refusal([] {
                  model_from_json(Json::parse(R"({"model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096,
                      "num_hidden_layers": 24, "num_attention_heads": 16, "word_embed_proj_dim": 512,
                      "vocab_size": 50272})",
                                              "opt-350m/config.json"));
              }).field,
              "word_embed_proj_dim");
}

// The files that users keep: the parameters of each, counted by the formulas of model_file_test.cpp or as
// its authors state them, or what the refusal says. By the end of the name; 0 with a text: refused.
struct PublishedFile {
    const char* ending;
    std::int64_t parameters;
    const char* refusal = "";
};

const PublishedFile published_files[] = {
    {"LoadConfig__config.json", 0, "model_type"},
    {"Llama-2-7b-hf__config.json", 6'738'415'616},
    {"starcoder2-3b__config.json", 3'030'371'328},
    {"starcoder2-7b__config.json", 7'173'923'840},
    {"bert-base-uncased__config.json", 0, "\"bert\""},
    {"Qwen--Qwen3-235B-A22B_config.json", 235'093'634'560},
    {"Qwen--Qwen3-VL-8B-Instruct_config.json", 8'190'735'360},
    {"XiaomiMiMo--MiMo-7B-Base_config.json", 0, "\"mimo\""},
    {"deepseek-ai--DeepSeek-V3_config.json", 671'026'404'352},
    {"deepseek-ai--DeepSeek-V4-Flash_config.json", 0, "\"deepseek_v4\", a mixture of experts"},
    {"google--gemma-4-26B-A4B_config.json", 0, "\"gemma4_text\" inside \"gemma4\", a mixture of experts"},
    {"Llama-4-Maverick-17B-128E-Instruct_config.json", 400'711'848'960},
    {"Llama-4-Scout-17B-16E-Instruct_config.json", 107'769'861'120},
    {"Meta-Llama-3.1-405B_config.json", 405'853'388'800},
    {"Meta-Llama-3.1-70B_config.json", 70'553'706'496},
    {"Meta-Llama-3.1-8B_config.json", 8'030'261'248},
    {"Mixtral-8x22B-v0.1_config.json", 140'620'634'112},
    {"Kimi-K2-Instruct_config.json", 1'026'408'209'408},
    {"gpt-oss-120b_config.json", 116'829'156'672},
    {"gpt-oss-20b_config.json", 20'914'757'184},
    {"GLM-5_config.json", 0, "\"glm_moe_dsa\", a mixture of experts"},
    {"fake_hf_model__config.json", 596'049'920},
    {"fake_mla_hf_model__config.json", 671'026'404'352},
    {"70B_config_llama3__config.json", 70'553'706'496},
    {"7B_config_llama2__config.json", 6'738'415'616},
    {"8B_config_llama3.1__config.json", 8'030'261'248},
    {"8B_config_llama3__config.json", 8'030'261'248},
    {"8x1b_config.json", 434'676'736},
    {"8x7b_config.json", 47'508'099'072},
    {"decoder_only_t5-xl.json", 0, "\"decoder_only_t5\""},
    {"qwen_clip__config.json", 0, "\"clip_text_model\" inside \"clip\""},
    {"Qwen1.5-MoE-A2.7B-Chat__config.json", 14'315'784'192},
    {"falcon-7b-instruct__config.json", 6'921'720'704},
    {"mpt-7b-instruct__config.json", 6'649'286'656},
    {"t5-v1_1-xxl__config.json", 0, "\"t5\""},
    {"gpt2-xl__config.json", 1'557'611'200},
    {"clip_vision_model.json", 0, "\"clip_vision_model\""},
    {"command_r_35b.json", 34'980'831'232},
    {"dbrx_132b.json", 157'970'307'072},
    {"deepseek_v3.json", 671'026'404'352},
    {"deepseek_vl2_tiny.json", 0, "\"deepseek_vl_v2\""},
    {"e5_mistral_7b.json", 0, "\"MistralModel\""},
    {"gemma3_text.json", 999'885'952},
    {"gemma_2_2b_it.json", 2'614'341'888},
    {"gemma_7b.json", 8'537'680'896},
    {"glm4_9b.json", 9'399'951'360},
    {"gte_qwen2_7b.json", 0, "is_causal"},
    {"internlm2_reward.json", 0, "\"InternLM2ForRewardModel\""},
    {"testdata__llama3.json", 70'553'706'496},
    {"llama3_1.json", 70'553'706'496},
    {"llama3_2_11b_vision.json", 0, "\"mllama_text_model\" inside \"mllama\""},
    {"llama3_2_3b.json", 3'212'749'824},
    {"llama3_2_90b_vision.json", 0, "\"mllama_text_model\" inside \"mllama\""},
    {"llama4.json", 400'711'848'960},
    {"llava_1.5_7b_hf.json", 6'738'939'904},
    {"llava_v1.5_7b.json", 0, "\"llava\""},
    {"minicpm3_4b.json", 4'073'875'968},
    {"testdata__mistral.json", 7'241'732'096},
    {"testdata__mixtral.json", 46'702'792'704},
    {"phi3.json", 3'821'079'552},
    {"phi3_v.json", 0, "\"phi3_v\""},
    {"qwen2.5_0.5b.json", 494'032'768},
    {"qwen2.5_1.5b.json", 1'543'714'304},
    {"qwen2.5_14b.json", 14'770'033'664},
    {"qwen2.5_3b.json", 3'085'938'688},
    {"qwen2_vl_7b.json", 7'615'616'512},
    {"qwen3_30b.json", 30'532'122'624},
    {"qwen3_4b.json", 4'022'468'096},
    {"qwen3_5_27b.json", 0, "\"qwen3_5_text\" inside \"qwen3_5\""},
    {"qwen3_8b_fp8.json", 8'190'735'360},
    {"qwen3_embedding_8b.json", 8'188'515'328},
    {"skywork_reward_llama.json", 0, "\"LlamaForSequenceClassification\""},
    {"tiny-random-PhiModel__config.json", 0, "\"PhiModel\""},
    {"xverse_7b.json", 7'299'846'144},
};

const PublishedFile* known_file(const std::string& path) {
    for (const PublishedFile& f : published_files)
        if (path.ends_with(f.ending)) return &f;
    return nullptr;
}

TEST(HuggingFace, ReadsPublishedFiles) {
    const char* reference = std::getenv("FORETRAIN_REFERENCE");
    if (reference == nullptr) GTEST_SKIP() << "FORETRAIN_REFERENCE is not set: the published files are not here";
    std::size_t files = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(reference) / "user_files" / "hf_config")) {
        const std::string path = entry.path().string();
        const PublishedFile* known = known_file(path);
        ASSERT_NE(known, nullptr) << "nothing is known of " << path;
        ++files;
        if (known->parameters > 0) {
            EXPECT_EQ(parameter_count(read_model(path)), known->parameters) << path;
            continue;
        }
        const UserErrorText t = refusal([&] { read_model(path); });
        EXPECT_EQ(t.file, path);
        EXPECT_NE((t.field + ": " + t.found + "; " + t.expected).find(known->refusal), std::string::npos)
            << path << ": " << t.field << ": " << t.found;
    }
    EXPECT_EQ(files, std::size(published_files));
}

}  // namespace
}  // namespace foretrain
