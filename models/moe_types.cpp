// Readers of models with experts or latent attention.
#include <fmt/format.h>

#include "models/model_types.h"

namespace foretrain {

namespace {

using Key = ConfigReader::Key;

std::int64_t experts_of(ConfigReader& c, Key key, std::int64_t class_default) {
    const std::int64_t experts = c.size(key, class_default);
    if (experts > largest_experts) c.at(key).fail(std::to_string(experts), fmt::format("at most {}", largest_experts));
    return experts;
}

std::int64_t count_or(ConfigReader& c, Key key, std::int64_t otherwise, std::int64_t most) {
    return c.has(key) ? c.at(key).integer(0, most) : otherwise;
}

// A width of layers without experts is no part of a model that has none.
void drop_unused_mlp(ModelSpec& m) {
    if (m.expert_layers() == m.layers) m.ffn_hidden_size = 0;
}

// All MLPs are experts, of the width that others give their MLP.
void experts_everywhere(ConfigReader& c, ModelSpec& m, Key experts, Key topk, std::int64_t many, std::int64_t few) {
    m.moe.experts = experts_of(c, experts, many);
    m.moe.topk = c.size(topk, few);
    m.moe.ffn_hidden_size = m.ffn_hidden_size;
    m.ffn_hidden_size = 0;
}

void mixtral(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 14336, 32, 32, 8, 0, 32000, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    m.tied_embeddings = c.tied_or(false);
    read_sliding_window(c, m, 0, 0);
    read_rope(c, m, {}, whole_head);
    experts_everywhere(c, m, "num_local_experts", "num_experts_per_tok", 8, 2);
    if (c.has("moe_frequency")) m.moe.every = c.at("moe_frequency").integer(1, 1);
}

// Norms, attention and head have biases, the experts none.
void phimoe(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 6400, 32, 32, 8, 0, 32064, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_layernorm(c, m, "rms_norm_eps");
    read_attention_biases(c, m, "attention_bias");
    m.head_bias = c.flag_or("lm_head_bias", false);
    m.tied_embeddings = c.tied_or(false);
    read_sliding_window(c, m, 0, 0);
    read_rope(c, m, {}, whole_head);
    experts_everywhere(c, m, "num_local_experts", "num_experts_per_tok", 16, 2);
}

// One norm over the queries of all heads, and one over the keys.
void olmoe(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2048, 2048, 16, 16, 0, 0, 50304, 4096});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    read_attention_biases(c, m, "attention_bias");
    m.query_key_norm = QueryKeyNorm::per_head;
    c.note("its norm over the queries of all heads is planned as one of each head");
    if (c.has("clip_qkv")) m.elementwise_scaling = true;
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, whole_head);
    experts_everywhere(c, m, "num_experts", "num_experts_per_tok", 64, 8);
}

void granitemoe(ConfigReader& c, ModelSpec& m) {
    read_granite(c, m);
    experts_everywhere(c, m, "num_local_experts", "num_experts_per_tok", 8, 2);
    m.moe.shared_ffn = count_or(c, "shared_intermediate_size", 0, largest_size);
}

// Qwen's layers without experts: those of a list, which has to be the first ones, and all but each step-th.
void qwen_layers(ConfigReader& c, ModelSpec& m) {
    m.moe.every = c.size_or("decoder_sparse_step", 1, largest_layers);
    if (!c.has("mlp_only_layers")) return;
    const Json list = c.at("mlp_only_layers");
    std::int64_t& first = m.moe.first_dense_layers;
    for (const Json& item : list.items())
        if (item.integer(0, largest_layers) != first++) list.fail(list.found(), "the first layers in order, or none");
    if (first % m.moe.every != 0)
        list.fail(fmt::format("{} layers", first), fmt::format("a multiple of decoder_sparse_step = {}", m.moe.every));
}

void qwen2_moe(ConfigReader& c, ModelSpec& m) {
    read_qwen2(c, m);
    m.attention_bias = c.flag_or("qkv_bias", true);
    m.moe.experts = experts_of(c, "num_experts", 60);
    m.moe.topk = c.size("num_experts_per_tok", 4);
    m.moe.ffn_hidden_size = c.size("moe_intermediate_size", 1408);
    m.moe.shared_ffn = c.size("shared_expert_intermediate_size", 5632);
    m.moe.shared_gate = true;
    qwen_layers(c, m);
    drop_unused_mlp(m);
}

void qwen3_moe(ConfigReader& c, ModelSpec& m) {
    read_qwen3(c, m);
    m.moe.experts = experts_of(c, "num_experts", 128);
    m.moe.topk = c.size("num_experts_per_tok", 8);
    m.moe.ffn_hidden_size = c.size("moe_intermediate_size", 768);
    qwen_layers(c, m);
    drop_unused_mlp(m);
}

void note_more_predictions(ConfigReader& c) {
    const std::int64_t layers = count_or(c, "num_nextn_predict_layers", 0, largest_layers);
    if (layers > 0) c.note(fmt::format("its {} more layer(s) of multi-token prediction are not planned", layers));
}

