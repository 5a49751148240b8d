#include "models/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

// What transformers writes into every config.json, what says how to generate and what to do with a
// file's weights, and rates of dropout: none of it changes shapes or work.
constexpr std::string_view ignorable_everywhere[] = {
    // the file
    "_name_or_path",
    "_commit_hash",
    "architectures",
    "auto_map",
    "model_type",
    "name_or_path",
    "tokenizer_class",
    "torch_dtype",
    "dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "_diffusers_version",
    "_from_model_config",
    // implementation
    "_attn_implementation",
    "_attn_implementation_internal",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "attn_implementation",
    "use_flash_attn",
    "use_flash_attention",
    "use_cache",
    "gradient_checkpointing",
    "chunk_size_feed_forward",
    "pretraining_tp",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "is_decoder",
    "cache_implementation",
    // tokens
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "prefix",
    "max_tokenizer_truncation",
    // initial values and regularisation
    "initializer_range",
    "initializer_factor",
    "init_std",
    "attention_dropout",
    "hidden_dropout",
    "dropout",
    "activation_dropout",
    "layerdrop",
    "attn_pdrop",
    "embd_pdrop",
    "emb_pdrop",
    "resid_pdrop",
    "resid_dropout",
    "residual_dropout",
    "embedding_dropout",
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "classifier_dropout",
    "classifier_dropout_prob",
    // tasks
    "id2label",
    "label2id",
    "num_labels",
    "task_specific_params",
    "problem_type",
    "finetuning_task",
    // outputs and generation
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "return_dict",
    "return_dict_in_generate",
    "do_sample",
    "early_stopping",
    "max_length",
    "min_length",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "pruned_heads",
    "cross_attention_hidden_size",
    // angles of rotary positions
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "rope_interleaved",
    "rope_interleave",
    // Neuron's training examples keep these beside the model.
    "sequence_parallel_enabled",
    "selective_checkpoint_enabled",
    "max_sequence_length",
};

bool contains(const auto& list, std::string_view key) {
    return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

}  // namespace

bool ConfigReader::given(Key key) { return contains(config_.keys(), read(key)); }

ConfigReader::Key ConfigReader::one_of(const std::vector<Key>& names) {
    for (Key name : names)
        if (has(name)) return name;
    return names.front();
}

std::int64_t ConfigReader::size(Key key, std::int64_t class_default) {
    if (has(key) || !nested()) return at(key).integer(1, largest_size);
    from_class_.emplace_back(key);
    return class_default;
}

std::int64_t ConfigReader::size_or(Key key, std::int64_t otherwise, std::int64_t most) {
    return has(key) ? at(key).integer(1, most) : otherwise;
}

bool ConfigReader::flag_or(Key key, bool otherwise) { return has(key) ? at(key).boolean() : otherwise; }

double ConfigReader::number_or(Key key, double otherwise, double least, double most) {
    return has(key) ? at(key).number(least, most) : otherwise;
}

bool ConfigReader::tied_or(bool otherwise) {
    constexpr Key key = "tie_word_embeddings";
    if (!has(key) && outer_.has(key)) return outer_.at(key).boolean();
    return flag_or(key, otherwise);
}

void ConfigReader::require(Key key, bool needed, const char* why) {
    if (flag_or(key, needed) != needed)
        at(key).fail(needed ? "false" : "true", fmt::format("{}: {}", needed ? "true" : "false", why));
}

std::string ConfigReader::notes() const {
    std::vector<std::string> all = notes_;
    if (!from_class_.empty())
        all.push_back(
            fmt::format("{} left out of the file and taken from the type's defaults", fmt::join(from_class_, ", ")));
    return fmt::format("{}", fmt::join(all, "; "));
}

void ConfigReader::refuse_unread(const std::vector<std::string_view>& ignorable) const {
    for (const std::string& key : config_.keys()) {
        if (read_.count(key) != 0 || contains(ignorable_everywhere, key) || contains(ignorable, key)) continue;
        config_.get(key).fail("a key that foretrain does not know, so it may change the model",
                              "the keys of a published config.json",
                              nearest(key.substr(0, 100), {read_.begin(), read_.end()}));
    }
}

}  // namespace foretrain
