// One layer of TransformerPasses: attention and MLP, forward and backward. Of a layer with experts only the
// attention is here, of latent attention what follows it.
#include "plan/program/transformer.h"

namespace foretrain {

namespace {

// Names of what residuals add, where the model has them.
std::vector<const char*> biases(bool projection, bool fc2) {
    std::vector<const char*> names;
    if (projection) names.push_back("projection.bias");
    if (fc2) names.push_back("fc2.bias");
    return names;
}

constexpr Pointwise function_of(Activation a) {
    switch (a) {
        case Activation::gelu: return Pointwise::gelu;
        case Activation::silu: return Pointwise::silu;
        case Activation::relu: return Pointwise::relu;
        case Activation::squared_relu: return Pointwise::squared_relu;
    }
    return Pointwise::gelu;
}

}  // namespace

// ---- pieces ---------------------------------------------------------------------------------

void TransformerPasses::activation(bool backward, Tensor dy, Tensor x, Tensor out) {
    activation(backward, dy, x, out, tokens_, f_);
}

void TransformerPasses::activation(bool backward, Tensor dy, Tensor x, Tensor out, std::int64_t rows,
                                   std::int64_t width, bool routed) {
    const std::vector<Tensor> operands = backward ? std::vector<Tensor>{dy, x, out} : std::vector<Tensor>{x, out};
    const Pointwise function = function_of(c_.model.activation);
    if (c_.model.gated_mlp)
        b_.kernel(SwigluArgs{rows, width, backward, w_, function, routed}, operands);
    else
        b_.kernel(GeluArgs{rows, width, backward, w_, function, routed}, operands);
}

void TransformerPasses::rotate(Tensor qkv, bool backward) {
    if (c_.model.positions != Positions::rope) return;
    RopeArgs args{.batch = c_.parallelism.micro_batch_size,
                  .sequence = c_.training.sequence_length,
                  .heads = c_.model.attention_heads / t_,
                  .kv_heads = c_.model.kv_heads / t_,
                  .head_dim = c_.model.head_dim,
                  .theta = c_.model.rope_theta,
                  .backward = backward,
                  .type = w_};
    args.context = context_;
    if (c_.model.rotary_dim < c_.model.head_dim) args.rotary_dim = c_.model.rotary_dim;
    b_.kernel(args, {qkv});
}

void TransformerPasses::normalise_heads(std::int32_t unit, Tensor qkv, Tensor raw, bool backward) {
    if (c_.model.query_key_norm == QueryKeyNorm::none) return;
    const QkNormArgs args{.rows = tokens_,
                          .heads = c_.model.attention_heads / t_,
                          .kv_heads = c_.model.kv_heads / t_,
                          .head_dim = c_.model.head_dim,
                          .per_head = c_.model.query_key_norm == QueryKeyNorm::per_head,
                          .rms = c_.model.norm == Norm::rmsnorm,
                          .backward = backward,
                          .accumulate = accumulate_,
                          .epsilon = c_.model.norm_epsilon,
                          .type = w_,
                          .gradient = g_};
    std::vector<Tensor> operands{qkv, raw, weight(unit, "query_norm.weight"), weight(unit, "key_norm.weight")};
    if (backward) {
        operands.push_back(gradient(unit, "query_norm.weight"));
        operands.push_back(gradient(unit, "key_norm.weight"));
    }
    b_.kernel(args, operands);
}

// ---- forward --------------------------------------------------------------------------------

void TransformerPasses::query_key_value(std::int32_t layer, const LayerTensors& s, Tensor input) {
    if (c_.model.is_latent()) return latent_query_key_value(layer, s);
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const Tensor qkv = exchanges_heads() ? b_.transient("qkv", tokens_ * qkv_, w_) : s.qkv;
    linear(unit, "qkv", c_.model.qkv_biased(), input, qkv, qkv_, h_);
    normalise_heads(unit, qkv, s.raw_qk, false);
    rotate(qkv, false);
    if (exchanges_heads()) by_heads(qkv, s.qkv, qkv_);
    core_attention(layer, s);
}

// The row-parallel product of a branch, complete: in `kept` (R, h) if a post norm reads it later.
TransformerPasses::Tensor TransformerPasses::out_product(std::int32_t unit, const char* name, Tensor x, std::int64_t in,
                                                         OutNames names, Tensor kept) {
    const Tensor partial = kept >= 0 && !split_ ? kept : b_.transient(names.partial, tokens_ * h_, w_);
    linear(unit, name, false, x, partial, h_, in);
    if (kept < 0) return summed(partial, names.sum);
    if (split_)
        b_.reduce_scatter(partial, kept, rows_ * h_);
    else if (t_ > 1)
        b_.all_reduce(kept, tokens_ * h_);
    return kept;
}

AttentionBranch TransformerPasses::attention_forward(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("attention", layer);
    norm_forward(unit, "norm1", s.x, s.norm1);
    const Tensor input = c_.model.is_latent() ? -1 : full(s.norm1, "norm1_full");
    query_key_value(layer, s, input);
    if (c_.model.is_parallel()) {
        const Tensor partial = b_.transient("projected", tokens_ * h_, w_);
        linear(unit, "projection", false, s.context, partial, h_, v_);
        return {input, partial};
    }
    attention_output(layer, s);
    return {};
}

// From the context to y, of blocks that are one after the other.
void TransformerPasses::attention_output(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    Tensor sum = out_product(unit, "projection", s.context, v_, {"projected", "projected_sum"}, s.attended);
    if (c_.model.post_norms) {
        const Tensor normalised = b_.transient("post_attention", rows_ * h_, w_);
        norm_forward(unit, "post_attention", sum, normalised);
        sum = normalised;
    }
    add_residual(unit, biases(c_.model.projection_biased(), false), s.x, sum, s.y);
}

// fc1 and the activation, from the input (T, h).
void TransformerPasses::mlp_products(std::int32_t layer, const LayerTensors& s, Tensor input) {
    linear(unit_of(UnitKind::layer, layer), "fc1", c_.model.mlp_biased(), input, s.fc1, fc1_, h_);
    activation(false, -1, s.fc1, s.act);
}

void TransformerPasses::mlp_forward(std::int32_t layer, const LayerTensors& s, const AttentionBranch& attention,
                                    Tensor out) {
    if (has_experts(layer)) return experts_forward(layer, s, out);
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const bool shared = c_.model.block == Block::parallel_shared_norm;
    b_.section("mlp", layer);
    if (!shared) norm_forward(unit, "norm2", c_.model.is_parallel() ? s.x : s.y, s.norm2);
    mlp_products(layer, s, shared ? attention.input : full(s.norm2, "norm2_full"));
    if (c_.model.is_parallel()) {
        const Tensor partial = b_.transient("mlp", tokens_ * h_, w_);
        linear(unit, "fc2", false, s.act, partial, h_, f_);
        accumulate(attention.partial, partial);
        add_residual(unit, biases(c_.model.projection_biased(), c_.model.mlp_biased()), s.x, summed(partial, "mlp_sum"),
                     out);
        return;
    }
    Tensor sum = out_product(unit, "fc2", s.act, f_, {"mlp", "mlp_sum"}, s.mlp_out);
    if (c_.model.post_norms) {
        const Tensor normalised = b_.transient("post_mlp", rows_ * h_, w_);
        norm_forward(unit, "post_mlp", sum, normalised);
        sum = normalised;
    }
    add_residual(unit, biases(false, c_.model.mlp_biased()), s.y, sum, out);
}

void TransformerPasses::layer_forward_kept(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const bool shared = c_.model.block == Block::parallel_shared_norm;
    Tensor input = -1;
    if (c_.model.is_parallel()) {
        b_.section("attention", layer);
        norm_forward(unit, "norm1", s.x, s.norm1);
        input = full(s.norm1, "norm1_full");
        query_key_value(layer, s, input);
    } else {
        attention_forward(layer, s);
    }
    if (has_experts(layer)) return experts_forward(layer, s, -1);
    b_.section("mlp", layer);
    if (!shared) norm_forward(unit, "norm2", c_.model.is_parallel() ? s.x : s.y, s.norm2);
    mlp_products(layer, s, shared ? input : full(s.norm2, "norm2_full"));
    if (c_.model.post_norms) out_product(unit, "fc2", s.act, f_, {"mlp", "mlp_sum"}, s.mlp_out);
}

void TransformerPasses::layer_forward_between(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const bool shared = c_.model.block == Block::parallel_shared_norm;
    b_.section("attention", layer);
    norm_forward(unit, "norm1", s.x, s.norm1);
    if (!c_.model.is_parallel()) attention_output(layer, s);
    b_.section("mlp", layer);
    if (!shared) norm_forward(unit, "norm2", c_.model.is_parallel() ? s.x : s.y, s.norm2);
    const Tensor input = shared ? full(s.norm1, "norm1_full") : full(s.norm2, "norm2_full");
    linear(unit, "fc1", c_.model.mlp_biased(), input, s.fc1, fc1_, h_);
    if (c_.model.post_norms) out_product(unit, "fc2", s.act, f_, {"mlp", "mlp_sum"}, s.mlp_out);
}

// ---- backward -------------------------------------------------------------------------------

// The gradient of a branch's output (R, h) from that of what joins the residual stream.
TransformerPasses::Tensor TransformerPasses::through_post_norm(std::int32_t unit, const char* name, Tensor dy,
                                                               Tensor x) {
    if (!c_.model.post_norms) return dy;
    const Tensor dx = b_.transient(name, rows_ * h_, w_);
    norm_backward(unit, name, dy, x, -1, dx);
    return dx;
}

// From dfull (T, h), the gradient of the MLP's output, to the partial one (T, h) of its input, which is
// gathered here unless it already is.
TransformerPasses::Tensor TransformerPasses::mlp_products_backward(std::int32_t layer, const LayerTensors& s,
                                                                   Tensor dfull, Tensor& input) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const Tensor dact = b_.transient("dact", tokens_ * f_, w_);
    input_gradient(unit, "fc2.weight", dfull, dact, h_, f_);
    weight_gradient(unit, "fc2.weight", dfull, s.act, h_, f_);
    const Tensor dfc1 = b_.transient("dfc1", tokens_ * fc1_, w_);
    activation(true, dact, s.fc1, dfc1);
    if (c_.model.mlp_biased()) bias_gradient(unit, "fc1.bias", dfc1, tokens_, fc1_);
    if (input < 0) input = full(s.norm2, "norm2_full");
    weight_gradient(unit, "fc1.weight", dfc1, input, fc1_, h_);
    const Tensor partial = b_.transient("dnorm2", tokens_ * h_, w_);
    input_gradient(unit, "fc1.weight", dfc1, partial, fc1_, h_);
    return partial;
}

