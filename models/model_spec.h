// A transformer language model as numbers: what a `config.json` says, in the field's terms.
//
// A layer is attention and MLP, one after the other or side by side, each behind a norm:
//
//   sequential:            y = x + attention(norm1(x));  out = y + mlp(norm2(y))     GPT-2, Llama
//   parallel:              out = x + attention(norm1(x)) + mlp(norm2(x))             GPT-NeoX
//   parallel_shared_norm:  out = x + attention(norm1(x)) + mlp(norm1(x))             Falcon, Phi, Cohere
//
// What few models have is a field whose default says that they do not.
//
//   ModelSpec m = read_model("llama-3-8b");            // models/model_file.h
//   parameter_count(m) == 8'030'261'248
#pragma once

#include <cstdint>
#include <string>

namespace foretrain {

enum class Positions : std::uint8_t { learned, rope, none, alibi };
enum class Norm : std::uint8_t { layernorm, rmsnorm };
enum class Activation : std::uint8_t { gelu, silu, relu, squared_relu };  // gelu: the tanh form of GPT-2
enum class Block : std::uint8_t { sequential, parallel, parallel_shared_norm };
// A norm of each query and key head before the positions turn them: none, one weight for all heads
// (Qwen3), or one for each (Cohere).
enum class QueryKeyNorm : std::uint8_t { none, shared, per_head };

// Tokens that a token attends to, itself among them: all before it, or `size` on all layers but each
// `full_every`-th (Gemma 2: every second one is full; Mistral: none).
struct SlidingWindow {
    std::int64_t size = 0;        // 0: no window
    std::int64_t full_every = 0;  // 0: no layer is full
    bool operator==(const SlidingWindow&) const = default;
};

// A layer whose MLP is a router and many small MLPs, of which each token visits `topk`.
struct MixtureOfExperts {
    std::int64_t experts = 0;  // routed ones of a layer; 0: no layer has any
    std::int64_t topk = 0;
    std::int64_t ffn_hidden_size = 0;     // of one routed expert
    std::int64_t shared_ffn = 0;          // of the experts that every token visits, together; 0: there are none
    std::int64_t first_dense_layers = 0;  // with an MLP of ModelSpec::ffn_hidden_size in place of experts
    std::int64_t every = 1;               // after those, each such layer has experts (Llama 4 Maverick: 2)
    // Tokens that an expert takes, over the mean number that come to it; 0: all that come (dropless).
    double capacity_factor = 0;
    bool pad_to_capacity = false;  // an expert computes as if its capacity were full
    bool router_bias = false;
    bool shared_gate = false;  // what the shared experts say is weighed by a gate of its own (Qwen2-MoE)
    bool operator==(const MixtureOfExperts&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): queries, and keys with values, pass through
// narrow latents; a head's query and key are a part without positions and a part that rope turns, the latter
// of the keys shared by all heads.
struct LatentAttention {
    std::int64_t kv_lora = 0;                          // width of the latent of keys and values; 0: ordinary attention
    std::int64_t q_lora = 0;                           // of the queries'; 0: they are projected directly
    std::int64_t qk_nope = 0, qk_rope = 0, v_dim = 0;  // of a head
    std::int64_t qk_size() const { return qk_nope + qk_rope; }
    bool operator==(const LatentAttention&) const = default;
};

struct ModelSpec {
    std::string name;
    std::int64_t layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t attention_heads = 0;
    std::int64_t kv_heads = 0;         // = attention_heads without grouped-query attention
    std::int64_t head_dim = 0;         // not always hidden_size / attention_heads; of latent attention mla.qk_size()
    std::int64_t ffn_hidden_size = 0;  // 0: all layers have experts
    bool gated_mlp = false;            // SwiGLU and its like: two up projections
    std::int64_t vocab_size = 0;
    bool tied_embeddings = false;  // the head is the transposed token embedding
    Positions positions = Positions::rope;
    std::int64_t max_positions = 0;  // longest sequence, as far as the positions limit it
    Norm norm = Norm::rmsnorm;
    double norm_epsilon = 1e-5;
    Activation activation = Activation::silu;
    bool bias = false;            // on every linear layer but the head
    bool attention_bias = false;  // on q, k and v only, where `bias` is false
    double rope_theta = 10000.0;

    bool projection_bias = false;  // on the attention's output, where `bias` is false
    bool mlp_bias = false;         // on both MLP layers, where `bias` is false
    bool head_bias = false;
    bool norm_bias = true;  // of LayerNorm; RMSNorm has none
    Block block = Block::sequential;
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    bool post_norms = false;           // another norm on the output of attention and of MLP (Gemma 2)
    bool embedding_norm = false;       // a norm on the embedded tokens (BLOOM)
    std::int64_t rotary_dim = 0;       // elements of a head that rope turns; 0: all
    std::int64_t position_offset = 0;  // unused rows before the learned positions (OPT: 2)
    bool attention_sinks = false;      // a learned score of each head beside those of the tokens (gpt-oss)
    SlidingWindow sliding_window;
    MixtureOfExperts moe;
    LatentAttention mla;
    // Scaled or capped element by element somewhere that no kernel of ours does (Gemma's embedding, soft
    // caps): no work that counts, but another function.
    bool elementwise_scaling = false;
    std::string note;  // what a reader assumed or left out, for the user

    bool operator==(const ModelSpec&) const = default;

    std::int64_t query_size() const { return attention_heads * head_dim; }
    std::int64_t kv_size() const { return kv_heads * head_dim; }
    std::int64_t qkv_size() const { return query_size() + 2 * kv_size(); }
    std::int64_t fc1_size() const { return (gated_mlp ? 2 : 1) * ffn_hidden_size; }
    std::int64_t position_rows() const { return position_offset + max_positions; }  // of the learned table
    bool qkv_biased() const { return bias || attention_bias; }
    bool projection_biased() const { return bias || projection_bias; }
    bool mlp_biased() const { return bias || mlp_bias; }
    bool norm_biased() const { return norm == Norm::layernorm && norm_bias; }
    std::int64_t value_dim() const { return is_latent() ? mla.v_dim : head_dim; }
    std::int64_t attended_size() const { return attention_heads * value_dim(); }  // what the projection takes
    bool has_experts() const { return moe.experts > 0; }
    bool has_experts(std::int64_t layer) const {
        const std::int64_t after = layer - moe.first_dense_layers;
        return has_experts() && after >= 0 && (after + 1) % moe.every == 0;
    }
    std::int64_t expert_layers() const { return has_experts() ? (layers - moe.first_dense_layers) / moe.every : 0; }
    bool is_latent() const { return mla.kv_lora > 0; }
    bool is_parallel() const { return block != Block::sequential; }
    // The window of a layer for sequences of `length`; 0 where it hides nothing.
    std::int64_t window_of(std::int64_t layer, std::int64_t length) const {
        const SlidingWindow& w = sliding_window;
        const bool full = w.full_every > 0 && (layer + 1) % w.full_every == 0;
        return full || w.size >= length ? 0 : w.size;
    }
};

}  // namespace foretrain
