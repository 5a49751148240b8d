// Readers of the GPT side: LayerNorm with biases, plain MLPs, and every kind of positions.
#include <fmt/format.h>

#include "models/model_types.h"

namespace foretrain {

namespace {

void layernorm(ConfigReader& c, ModelSpec& m, ConfigReader::Key key) {
    m.norm = Norm::layernorm;
    m.norm_epsilon = c.epsilon_or(key, 1e-5);
}

// Sizes as GPT-2 calls them.
void gpt_sizes(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size("n_embd", 768);
    m.layers = c.size("n_layer", 12);
    m.attention_heads = m.kv_heads = c.size("n_head", 12);
    m.head_dim = even_head_dim(c, "n_head", m);
    m.ffn_hidden_size = c.size_or("n_inner", 4 * m.hidden_size);
    m.vocab_size = c.size("vocab_size", 50257);
    m.max_positions = c.size("n_positions", 1024);
}

void gpt2(ConfigReader& c, ModelSpec& m) {
    gpt_sizes(c, m);
    read_activation(c, m, {"activation_function"}, Activation::gelu);
    layernorm(c, m, "layer_norm_epsilon");
    m.positions = Positions::learned;
    m.bias = true;
    m.tied_embeddings = c.tied_or(true);
}

void gpt_bigcode(ConfigReader& c, ModelSpec& m) {
    gpt2(c, m);
    if (c.flag_or("multi_query", true)) m.kv_heads = 1;
}

// Attention without biases beside an MLP with them, behind one norm; a biased head of its own.
void gptj(ConfigReader& c, ModelSpec& m) {
    gpt_sizes(c, m);
    read_activation(c, m, {"activation_function"}, Activation::gelu);
    layernorm(c, m, "layer_norm_epsilon");
    m.positions = Positions::rope;
    m.rotary_dim = c.size_or("rotary_dim", m.head_dim);
    m.block = Block::parallel_shared_norm;
    m.bias = false;
    m.mlp_bias = m.head_bias = true;
    m.tied_embeddings = c.tied_or(false);
}

void gpt_neox(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {6144, 24576, 44, 64, 0, 0, 50432, 2048});
    read_activation(c, m, {"hidden_act"}, Activation::gelu);
    layernorm(c, m, "layer_norm_eps");
    read_rope(c, m, {"rotary_pct", "partial_rotary_factor"}, 0.25);
    m.attention_bias = m.projection_bias = c.flag_or("attention_bias", true);
    m.bias = m.attention_bias;
    m.mlp_bias = true;
    if (c.flag_or("use_parallel_residual", true)) m.block = Block::parallel;
    m.tied_embeddings = c.tied_or(false);
}

// The table of positions begins with two rows that no token uses.
void opt(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size("hidden_size", 768);
    m.layers = c.size("num_hidden_layers", 12);
    m.attention_heads = m.kv_heads = c.size("num_attention_heads", 12);
    m.head_dim = even_head_dim(c, "num_attention_heads", m);
    m.ffn_hidden_size = c.size("ffn_dim", 3072);
    m.vocab_size = c.size("vocab_size", 50272);
    m.max_positions = c.size_or("max_position_embeddings", 2048);
    m.position_offset = 2;
    m.positions = Positions::learned;
    read_activation(c, m, {"activation_function"}, Activation::relu);
    layernorm(c, m, "layer_norm_eps");
    m.bias = c.flag_or("enable_bias", true);
    m.tied_embeddings = c.tied_or(true);
    if (c.size_or("word_embed_proj_dim", m.hidden_size) != m.hidden_size)
        c.at("word_embed_proj_dim")
            .fail(c.at("word_embed_proj_dim").found(),
                  fmt::format("hidden_size = {}: embeddings of another width are not supported", m.hidden_size));
    c.require("do_layer_norm_before", true, "norms after attention and MLP in place of before are not supported");
    c.require("layer_norm_elementwise_affine", true, "norms without weights are not supported");
    c.require("_remove_final_layer_norm", false, "a model without a last norm is not supported");
}

void bloom(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size(c.one_of({"hidden_size", "n_embed"}), 64);
    m.layers = c.size(c.one_of({"n_layer", "num_hidden_layers"}), 2);
    const ConfigReader::Key heads = c.one_of({"n_head", "num_attention_heads"});
    m.attention_heads = m.kv_heads = c.size(heads, 8);
    m.head_dim = even_head_dim(c, heads, m);
    m.ffn_hidden_size = c.size_or("n_inner", 4 * m.hidden_size);
    m.vocab_size = c.size("vocab_size", 250880);
    m.max_positions = c.size_or("seq_length", 2048);
    m.positions = Positions::alibi;
    m.embedding_norm = true;
    m.activation = Activation::gelu;
    layernorm(c, m, "layer_norm_epsilon");
    m.bias = true;
    m.tied_embeddings = c.tied_or(true);
    c.require("apply_residual_connection_post_layernorm", false, "another residual stream is not supported");
}

// Falcon, under its first names (RefinedWeb) too. The 40B and 180B are of the new architecture: grouped
// queries and two norms; the 7B has one key-value head, whatever num_kv_heads says, and one norm.
void falcon(ConfigReader& c, ModelSpec& m, bool new_by_default) {
    m.hidden_size = c.size("hidden_size", 4544);
    m.layers = c.size(c.one_of({"num_hidden_layers", "n_layer"}), 32);
    const ConfigReader::Key heads = c.one_of({"num_attention_heads", "n_head"});
    m.attention_heads = c.size(heads, 71);
    m.head_dim = even_head_dim(c, heads, m);
    const bool is_new = c.flag_or("new_decoder_architecture", new_by_default);
    const bool one_head = c.flag_or("multi_query", true) && !is_new;
    m.kv_heads = c.size_or(c.one_of({"num_kv_heads", "n_head_kv"}), m.attention_heads);
    if (one_head) m.kv_heads = 1;
    m.ffn_hidden_size = c.size_or("ffn_hidden_size", c.size_or("ff_factor", 4) * m.hidden_size);
    m.vocab_size = c.size("vocab_size", 65024);
    m.max_positions = c.size_or("max_position_embeddings", 2048);
    read_rope(c, m, {}, 1);
    if (c.flag_or("alibi", false)) m.positions = Positions::alibi;
    read_activation(c, m, {"activation"}, Activation::gelu);
    layernorm(c, m, "layer_norm_epsilon");
    m.bias = c.flag_or("bias", false);
    const std::int64_t norms = c.size_or("num_ln_in_parallel_attn", is_new ? 2 : 1, 2);
    if (c.flag_or("parallel_attn", true) || is_new)
        m.block = norms == 2 ? Block::parallel : Block::parallel_shared_norm;
    m.tied_embeddings = c.tied_or(true);
    c.require("apply_residual_connection_post_layernorm", false, "another residual stream is not supported");
}

void falcon_old(ConfigReader& c, ModelSpec& m) { falcon(c, m, false); }
void falcon_new(ConfigReader& c, ModelSpec& m) { falcon(c, m, true); }

// attn_config of MPT: an object of its own.
void mpt_attention(ConfigReader& c, ModelSpec& m) {
    const Json a = c.get("attn_config");
    for (const char* unsupported : {"qk_ln", "qk_gn", "prefix_lm", "rope", "attn_uses_sequence_id"})
        if (a.has(unsupported) && a.at(unsupported).boolean())
            a.at(unsupported).fail("true", fmt::format("false: {} is not supported", unsupported));
    const bool alibi = a.has("alibi") && a.at("alibi").boolean();
    m.positions = alibi ? Positions::alibi : Positions::learned;
    m.kv_heads = m.attention_heads;
    if (a.has("attn_type")) {
        const std::size_t type =
            a.at("attn_type").one_of({"multihead_attention", "multiquery_attention", "grouped_query_attention"});
        if (type == 1) m.kv_heads = 1;
        if (type == 2) m.kv_heads = a.at("kv_n_heads").integer(1, m.attention_heads);
    }
    if (a.has("clip_qkv")) m.elementwise_scaling = true;
}

void mpt(ConfigReader& c, ModelSpec& m) {
    m.hidden_size = c.size("d_model", 2048);
    m.layers = c.size("n_layers", 24);
    m.attention_heads = c.size("n_heads", 16);
    m.head_dim = even_head_dim(c, "n_heads", m);
    m.ffn_hidden_size = c.size_or("expansion_ratio", 4) * m.hidden_size;
    m.vocab_size = c.size("vocab_size", 50368);
    m.max_positions = c.size("max_seq_len", 2048);
    mpt_attention(c, m);
    const bool learned = c.flag_or("learned_pos_emb", true);
    if (m.positions == Positions::learned && !learned) m.positions = Positions::none;
    if (const Json ffn = c.get("ffn_config"); ffn.has("ffn_type")) ffn.at("ffn_type").one_of({"mptmlp"});
    if (c.has("norm_type")) c.at("norm_type").one_of({"low_precision_layernorm", "layernorm"});
    m.activation = Activation::gelu;
    layernorm(c, m, "layer_norm_epsilon");
    m.norm_bias = m.bias = !c.flag_or("no_bias", true);
    m.tied_embeddings = c.tied_or(true);
    if (c.has("logit_scale")) m.elementwise_scaling = true;
}

void starcoder2(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {3072, 12288, 30, 24, 2, 0, 49152, 4096});
    read_activation(c, m, {"hidden_act"}, Activation::gelu);
    if (c.has("mlp_type")) c.at("mlp_type").one_of({"default"});
    if (c.has("norm_type")) c.at("norm_type").one_of({"layer_norm"});
    layernorm(c, m, "norm_epsilon");
    read_rope(c, m, {}, 1);
    m.bias = c.flag_or("use_bias", true);
    m.tied_embeddings = c.tied_or(true);
    m.sliding_window.size = c.size_or("sliding_window", 0);
}