// The same of the attention.
TransformerPasses::Tensor TransformerPasses::attention_products_backward(std::int32_t layer, const LayerTensors& s,
                                                                         Tensor dfull, Tensor& input) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const Tensor dcontext = b_.transient("dcontext", tokens_ * v_, w_);
    input_gradient(unit, "projection.weight", dfull, dcontext, h_, v_);
    weight_gradient(unit, "projection.weight", dfull, s.context, h_, v_);
    const Tensor dqkv = core_attention_backward(layer, s, dcontext);
    rotate(dqkv, true);
    normalise_heads(unit, dqkv, s.raw_qk, true);
    if (c_.model.qkv_biased()) bias_gradient(unit, "qkv.bias", dqkv, tokens_, qkv_);
    if (input < 0) input = full(s.norm1, "norm1_full");
    weight_gradient(unit, "qkv.weight", dqkv, input, qkv_, h_);
    const Tensor partial = b_.transient("dnorm1", tokens_ * h_, w_);
    input_gradient(unit, "qkv.weight", dqkv, partial, qkv_, h_);
    return partial;
}

void TransformerPasses::mlp_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dy) {
    if (has_experts(layer)) return experts_backward(layer, s, dout, dy);
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("mlp", layer);
    const Tensor dmlp = through_post_norm(unit, "post_mlp", dout, s.mlp_out);
    if (c_.model.mlp_biased()) bias_gradient(unit, "fc2.bias", dmlp, rows_, h_);
    Tensor input = -1;
    const Tensor partial = mlp_products_backward(layer, s, full(dmlp, "dout_full"), input);
    norm_backward(unit, "norm2", summed(partial, "dnorm2_sum"), s.y, dout, dy);
}

