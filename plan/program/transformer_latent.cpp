// Latent attention of TransformerPasses (DeepSeek-V2, arXiv:2405.04434): what comes before the core attention, and
// its way back. Queries, keys and values pass through latents that every tensor rank computes whole, of its rows R
// alone under sequence parallelism, as Megatron-LM's multi_latent_attention.py does; the narrow latents are then
// gathered in place of the hidden state.
//
//   q_latent (R, q_lora), kv_latent (R, kv_lora + rope) -> norms -> q (T, a qk / t), kv (T, a (nope + v) / t)
//                                                       -> packed qkv (T, a (2 qk + v) / t)
#include "plan/program/transformer.h"

namespace foretrain {

LatentPackArgs TransformerPasses::pack_args(bool unpack) const {
    const LatentAttention& a = c_.model.mla;
    return {tokens_, c_.model.attention_heads / t_, a.qk_nope, a.qk_rope, a.v_dim, unpack, w_};
}

// Always an RMSNorm. Columns beyond its width go to `rest`, if there are any.
void TransformerPasses::latent_norm(std::int32_t unit, const char* name, Tensor x, Tensor y, Tensor rest) {
    const LatentAttention& a = c_.model.mla;
    NormForwardArgs args{.rows = rows_,
                         .width = rest >= 0 ? a.kv_lora : a.q_lora,
                         .rms = true,
                         .epsilon = c_.model.norm_epsilon,
                         .type = w_};
    args.rest = rest >= 0 ? a.qk_rope : 0;
    std::vector<Tensor> operands{x, y, weight(unit, name)};
    if (rest >= 0) operands.push_back(rest);
    b_.kernel(args, operands);
}

TransformerPasses::Tensor TransformerPasses::latent_norm_backward(std::int32_t unit, const char* name, Tensor dy,
                                                                  Tensor x, Tensor drest) {
    const LatentAttention& a = c_.model.mla;
    NormBackwardArgs args{.rows = rows_,
                          .width = drest >= 0 ? a.kv_lora : a.q_lora,
                          .rms = true,
                          .residual = false,
                          .accumulate = accumulate_,
                          .epsilon = c_.model.norm_epsilon,
                          .type = w_,
                          .gradient = g_};
    args.rest = drest >= 0 ? a.qk_rope : 0;
    const Tensor dx = b_.transient("dlatent", rows_ * (args.width + args.rest), w_);
    std::vector<Tensor> operands{dy, x, weight(unit, name), dx, gradient(unit, name)};
    if (drest >= 0) operands.push_back(drest);
    b_.kernel(args, operands);
    return dx;
}

void TransformerPasses::latent_query_key_value(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const LatentAttention& a = c_.model.mla;
    const std::int64_t latent = a.kv_lora + a.qk_rope, kv = c_.model.attention_heads / t_ * (a.qk_nope + a.v_dim);
    const Tensor q = b_.transient("q", tokens_ * q_, w_);
    if (a.q_lora > 0) {
        linear(unit, "q_down", false, s.norm1, s.q_latent, {rows_, a.q_lora, h_});
        latent_norm(unit, "q_norm.weight", s.q_latent, s.q_norm, -1);
        linear(unit, "q_up", false, full(s.q_norm, "q_norm_full", a.q_lora), q, q_, a.q_lora);
    } else {
        linear(unit, "q", false, full(s.norm1, "norm1_full"), q, q_, h_);
    }
    linear(unit, "kv_down", false, s.norm1, s.kv_latent, {rows_, latent, h_});
    const Tensor k_rope = b_.transient("k_rope", rows_ * a.qk_rope, w_);
    latent_norm(unit, "kv_norm.weight", s.kv_latent, s.kv_norm, k_rope);
    const Tensor pairs = b_.transient("kv", tokens_ * kv, w_);
    linear(unit, "kv_up", false, full(s.kv_norm, "kv_norm_full", a.kv_lora), pairs, kv, a.kv_lora);
    const Tensor qkv = exchanges_heads() ? b_.transient("qkv", tokens_ * qkv_, w_) : s.qkv;
    b_.kernel(pack_args(false), {q, pairs, full(k_rope, "k_rope_full", a.qk_rope), qkv});
    if (exchanges_heads()) by_heads(qkv, s.qkv, qkv_);
    core_attention(layer, s);
}

// The gradient (R, h) of the normalised input, complete, from that of the attention's output (T, h).
TransformerPasses::Tensor TransformerPasses::latent_products_backward(std::int32_t layer, const LayerTensors& s,
                                                                      Tensor dfull) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const LatentAttention& a = c_.model.mla;
    const std::int64_t latent = a.kv_lora + a.qk_rope, kv = c_.model.attention_heads / t_ * (a.qk_nope + a.v_dim);
    const Tensor dcontext = b_.transient("dcontext", tokens_ * v_, w_);
    input_gradient(unit, "projection.weight", dfull, dcontext, h_, v_);
    weight_gradient(unit, "projection.weight", dfull, s.context, h_, v_);
    const Tensor dqkv = core_attention_backward(layer, s, dcontext);
    const Tensor dq = b_.transient("dq", tokens_ * q_, w_), dkv = b_.transient("dkv_heads", tokens_ * kv, w_),
                 dk_rope = b_.transient("dk_rope", tokens_ * a.qk_rope, w_);
    b_.kernel(pack_args(true), {dqkv, dq, dkv, dk_rope});

    weight_gradient(unit, "kv_up.weight", dkv, full(s.kv_norm, "kv_norm_full", a.kv_lora), kv, a.kv_lora);
    const Tensor dkv_partial = b_.transient("dkv_norm", tokens_ * a.kv_lora, w_);
    input_gradient(unit, "kv_up.weight", dkv, dkv_partial, kv, a.kv_lora);
    const Tensor dkv_latent =
        latent_norm_backward(unit, "kv_norm.weight", summed(dkv_partial, "dkv_norm_sum", a.kv_lora), s.kv_latent,
                             summed(dk_rope, "dk_rope_sum", a.qk_rope));
    weight_gradient(unit, "kv_down.weight", dkv_latent, s.norm1, {rows_, latent, h_});
    const Tensor dx_kv = b_.transient("dnorm1_kv", rows_ * h_, w_);
    input_gradient(unit, "kv_down.weight", dkv_latent, dx_kv, {rows_, latent, h_});

    Tensor dx_q = -1;
    if (a.q_lora > 0) {
        weight_gradient(unit, "q_up.weight", dq, full(s.q_norm, "q_norm_full", a.q_lora), q_, a.q_lora);
        const Tensor partial = b_.transient("dq_norm", tokens_ * a.q_lora, w_);
        input_gradient(unit, "q_up.weight", dq, partial, q_, a.q_lora);
        const Tensor dlatent =
            latent_norm_backward(unit, "q_norm.weight", summed(partial, "dq_norm_sum", a.q_lora), s.q_latent, -1);
        weight_gradient(unit, "q_down.weight", dlatent, s.norm1, {rows_, a.q_lora, h_});
        dx_q = b_.transient("dnorm1_q", rows_ * h_, w_);
        input_gradient(unit, "q_down.weight", dlatent, dx_q, {rows_, a.q_lora, h_});
    } else {
        weight_gradient(unit, "q.weight", dq, full(s.norm1, "norm1_full"), q_, h_);
        const Tensor partial = b_.transient("dnorm1_q", tokens_ * h_, w_);
        input_gradient(unit, "q.weight", dq, partial, q_, h_);
        dx_q = summed(partial, "dnorm1_q_sum");
    }
    add_rows(dx_q, dx_kv, dx_kv);
    return dx_kv;
}

}  // namespace foretrain