// DeepSeek's layers: dense ones first, then routed and shared experts of one width.
void deepseek_experts(ConfigReader& c, ModelSpec& m, std::int64_t experts, std::int64_t topk, std::int64_t width) {
    MixtureOfExperts& moe = m.moe;
    moe.first_dense_layers = count_or(c, "first_k_dense_replace", 0, largest_layers);
    if (moe.first_dense_layers >= m.layers) {  // none is left
        moe.first_dense_layers = 0;
        for (Key key : {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"})
            c.get(key);
        return;
    }
    moe.experts = experts_of(c, "n_routed_experts", experts);
    moe.topk = c.size("num_experts_per_tok", topk);
    moe.ffn_hidden_size = c.size("moe_intermediate_size", width);
    moe.shared_ffn = count_or(c, "n_shared_experts", 0, largest_experts) * moe.ffn_hidden_size;
    if (moe.shared_ffn > largest_size)
        c.at("n_shared_experts")
            .fail(c.at("n_shared_experts").found(), fmt::format("all together at most {}", largest_size));
    if (c.has("moe_layer_freq")) c.at("moe_layer_freq").integer(1, 1);
    drop_unused_mlp(m);
}

// q_lora_rank is null where queries are projected directly.
void latent(ConfigReader& c, ModelSpec& m, std::int64_t v_dim) {
    LatentAttention& a = m.mla;
    a.kv_lora = c.size("kv_lora_rank", 512);
    a.q_lora = c.size_or("q_lora_rank", c.given("q_lora_rank") ? 0 : 1536);
    a.qk_nope = c.size("qk_nope_head_dim", 128);
    a.qk_rope = c.size("qk_rope_head_dim", 64);
    a.v_dim = c.size_or("v_head_dim", v_dim);
    c.get("head_dim");     // of transformers 5: the part that rope turns
    c.get("qk_head_dim");  // the sum
    m.head_dim = a.qk_size();
}

void deepseek_base(ConfigReader& c, ModelSpec& m, const ClassDefaults& defaults) {
    read_sizes(c, m, defaults);
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    c.require("attention_bias", false, "biases beside latents are not supported");
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, whole_head);
    note_more_predictions(c);
}

// The first of them, with ordinary attention; DeepSeek-VL2's smallest is a V2 without latents.
void deepseek(ConfigReader& c, ModelSpec& m) {
    deepseek_base(c, m, {4096, 11008, 30, 32, 0, 0, 102400, 2048});
    deepseek_experts(c, m, 64, 6, 1407);
}

void deepseek_v2(ConfigReader& c, ModelSpec& m) {
    const bool ordinary = !c.flag_or("use_mla", true);
    deepseek_base(c, m, {4096, 11008, 32, 32, 0, 0, 102400, 2048});
    if (ordinary)
        for (Key key : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
            c.get(key);
    else
        latent(c, m, 128);
    deepseek_experts(c, m, 64, 6, 1407);
}

void deepseek_v3(ConfigReader& c, ModelSpec& m) {
    deepseek_base(c, m, {7168, 18432, 61, 128, 0, 0, 129280, 4096});
    latent(c, m, 128);
    deepseek_experts(c, m, 256, 8, 2048);
}

// Latent attention before ordinary MLPs; embedding, branches and logits are scaled.
void minicpm3(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2560, 6400, 62, 40, 0, 0, 73448, 32768});
    const std::int64_t even = m.head_dim;
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-6);
    c.require("attention_bias", false, "biases beside latents are not supported");
    m.tied_embeddings = c.tied_or(true);
    read_rope(c, m, {}, whole_head);
    latent(c, m, even);
    for (Key key : {"scale_emb", "scale_depth", "dim_model_base"}) c.get(key);
    m.elementwise_scaling = true;
}

void glm4_moe(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {4096, 10944, 46, 96, 8, 128, 151552, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    m.attention_bias = c.flag_or("attention_bias", false);  // of q, k and v
    if (c.flag_or("use_qk_norm", false)) m.query_key_norm = QueryKeyNorm::shared;
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, 0.5);
    note_more_predictions(c);
    deepseek_experts(c, m, 128, 8, 1408);
}

// Biases everywhere, sinks, and a window on every second layer; the gate is capped.
void gpt_oss(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2880, 2880, 36, 64, 8, 64, 201088, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    m.attention_bias = m.projection_bias = c.flag_or("attention_bias", true);
    m.mlp_bias = m.moe.router_bias = true;
    m.attention_sinks = m.elementwise_scaling = true;
    m.tied_embeddings = c.tied_or(false);
    read_sliding_window(c, m, 128, 2);
    read_rope(c, m, {}, whole_head);
    experts_everywhere(c, m, "num_local_experts", c.one_of({"num_experts_per_tok", "experts_per_token"}), 128, 4);
    c.get("experts_per_token");
}