void TransformerPasses::attention_backward(std::int32_t layer, const LayerTensors& s, Tensor dy, Tensor dx) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("attention", layer);
    const Tensor dattended = through_post_norm(unit, "post_attention", dy, s.attended);
    if (c_.model.projection_biased()) bias_gradient(unit, "projection.bias", dattended, rows_, h_);
    const Tensor dfull = full(dattended, "dy_full");
    if (c_.model.is_latent())
        return norm_backward(unit, "norm1", latent_products_backward(layer, s, dfull), s.x, dy, dx);
    Tensor input = -1;
    const Tensor partial = attention_products_backward(layer, s, dfull, input);
    norm_backward(unit, "norm1", summed(partial, "dnorm1_sum"), s.x, dy, dx);
}

// Both branches read the gradient of the sum; through a shared norm their own add up first.
void TransformerPasses::parallel_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dx) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const bool shared = c_.model.block == Block::parallel_shared_norm;
    b_.section("mlp", layer);
    for (const char* bias : biases(c_.model.projection_biased(), c_.model.mlp_biased()))
        bias_gradient(unit, bias, dout, rows_, h_);
    const Tensor dfull = full(dout, "dout_full");
    Tensor input = -1, residual = dout;
    const Tensor dmlp = mlp_products_backward(layer, s, dfull, input);
    if (!shared) {
        residual = b_.transient("dmlp", rows_ * h_, w_);
        norm_backward(unit, "norm2", summed(dmlp, "dnorm2_sum"), s.x, dout, residual);
        input = -1;
    }
    b_.section("attention", layer);
    const Tensor dattention = attention_products_backward(layer, s, dfull, input);
    if (shared) accumulate(dmlp, dattention);
    norm_backward(unit, "norm1", summed(dattention, "dnorm1_sum"), s.x, residual, dx);
}

// One mask for each branch's output.
std::int64_t TransformerPasses::mask_elements() const { return c_.memory.dropout_masks ? 2 * stream_elements() : 0; }

std::int64_t TransformerPasses::statistics_elements() const {
    const std::int64_t norms = c_.model.block == Block::parallel_shared_norm ? 1 : 2;
    return c_.memory.norm_statistics * norms * rows_;
}

void TransformerPasses::hold_kept(const LayerTensors& s) {
    for (const Tensor t : {s.masks, s.statistics, s.second_output}) b_.hold(t);
}

void TransformerPasses::layer_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dx) {
    if (c_.model.is_parallel()) return parallel_backward(layer, s, dout, dx);
    b_.section("mlp", layer);
    const Tensor dy = b_.transient("dy", rows_ * h_, w_);
    mlp_backward(layer, s, dout, dy);
    attention_backward(layer, s, dy, dx);
}

}  // namespace foretrain
