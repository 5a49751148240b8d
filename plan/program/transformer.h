// The transformer as kernels: forward and backward of embedding, layer and head, under tensor and
// sequence parallelism. The only place that knows what a layer computes.
//
// Notation of the comments: T tokens of a microbatch on this rank (s/c of each sequence of s, with c
// context ranks), R rows of the residual stream on this rank
// (R = T, or T/t under sequence parallelism), h hidden, a heads, g key-value heads, d head_dim,
// f ffn, V padded vocabulary, t tensor ranks. The residual stream is (R, h); a column-parallel linear
// layer reads (T, h), a row-parallel one leaves partial sums (T, h) that an all-reduce, or under
// sequence parallelism a reduce-scatter, completes (Megatron-LM, arXiv:1909.08053 and 2205.05198).
// A parallel block adds the partial sums of attention and MLP first and completes them once.
#pragma once

#include "plan/program/pass_builder.h"

namespace foretrain {

// What one layer keeps for its backward pass. Tensors of the pass at hand.
struct LayerTensors {
    PassBuilder::Tensor x = -1;         // (R, h) input
    PassBuilder::Tensor norm1 = -1;     // (R, h)
    PassBuilder::Tensor qkv = -1;       // (T, (a + 2g) d / t), normalised and rotated; of all-to-all by heads
    PassBuilder::Tensor context = -1;   // (T, a d / t)
    PassBuilder::Tensor lse = -1;       // (T, a / t)
    PassBuilder::Tensor y = -1;         // (R, h) after attention; none in a parallel block
    PassBuilder::Tensor norm2 = -1;     // (R, h); norm1 again in a parallel block that shares it
    PassBuilder::Tensor fc1 = -1;       // (T, f / t), twice as wide if gated
    PassBuilder::Tensor act = -1;       // (T, f / t)
    PassBuilder::Tensor raw_qk = -1;    // (T, (a + g) d / t) before the query-key norm, if there is one
    PassBuilder::Tensor attended = -1;  // (R, h) of the attention, and
    PassBuilder::Tensor mlp_out = -1;   // (R, h) of the MLP: what post norms read, if there are any
    PassBuilder::Tensor scores = -1;    // (b a / t, s, s) bytes, if attention is not fused
    // Of latent attention, whose qkv is (T, a (2 qk + v) / t) and context (T, a v / t).
    PassBuilder::Tensor q_latent = -1;   // (R, q_lora), and
    PassBuilder::Tensor q_norm = -1;     // the same normalised; none where queries are projected directly
    PassBuilder::Tensor kv_latent = -1;  // (R, kv_lora + rope)
    PassBuilder::Tensor kv_norm = -1;    // (R, kv_lora)
    // Of a layer with experts, whose fc1 and act are those of all rows that come to its local ones.
    PassBuilder::Tensor logits = -1, scored = -1, chosen = -1;  // (R, E) each: the router's
    PassBuilder::Tensor dispatched = -1;                        // (rows, h) sorted by expert
    PassBuilder::Tensor weighted = -1;                          // (rows, f): act times its weight, if not gated
    PassBuilder::Tensor shared_fc1 = -1, shared_act = -1;       // as fc1 and act, of the shared experts
    // Of other frameworks, bytes: of dropout, and (R) of norms. second_output is context again.
    PassBuilder::Tensor masks = -1, statistics = -1, second_output = -1;
};

// What the attention of a parallel block leaves to the MLP, with which it shares its collectives.
struct AttentionBranch {
    PassBuilder::Tensor input = -1;    // (T, h) gathered norm1
    PassBuilder::Tensor partial = -1;  // (T, h) partial sums of the output
};

struct HeadTensors {
    PassBuilder::Tensor x = -1;        // (R, h) input
    PassBuilder::Tensor norm = -1;     // (R, h)
    PassBuilder::Tensor logits = -1;   // (T, V / t), in fp32 if the framework keeps such a copy
    PassBuilder::Tensor lse = -1;      // (T)
    PassBuilder::Tensor targets = -1;  // (T) int32
};

class TransformerPasses {
public:
    using Tensor = PassBuilder::Tensor;
    TransformerPasses(const StageContext& context, const Stage& stage, PassBuilder& builder);