// Chunks in which the tokens of three layers of four attend to each other.
void llama4_chunks(ConfigReader& c, ModelSpec& m) {
    constexpr std::int64_t full_every = 4;
    const std::int64_t every = c.size_or("nope_layer_interval", full_every);
    for (Key key : {"no_rope_layers", "no_rope_layer_interval", "layer_types"}) c.get(key);
    if (c.given("attention_chunk_size") && !c.has("attention_chunk_size")) return;
    m.sliding_window = {c.size_or("attention_chunk_size", 8192), every};
    c.note(fmt::format("chunks of {} tokens are planned as a window, and rope on all layers", m.sliding_window.size));
}

void llama4(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {5120, 8192, 48, 40, 8, 128, 202048, 131072});
    read_gated(c, m, Activation::silu, {"hidden_act"});
    read_rms(c, m, 1e-5);
    read_attention_biases(c, m, "attention_bias");
    m.tied_embeddings = c.tied_or(false);
    read_rope(c, m, {}, whole_head);
    llama4_chunks(c, m);
    if (c.flag_or("use_qk_norm", true)) c.note("its norm of queries and keys, which has no weights, is left out");
    m.elementwise_scaling = true;  // temperatures of attention, and inputs of experts weighed by the router
    m.moe.experts = experts_of(c, "num_local_experts", 16);
    m.moe.topk = c.size("num_experts_per_tok", 1);
    m.moe.every = c.size_or("interleave_moe_layer_step", 1, largest_layers);
    m.moe.ffn_hidden_size = m.moe.shared_ffn = m.ffn_hidden_size;
    m.ffn_hidden_size = c.size("intermediate_size_mlp", 16384);
    if (c.has("moe_layers")) c.note("its list of layers with experts is taken to be each n-th");
    drop_unused_mlp(m);
}

// Experts and attention are objects of their own.
void dbrx(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size("d_model", 2048);
    m.layers = c.size("n_layers", 24);
    m.attention_heads = c.size("n_heads", 16);
    m.head_dim = even_head_dim(c, "n_heads", m);
    m.vocab_size = c.size("vocab_size", 32000);
    m.max_positions = c.size("max_seq_len", 2048);
    m.gated_mlp = true;
    m.activation = Activation::silu;
    m.norm = Norm::layernorm;
    m.norm_bias = false;
    m.tied_embeddings = c.tied_or(false);
    const Json attention = c.at("attn_config"), experts = c.at("ffn_config");
    m.kv_heads = attention.at("kv_n_heads").integer(1, m.attention_heads);
    m.rope_theta = attention.has("rope_theta") ? attention.at("rope_theta").number(1, largest_theta) : 10000;
    m.elementwise_scaling = attention.has("clip_qkv");
    m.moe.experts = experts.at("moe_num_experts").integer(1, largest_experts);
    m.moe.topk = experts.at("moe_top_k").integer(1, m.moe.experts);
    m.moe.ffn_hidden_size = experts.at("ffn_hidden_size").integer(1, largest_size);
    const Json activation = experts.get("ffn_act_fn");
    const Json name = activation.is_object() ? activation.get("name") : activation;
    if (!name.is_null()) name.one_of({"silu"});
}

// How routers are trained and scores are made: no work that counts.
std::vector<std::string_view> routing(std::initializer_list<std::string_view> more = {}) {
    std::vector<std::string_view> keys{"router_aux_loss_coef", "output_router_logits", "norm_topk_prob",
                                       "router_jitter_noise",  "input_jitter_noise",   "router_z_loss_coef"};
    keys.insert(keys.end(), more);
    return keys;
}

std::vector<std::string_view> deepseek_routing() {
    return routing({"aux_loss_alpha", "ep_size", "n_group", "routed_scaling_factor", "scoring_func", "seq_aux",
                    "topk_group", "topk_method", "lm_head", "rm_head"});
}

}  // namespace

std::span<const ModelType> moe_types() {
    static const std::vector<ModelType> types{
        {"mixtral", mixtral, routing()},
        {"phimoe", phimoe, routing()},
        {"olmoe", olmoe, routing()},
        {"granitemoe", granitemoe, routing()},
        {"granitemoeshared", granitemoe, routing()},
        {"qwen2_moe", qwen2_moe, routing()},
        {"qwen3_moe", qwen3_moe, routing()},
        {"qwen3_vl_moe_text", qwen3_moe, routing()},
        {"deepseek", deepseek, deepseek_routing()},
        {"deepseek_v2", deepseek_v2, deepseek_routing()},
        {"deepseek_v3", deepseek_v3, deepseek_routing()},
        {"kimi_k2", deepseek_v3, deepseek_routing()},
        {"minicpm3", minicpm3, {}},
        {"glm4_moe", glm4_moe, deepseek_routing()},
        {"gpt_oss", gpt_oss, routing({"initial_context_length", "swiglu_limit"})},
        {"llama4_text", llama4,
         routing({"attn_scale", "attn_temperature_tuning", "floor_scale", "for_llm_compressor"})},
        {"dbrx", dbrx, routing()},
    };
    return types;
}

}  // namespace foretrain
