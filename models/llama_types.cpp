// Readers of the llama side: RMSNorm or LayerNorm before a gated MLP, rotary positions.
#include <fmt/format.h>

#include "models/model_types.h"

namespace foretrain {

namespace {

void llama(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 11008, 32, 32, 0, 0, 32000, 2048});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    read_attention_biases(c, m, "attention_bias");
    m.mlp_bias = c.flag_or("mlp_bias", false);
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, whole_head);
}

}  // namespace

void read_granite(ConfigReader& c, ModelSpec& m) {
    llama(c, m);
    for (ConfigReader::Key key :
         {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"})
        c.get(key);
    m.elementwise_scaling = true;
}

void read_qwen2(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 22016, 32, 32, 0, 0, 151936, 32768});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    m.attention_bias = true;
    m.tied_embeddings = c.tied_or(false);
    read_upper_window(c, m);
    read_rope(c, m, {}, whole_head);
}

void read_qwen3(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 22016, 32, 32, 0, 128, 151936, 32768});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    read_attention_biases(c, m, "attention_bias");
    m.query_key_norm = QueryKeyNorm::shared;
    m.tied_embeddings = c.tied_or(false);
    read_upper_window(c, m);
    read_rope(c, m, {}, whole_head);
}

namespace {

void mistral(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 14336, 32, 32, 8, 0, 32000, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    m.tied_embeddings = c.tied_or(false);
    read_sliding_window(c, m, 4096, 0);
    read_rope(c, m, {}, whole_head);
}

void qwen2_vl(ConfigReader& c, ModelSpec& m) {
    read_qwen2(c, m);
    c.note("the language model alone: the vision tower is not planned");
}

// All Gemmas scale the embedding by the root of the hidden size.
void gemma_base(ConfigReader& c, ModelSpec& m) {
    read_gated(c, m, Activation::gelu, {"hidden_activation", "hidden_act"});
    c.get("hidden_act");  // the older name, which some files have as well
    read_rms(c, m, 1e-6);
    read_attention_biases(c, m, "attention_bias");
    m.tied_embeddings = c.tied_or(true);
    m.elementwise_scaling = true;
    read_rope(c, m, {}, whole_head);
}

void gemma(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {3072, 24576, 28, 16, 16, 256, 256000, 8192});
    gemma_base(c, m);
}

void gemma2(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2304, 9216, 26, 8, 4, 256, 256000, 8192});
    gemma_base(c, m);
    m.post_norms = true;
    read_sliding_window(c, m, 4096, 2);
}

void gemma3(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2304, 9216, 26, 8, 4, 256, 262208, 131072});
    gemma_base(c, m);
    c.require("use_bidirectional_attention", false, "attention to later tokens is not supported");
    m.post_norms = true;
    m.query_key_norm = QueryKeyNorm::shared;
    read_sliding_window(c, m, 4096, 6);
}

void phi3(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {3072, 8192, 32, 32, 0, 0, 32064, 4096});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    c.require("attention_bias", false, "its class has none");
    m.tied_embeddings = c.tied_or(false);
    read_sliding_window(c, m, 0, 0);
    read_rope(c, m, {}, whole_head);
}

void internlm2(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 11008, 32, 32, 0, 0, 103168, 2048});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    read_attention_biases(c, m, "bias");
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, whole_head);
}

void glm(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 13696, 40, 32, 2, 128, 151552, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1.5625e-7);
    m.attention_bias = c.flag_or("attention_bias", true);  // of q, k and v
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, 0.5);
}

void glm4(ConfigReader& c, ModelSpec& m) {
    glm(c, m);
    m.attention_bias = c.flag_or("attention_bias", false);
    m.post_norms = true;
}

