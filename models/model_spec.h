// A transformer language model as numbers: what a `config.json` says, in the field's terms.
//
// Covers the GPT-2 type (learned positions, LayerNorm, GELU, biases, tied embeddings) and the
// Llama type (RMSNorm, rotary positions, SwiGLU, grouped-query attention).
//
//   ModelSpec m = read_model("llama-3-8b");            // models/model_file.h
//   parameter_count(m) == 8'030'261'248
#pragma once

#include <cstdint>
#include <string>

namespace foretrain {

enum class Positions : std::uint8_t { learned, rope, none };
enum class Norm : std::uint8_t { layernorm, rmsnorm };
enum class Activation : std::uint8_t { gelu, silu };  // gelu: the tanh form of GPT-2

struct ModelSpec {
    std::string name;
    std::int64_t layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t attention_heads = 0;
    std::int64_t kv_heads = 0;  // = attention_heads without grouped-query attention
    std::int64_t head_dim = 0;  // not always hidden_size / attention_heads
    std::int64_t ffn_hidden_size = 0;
    bool gated_mlp = false;  // SwiGLU: two up projections
    std::int64_t vocab_size = 0;
    bool tied_embeddings = false;  // the head is the transposed token embedding
    Positions positions = Positions::rope;
    std::int64_t max_positions = 0;  // rows of the learned table; longest sequence otherwise
    Norm norm = Norm::rmsnorm;
    double norm_epsilon = 1e-5;
    Activation activation = Activation::silu;
    bool bias = false;  // on every linear layer but the head
    bool attention_bias = false;  // on q, k and v only, where `bias` is false
    double rope_theta = 10000.0;

    bool operator==(const ModelSpec&) const = default;

    std::int64_t query_size() const { return attention_heads * head_dim; }
    std::int64_t kv_size() const { return kv_heads * head_dim; }
    std::int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
    std::int64_t fc1_size() const { return (gated_mlp ? 2 : 1) * ffn_hidden_size; }
    bool qkv_bias() const { return bias || attention_bias; }
};

}  // namespace foretrain
