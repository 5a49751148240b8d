#include "models/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/model_limits.h"

namespace foretrain {

namespace {

// What transformers writes into every config.json, and what says how to generate, not what to train.
const std::vector<std::string> ignorable{
    "_name_or_path", "_attn_implementation", "_attn_implementation_internal", "_commit_hash", "_flash_attn_2_enabled",
    "architectures", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "unk_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "torch_dtype", "dtype",
    "transformers_version", "use_cache", "initializer_range", "id2label", "label2id", "num_labels", "output_attentions",
    "output_hidden_states", "output_past", "return_dict", "return_dict_in_generate", "task_specific_params",
    "problem_type", "finetuning_task", "tokenizer_class", "prefix", "do_sample", "early_stopping", "max_length",
    "min_length", "num_beams", "temperature", "top_k", "top_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "gradient_checkpointing",
    // Neuron's training examples keep these beside the model.
    "sequence_parallel_enabled", "selective_checkpoint_enabled"};

const std::vector<std::string> ignorable_gpt2{"attn_pdrop",
                                              "embd_pdrop",
                                              "resid_pdrop",
                                              "n_ctx",
                                              "summary_activation",
                                              "summary_first_dropout",
                                              "summary_proj_to_labels",
                                              "summary_type",
                                              "summary_use_proj",
                                              "scale_attn_weights",
                                              "scale_attn_by_inverse_layer_idx",
                                              "reorder_and_upcast_attn"};

const std::vector<std::string> ignorable_llama{"attention_dropout", "pretraining_tp", "rope_scaling", "rope_parameters",
                                               "max_sequence_length"};

void refuse_unknown_keys(const Json& config, std::vector<std::string> known, const std::vector<std::string>& more) {
    const std::vector<std::string> meant = known;
    known.insert(known.end(), ignorable.begin(), ignorable.end());
    known.insert(known.end(), more.begin(), more.end());
    for (const std::string& key : config.keys()) {
        if (std::find(known.begin(), known.end(), key) != known.end()) continue;
        config.get(key).fail("a key that foretrain does not know, so it may change the model",
                             "the keys of a published config.json", nearest(key.substr(0, 100), meant));
    }
}

// transformers keeps the path that the model was loaded from; else the file or its folder is named
// after the model.
std::string name_from(const Json& config) {
    if (const Json path = config.get("_name_or_path"); path.is_string() && !path.string().empty()) {
        const std::string name = std::filesystem::path(path.string()).filename().string();
        if (!name.empty() && name != ".") return name;
    }
    const std::filesystem::path file(config.file());
    if (file.stem() != "config") return file.stem().string();
    const std::string folder = file.parent_path().filename().string();
    return folder.empty() ? config.at("model_type").string() : folder;
}

std::int64_t size(const Json& config, const char* key) { return config.at(key).integer(1, largest_size); }

std::int64_t size_or(const Json& config, const char* key, std::int64_t otherwise) {
    return config.has(key) ? size(config, key) : otherwise;
}

bool flag_or(const Json& config, const char* key, bool otherwise) {
    return config.has(key) ? config.at(key).boolean() : otherwise;
}

double epsilon_or(const Json& config, const char* key, double otherwise) {
    return config.has(key) ? config.at(key).number(smallest_epsilon, largest_epsilon) : otherwise;
}

std::int64_t even_head_dim(const Json& config, const char* key, std::int64_t hidden, std::int64_t heads) {
    if (hidden % heads != 0)
        config.at(key).fail(std::to_string(heads), "a divisor of the hidden size " + std::to_string(hidden));
    return hidden / heads;
}

ModelSpec gpt2(const Json& config) {
    refuse_unknown_keys(config,
                        {"model_type", "n_embd", "n_head", "n_layer", "n_inner", "n_positions", "vocab_size",
                         "layer_norm_epsilon", "activation_function", "tie_word_embeddings", "add_cross_attention"},
                        ignorable_gpt2);
    if (flag_or(config, "add_cross_attention", false))
        config.at("add_cross_attention").fail("true", "false: cross-attention is not supported");
    if (config.has("activation_function"))
        config.at("activation_function").one_of({"gelu_new", "gelu", "gelu_pytorch_tanh", "gelu_fast"});
    ModelSpec m;
    m.layers = size(config, "n_layer");
    m.hidden_size = size(config, "n_embd");
    m.attention_heads = size(config, "n_head");
    m.kv_heads = m.attention_heads;
    m.head_dim = even_head_dim(config, "n_head", m.hidden_size, m.attention_heads);
    m.ffn_hidden_size = size_or(config, "n_inner", 4 * m.hidden_size);
    m.vocab_size = size(config, "vocab_size");
    m.tied_embeddings = flag_or(config, "tie_word_embeddings", true);
    m.positions = Positions::learned;
    m.max_positions = size(config, "n_positions");
    m.norm = Norm::layernorm;
    m.norm_epsilon = epsilon_or(config, "layer_norm_epsilon", 1e-5);
    m.activation = Activation::gelu;
    m.bias = true;
    return m;
}

ModelSpec llama(const Json& config) {
    refuse_unknown_keys(config,
                        {"model_type", "hidden_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
                         "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps",
                         "rope_theta", "hidden_act", "tie_word_embeddings", "attention_bias", "mlp_bias"},
                        ignorable_llama);
    if (config.has("hidden_act")) config.at("hidden_act").one_of({"silu", "swish"});
    // Llama's attention_bias puts one on the output projection as well, which the model cannot say
    // without one on every linear layer.
    const bool attention_bias = flag_or(config, "attention_bias", false);
    const bool mlp_bias = flag_or(config, "mlp_bias", false);
    if (attention_bias != mlp_bias)
        config.at(attention_bias ? "attention_bias" : "mlp_bias")
            .fail("true", "attention_bias and mlp_bias to be equal: biases on some layers only are not supported");
    ModelSpec m;
    m.layers = size(config, "num_hidden_layers");
    m.hidden_size = size(config, "hidden_size");
    m.attention_heads = size(config, "num_attention_heads");
    m.kv_heads = size_or(config, "num_key_value_heads", m.attention_heads);
    m.head_dim = config.has("head_dim")
                     ? size(config, "head_dim")
                     : even_head_dim(config, "num_attention_heads", m.hidden_size, m.attention_heads);
    m.ffn_hidden_size = size(config, "intermediate_size");
    m.gated_mlp = true;
    m.vocab_size = size(config, "vocab_size");
    m.tied_embeddings = flag_or(config, "tie_word_embeddings", false);
    m.positions = Positions::rope;
    m.max_positions = size_or(config, "max_position_embeddings", 2048);
    m.norm = Norm::rmsnorm;
    m.norm_epsilon = epsilon_or(config, "rms_norm_eps", 1e-6);
    m.activation = Activation::silu;
    m.bias = mlp_bias;
    if (config.has("rope_theta")) m.rope_theta = config.at("rope_theta").number(1, largest_theta);
    return m;
}

}  // namespace

ModelSpec model_from_hugging_face(const Json& config) {
    const std::string type = config.at("model_type").string();
    if (type != "gpt2" && type != "llama")
        config.at("model_type").fail("\"" + type + "\", which is not supported", "gpt2 or llama");
    ModelSpec m = type == "gpt2" ? gpt2(config) : llama(config);
    m.name = name_from(config);
    return m;
}

}  // namespace foretrain