    // x (R, h) from tokens (T); `embedded` (R, h) is x before a norm of the embedding, if there is one.
    void embedding_forward(Tensor tokens, Tensor embedded, Tensor x);
    void embedding_backward(Tensor tokens, Tensor embedded, Tensor dx);

    AttentionBranch attention_forward(std::int32_t layer, const LayerTensors& s);  // x -> y, or the branch
    void mlp_forward(std::int32_t layer, const LayerTensors& s, const AttentionBranch& attention, Tensor out);
    // The tensors of `s` and no more: what a recompute needs if it stops early.
    void layer_forward_kept(std::int32_t layer, const LayerTensors& s);
    // What the backward pass reads beside qkv, context, lse and act, which are at hand.
    void layer_forward_between(std::int32_t layer, const LayerTensors& s);
    void core_attention(std::int32_t layer, const LayerTensors& s);  // qkv -> context, lse
    // dx (R, h) from dout (R, h); accumulates the layer's weight gradients.
    void layer_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dx);

    void hold_kept(const LayerTensors& s);  // what no kernel reads, up to where the pass has got to

    void head_forward(const HeadTensors& s, Tensor loss);
    void head_backward(const HeadTensors& s, Tensor dx);

    // Elements on this rank.
    std::int64_t stream_elements() const { return rows_ * h_; }
    std::int64_t qkv_elements() const { return tokens_ * qkv_; }
    std::int64_t context_elements() const { return tokens_ * v_; }
    std::int64_t lse_elements() const { return tokens_ * c_.model.attention_heads / t_; }
    std::int64_t fc1_elements() const { return tokens_ * fc1_; }
    std::int64_t act_elements() const { return tokens_ * f_; }
    std::int64_t routed_elements() const { return rows_ * share_.experts; }
    std::int64_t dispatched_elements() const { return share_.gathered() * h_; }
    std::int64_t expert_act_elements() const { return share_.gathered() * share_.ffn; }
    std::int64_t shared_act_elements() const { return tokens_ * shared_; }
    std::int64_t latent_elements(std::int64_t width) const { return rows_ * width; }
    bool has_experts(std::int32_t layer) const;
    std::int64_t raw_qk_elements() const { return tokens_ * (q_ + c_.model.kv_size() / t_); }
    std::int64_t logit_elements() const { return tokens_ * vocab_; }
    std::int64_t score_elements(std::int32_t layer) const;  // bytes
    std::int64_t mask_elements() const;                     // bytes
    std::int64_t statistics_elements() const;               // bytes

private:
    Tensor full(Tensor rows, const char* what);       // (R, h) -> (T, h)
    Tensor summed(Tensor partial, const char* what);  // (T, h) partial -> (R, h)
    Tensor full(Tensor rows, const char* what, std::int64_t width);
    Tensor summed(Tensor partial, const char* what, std::int64_t width);
    void norm_forward(std::int32_t unit, const char* name, Tensor x, Tensor y);
    void norm_backward(std::int32_t unit, const char* name, Tensor dy, Tensor x, Tensor residual, Tensor dx);
    void linear(std::int32_t unit, const char* name, bool bias, Tensor x, Tensor y, std::int64_t out, std::int64_t in);
    void input_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor dx, std::int64_t out, std::int64_t in);
    void weight_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor x, std::int64_t out, std::int64_t in);
    // The same over other rows than T, and over products of several experts.
    struct Product {
        std::int64_t rows = 0, out = 0, in = 0, groups = 1;
        bool exact = false;  // in the activations' type, where others are quantised
    };
    void linear(std::int32_t unit, const char* name, bool bias, Tensor x, Tensor y, const Product& p);
    void input_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor dx, const Product& p);
    void weight_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor x, const Product& p);
    void add_rows(Tensor x, Tensor y, Tensor sum);  // all (R, h)
    void bias_gradient(std::int32_t unit, const char* name, Tensor dy, std::int64_t rows, std::int64_t width);
    void add_residual(std::int32_t unit, const std::vector<const char*>& biases, Tensor x, Tensor r, Tensor y);
    void accumulate(Tensor x, Tensor y);  // y += x, both (T, h)
    void activation(bool backward, Tensor dy, Tensor x, Tensor out);
    void activation(bool backward, Tensor dy, Tensor x, Tensor out, std::int64_t rows, std::int64_t width,
                    bool routed = false);
    void rotate(Tensor qkv, bool backward);
    void normalise_heads(std::int32_t unit, Tensor qkv, Tensor raw, bool backward);
    // Across the context ranks (transformer_context.cpp).
    bool exchanges_heads() const;
    void by_heads(Tensor x, Tensor y, std::int64_t width);
    void by_tokens(Tensor x, Tensor y, std::int64_t width);
    RingAttentionArgs ring_step(std::int64_t step, bool backward) const;
    KeyValueArgs key_value(bool unpack) const;
    void ring_attention(const LayerTensors& s);
    Tensor ring_attention_backward(const LayerTensors& s, Tensor dcontext);
    Tensor core_attention_backward(std::int32_t layer, const LayerTensors& s, Tensor dcontext);
    // Latent attention (transformer_latent.cpp).
    void latent_query_key_value(std::int32_t layer, const LayerTensors& s);
    Tensor latent_products_backward(std::int32_t layer, const LayerTensors& s, Tensor dfull);
    void latent_norm(std::int32_t unit, const char* name, Tensor x, Tensor y, Tensor rest);
    Tensor latent_norm_backward(std::int32_t unit, const char* name, Tensor dy, Tensor x, Tensor drest);
    LatentPackArgs pack_args(bool unpack) const;
    // Experts (transformer_experts.cpp).
    void experts_forward(std::int32_t layer, const LayerTensors& s, Tensor out);
    void expert_products(std::int32_t layer, const LayerTensors& s);
    void experts_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dy);
    Tensor routed_backward(std::int32_t layer, const LayerTensors& s, Tensor dout);
    Tensor router_backward(std::int32_t layer, const LayerTensors& s);
    Tensor shared_forward(std::int32_t layer, const LayerTensors& s, bool kept);
    Tensor shared_backward(std::int32_t layer, const LayerTensors& s, Tensor dout);
    void permute(Tensor x, Tensor y, std::int64_t from, std::int64_t to, std::int64_t width);
    bool sorts() const;
    void dispatch(Tensor rows, Tensor to);
    Tensor combine(Tensor from);
    template <class Args>
    Args attention_args(std::int32_t layer) const;
    void query_key_value(std::int32_t layer, const LayerTensors& s, Tensor input);
    void attention_output(std::int32_t layer, const LayerTensors& s);
    void mlp_products(std::int32_t layer, const LayerTensors& s, Tensor input);
    struct OutNames {
        const char *partial, *sum;
    };
    Tensor out_product(std::int32_t unit, const char* name, Tensor x, std::int64_t in, OutNames names, Tensor kept);
    Tensor through_post_norm(std::int32_t unit, const char* name, Tensor dy, Tensor x);
    Tensor attention_products_backward(std::int32_t layer, const LayerTensors& s, Tensor dfull, Tensor& input);
    Tensor mlp_products_backward(std::int32_t layer, const LayerTensors& s, Tensor dfull, Tensor& input);
    void attention_backward(std::int32_t layer, const LayerTensors& s, Tensor dy, Tensor dx);
    void mlp_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dy);
    void parallel_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dx);
    std::int64_t window(std::int32_t layer) const;
    std::int32_t unit_of(UnitKind kind, std::int32_t layer = -1) const;
    std::int32_t tensor_of(std::int32_t unit, const char* name) const;
    std::optional<DType> products_of(std::int32_t unit) const;  // that products with its weights compute in
    Tensor weight(std::int32_t unit, const char* name) { return b_.weight(unit, tensor_of(unit, name)); }
    Tensor gradient(std::int32_t unit, const char* name) { return b_.gradient(unit, tensor_of(unit, name)); }

    const StageContext& c_;
    const Stage& stage_;
    PassBuilder& b_;
    std::int64_t t_, context_, tokens_, rows_, h_, q_, qkv_, v_, f_, fc1_, shared_, vocab_;  // v_: of the context
    ExpertShare share_;
    bool split_;       // sequence parallel
    bool accumulate_;  // gradients add up over microbatches in place
    DType w_, g_;
};

}  // namespace foretrain