// ChatGLM 2 and 3 and GLM-4 under their authors' own names.
void chatglm(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size("hidden_size", 4096);
    m.layers = c.size("num_layers", 28);
    m.attention_heads = c.size("num_attention_heads", 32);
    m.head_dim = c.size("kv_channels", 128);
    const bool grouped = c.flag_or("multi_query_attention", false);
    const std::int64_t groups = c.size_or("multi_query_group_num", 1);
    m.kv_heads = grouped ? groups : m.attention_heads;
    m.ffn_hidden_size = c.size("ffn_hidden_size", 13696);
    m.vocab_size = c.size(c.one_of({"padded_vocab_size", "vocab_size"}), 65024);
    m.max_positions = c.size_or("seq_length", 2048);
    m.gated_mlp = true;
    m.activation = Activation::silu;
    m.norm = c.flag_or("rmsnorm", true) ? Norm::rmsnorm : Norm::layernorm;
    m.norm_epsilon = c.epsilon_or("layernorm_epsilon", 1e-5);
    m.bias = c.flag_or("add_bias_linear", false);
    m.attention_bias = c.flag_or("add_qkv_bias", false);
    m.tied_embeddings = c.tied_or(false);
    c.require("post_layer_norm", true, "a model without a last norm is not supported");
    c.require("apply_residual_connection_post_layernorm", false, "another residual stream is not supported");
    const ConfigReader::Key theta = c.one_of({"rope_theta"});
    if (c.has(theta)) m.rope_theta = c.at(theta).number(1, largest_theta);
    m.positions = Positions::rope;
    m.rotary_dim = m.head_dim / 2;
}

// One norm without bias before attention and MLP side by side; the logits are scaled.
void cohere(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {8192, 22528, 40, 64, 0, 0, 256000, 8192});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_layernorm(c, m, "layer_norm_eps");
    m.norm_bias = false;
    m.block = Block::parallel_shared_norm;
    read_attention_biases(c, m, "attention_bias");
    if (c.flag_or("use_qk_norm", false)) m.query_key_norm = QueryKeyNorm::per_head;
    m.tied_embeddings = c.tied_or(true);
    m.elementwise_scaling = true;
    c.get("logit_scale");
    read_rope(c, m, {}, whole_head);
}

void stablelm(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2560, 6912, 32, 32, 0, 0, 50304, 4096});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_layernorm(c, m, c.one_of({"layer_norm_eps", "norm_eps"}));
    m.attention_bias = c.flag_or("use_qkv_bias", false);
    if (c.flag_or("use_parallel_residual", false)) m.block = Block::parallel_shared_norm;
    c.require("qk_layernorm", false, "a norm of each head with a bias is not supported");
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {"partial_rotary_factor", "rope_pct"}, 0.25);
}

// Squared ReLU without a gate, LayerNorm whose weight is stored less one.
void nemotron(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {6144, 24576, 32, 48, 0, 0, 256000, 4096});
    read_activation(c, m, {"hidden_act"}, Activation::squared_relu);
    read_layernorm(c, m, "norm_eps");
    read_attention_biases(c, m, "attention_bias");
    m.mlp_bias = c.flag_or("mlp_bias", false);
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {"partial_rotary_factor", "rope_percent"}, 0.5);
}

const std::vector<std::string_view> vision{"vision_config",   "vision_start_token_id", "vision_end_token_id",
                                           "vision_token_id", "image_token_id",        "video_token_id"};

}  // namespace

std::span<const ModelType> llama_types() {
    static const std::vector<ModelType> types{
        {"llama", llama, {}},
        {"xverse", llama, {}},
        {"granite", read_granite, {}},
        {"mistral", mistral, {}},
        {"qwen2", read_qwen2, {"use_mrope"}},
        {"qwen2_vl", qwen2_vl, vision},
        {"qwen2_5_vl", qwen2_vl, vision},
        {"qwen2_vl_text", read_qwen2, vision},
        {"qwen2_5_vl_text", read_qwen2, vision},
        {"qwen3", read_qwen3, {}},
        {"qwen3_vl_text", read_qwen3, {}},
        {"gemma", gemma, {}},
        {"gemma2", gemma2, {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}},
        {"gemma3_text",
         gemma3,
         {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "rope_local_base_freq"}},
        {"phi3", phi3, {}},
        {"internlm2", internlm2, {}},
        {"glm", glm, {}},
        {"glm4", glm4, {}},
        {"chatglm",
         chatglm,
         {"apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion",
          "fp32_residual_connection", "original_rope", "rope_ratio", "pre_seq_len", "prefix_projection",
          "quantization_bit", "interleaved_qkv"}},
        {"cohere", cohere, {}},
        {"stablelm", stablelm, {}},
        {"nemotron", nemotron, {}},
    };
    return types;
}

}  // namespace foretrain
