// The `model_type`s of a config.json that are read, each with its reader and the keys of its own that
// change neither shapes nor work (those of every type: config_reader.cpp).
//
//   const ModelType* t = find_model_type("qwen3");
//   t->read(reader, model);  reader.refuse_unread(t->ignorable);
//
// The llama side (RMSNorm or gated MLPs) is read in llama_types.cpp, the GPT side in gpt_types.cpp, experts and
// latent attention in moe_types.cpp; a reader follows the type's class in transformers, its defaults included.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "models/config_reader.h"
#include "models/model_spec.h"

namespace foretrain {

struct ModelType {
    std::string_view name;
    void (*read)(ConfigReader&, ModelSpec&);
    std::vector<std::string_view> ignorable;
};

std::span<const ModelType> llama_types();
std::span<const ModelType> gpt_types();
std::span<const ModelType> moe_types();
const ModelType* find_model_type(std::string_view name);  // nullptr for an unknown one

// What a class takes for sizes that a file leaves out. Zero: heads for `kv_heads`, an even share of
// the hidden size for `head_dim`.
struct ClassDefaults {
    std::int64_t hidden_size, ffn_hidden_size, layers, attention_heads, kv_heads, head_dim, vocab_size, max_positions;
};

// Sizes under the names that most files use: hidden_size, num_attention_heads, ...
void read_sizes(ConfigReader& c, ModelSpec& m, const ClassDefaults& defaults);
// hidden_size / heads, which must be even where `heads` is the file's key.
std::int64_t even_head_dim(ConfigReader& c, ConfigReader::Key heads, const ModelSpec& m);
void read_activation(ConfigReader& c, ModelSpec& m, const std::vector<ConfigReader::Key>& keys, Activation otherwise);
// Rotary positions: theta, and how much of a head turns (a share; `otherwise` where the file is silent).
void read_rope(ConfigReader& c, ModelSpec& m, const std::vector<ConfigReader::Key>& share, double otherwise);
constexpr double whole_head = 1;

// Parts that many types have. A flag of biases stands for q, k, v and the projection alike; `otherwise` of a window
// is the size that the class takes where the file has no such key (0: none).
void read_gated(ConfigReader& c, ModelSpec& m, Activation otherwise, const std::vector<ConfigReader::Key>& keys);
void read_rms(ConfigReader& c, ModelSpec& m, double epsilon);
void read_layernorm(ConfigReader& c, ModelSpec& m, ConfigReader::Key key);
void read_attention_biases(ConfigReader& c, ModelSpec& m, ConfigReader::Key key);
void read_sliding_window(ConfigReader& c, ModelSpec& m, std::int64_t otherwise, std::int64_t full_every);
void read_upper_window(ConfigReader& c, ModelSpec& m);

// Whole dense models, which types with experts extend (llama_types.cpp).
void read_granite(ConfigReader& c, ModelSpec& m);
void read_qwen2(ConfigReader& c, ModelSpec& m);
void read_qwen3(ConfigReader& c, ModelSpec& m);

}  // namespace foretrain