// Phi 1 to 2: everything has a bias, the head too.
void phi(ConfigReader& c, ModelSpec& m) {
    read_sizes(c, m, {2048, 8192, 24, 32, 0, 0, 51200, 2048});
    read_activation(c, m, {"hidden_act"}, Activation::gelu);
    layernorm(c, m, "layer_norm_eps");
    read_rope(c, m, {}, 0.5);
    m.bias = m.head_bias = true;
    m.block = Block::parallel_shared_norm;
    c.require("qk_layernorm", false, "a norm of each head with a bias is not supported");
    m.tied_embeddings = c.tied_or(false);
}

const std::vector<std::string_view> gpt2_keys{
    "n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
    // GPT-BigCode
    "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "max_batch_size",
    "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input",
    // GPT-J
    "rotary", "n_special", "predict_special_tokens"};

}  // namespace

std::span<const ModelType> gpt_types() {
    static const std::vector<ModelType> types{
        {"gpt2", gpt2, gpt2_keys},
        {"gpt_bigcode", gpt_bigcode, gpt2_keys},
        {"gptj", gptj, gpt2_keys},
        {"codegen", gptj, gpt2_keys},
        {"gpt_neox", gpt_neox, {}},
        {"opt", opt, {}},
        {"bloom",
         bloom,
         {"masked_softmax_fusion", "attention_softmax_in_fp32", "bias_dropout_fusion", "offset_alibi", "skip_bias_add",
          "skip_bias_add_qkv", "slow_but_exact", "unk"}},
        {"falcon", falcon_old, {}},
        {"RefinedWebModel", falcon_old, {}},
        {"RefinedWeb", falcon_new, {}},
        {"mpt",
         mpt,
         {"embedding_fraction", "init_config", "init_device", "tokenizer_name", "verbose", "fc_type",
          "use_pad_tok_in_ffn"}},
        {"starcoder2", starcoder2, {}},
        {"phi", phi, {"type_vocab_size"}},
    };
    return types;
}

}  // namespace foretrain
