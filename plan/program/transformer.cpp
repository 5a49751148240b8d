#include "plan/program/transformer.h"

#include "base/error.h"

namespace foretrain {

TransformerPasses::TransformerPasses(const StageContext& context, const Stage& stage, PassBuilder& builder)
    : c_(context),
      stage_(stage),
      b_(builder),
      t_(context.parallelism.tensor),
      tokens_(context.tokens()),
      rows_(context.rows()),
      h_(context.model.hidden_size),
      q_(context.model.query_size() / t_),
      qkv_(context.model.qkv_size() / t_),
      f_(context.model.ffn_hidden_size / t_),
      fc1_(context.model.fc1_size() / t_),
      vocab_(context.vocabulary / t_),
      split_(context.parallelism.sequence_parallel),
      accumulate_(context.zero <= 1),
      w_(context.types.weight),
      g_(context.types.gradient) {}

std::int32_t TransformerPasses::unit_of(UnitKind kind, std::int32_t layer) const {
    for (std::size_t u = 0; u < stage_.units.size(); ++u)
        if (stage_.unit_shapes[static_cast<std::size_t>(stage_.units[u].shape)].kind == kind &&
            stage_.units[u].layer == layer)
            return static_cast<std::int32_t>(u);
    throw InternalError("the stage has no such unit");
}

std::int32_t TransformerPasses::tensor_of(std::int32_t unit, const char* name) const {
    const StageUnit& u = stage_.units[static_cast<std::size_t>(unit)];
    return stage_.unit_shapes[static_cast<std::size_t>(u.shape)].find(name);
}

// ---- pieces ---------------------------------------------------------------------------------

TransformerPasses::Tensor TransformerPasses::full(Tensor rows, const char* what) {
    if (!split_) return rows;
    const Tensor whole = b_.transient(what, tokens_ * h_, w_);
    b_.all_gather(rows, whole, rows_ * h_);
    return whole;
}

TransformerPasses::Tensor TransformerPasses::summed(Tensor partial, const char* what) {
    if (t_ == 1) return partial;
    if (!split_) {
        b_.all_reduce(partial, tokens_ * h_);
        return partial;
    }
    const Tensor part = b_.transient(what, rows_ * h_, w_);
    b_.reduce_scatter(partial, part, rows_ * h_);
    return part;
}

void TransformerPasses::norm_forward(std::int32_t unit, const char* name, Tensor x, Tensor y) {
    const bool rms = c_.model.norm == Norm::rmsnorm;
    const std::string n(name);
    std::vector<Tensor> operands{x, y, weight(unit, (n + ".weight").c_str())};
    if (!rms) operands.push_back(weight(unit, (n + ".bias").c_str()));
    b_.kernel(NormForwardArgs{.rows = rows_, .width = h_, .rms = rms, .epsilon = c_.model.norm_epsilon, .type = w_},
              operands);
}

void TransformerPasses::norm_backward(std::int32_t unit, const char* name, Tensor dy, Tensor x, Tensor residual,
                                      Tensor dx) {
    const bool rms = c_.model.norm == Norm::rmsnorm;
    const std::string n(name);
    std::vector<Tensor> operands{dy, x};
    if (residual >= 0) operands.push_back(residual);
    operands.push_back(weight(unit, (n + ".weight").c_str()));
    operands.push_back(dx);
    operands.push_back(gradient(unit, (n + ".weight").c_str()));
    if (!rms) operands.push_back(gradient(unit, (n + ".bias").c_str()));
    b_.kernel(NormBackwardArgs{.rows = rows_, .width = h_, .rms = rms, .residual = residual >= 0,
                               .accumulate = accumulate_, .epsilon = c_.model.norm_epsilon, .type = w_, .gradient = g_},
              operands);
}

// y (T, out) = x (T, in) W^T (in, out) [+ bias]
void TransformerPasses::linear(std::int32_t unit, const char* name, bool bias, Tensor x, Tensor y, std::int64_t out,
                               std::int64_t in) {
    const std::string n(name);
    std::vector<Tensor> operands{x, weight(unit, (n + ".weight").c_str()), y};
    if (bias) operands.push_back(weight(unit, (n + ".bias").c_str()));
    b_.kernel(GemmArgs{.m = tokens_, .n = out, .k = in, .transpose_b = true, .bias = bias, .type = w_, .output = w_},
              operands);
}

// dx (T, in) = dy (T, out) W (out, in)
void TransformerPasses::input_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor dx, std::int64_t out,
                                       std::int64_t in) {
    b_.kernel(GemmArgs{.m = tokens_, .n = in, .k = out, .role = GemmRole::input_gradient, .type = w_, .output = w_},
              {dy, weight(unit, name), dx});
}

// dW (out, in) [+]= dy^T (out, T) x (T, in)
void TransformerPasses::weight_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor x, std::int64_t out,
                                        std::int64_t in) {
    b_.kernel(GemmArgs{.m = out, .n = in, .k = tokens_, .transpose_a = true, .accumulate = accumulate_,
                       .role = GemmRole::weight_gradient, .type = w_, .output = g_},
              {dy, x, gradient(unit, name)});
}

void TransformerPasses::bias_gradient(std::int32_t unit, const char* name, Tensor dy, std::int64_t rows,
                                      std::int64_t width) {
    b_.kernel(BiasGradientArgs{.rows = rows, .width = width, .accumulate = accumulate_, .type = w_, .gradient = g_},
              {dy, gradient(unit, name)});
}

// y = x + r [+ bias]
void TransformerPasses::add_residual(std::int32_t unit, const char* name, Tensor x, Tensor r, Tensor y) {
    const ResidualAddArgs args{.rows = rows_, .width = h_, .bias = c_.model.bias, .type = w_};
    if (c_.model.bias)
        b_.kernel(args, {x, r, y, weight(unit, name)});
    else
        b_.kernel(args, {x, r, y});
}

void TransformerPasses::activation(bool backward, Tensor dy, Tensor x, Tensor out) {
    const std::vector<Tensor> operands = backward ? std::vector<Tensor>{dy, x, out} : std::vector<Tensor>{x, out};
    if (c_.model.gated_mlp)
        b_.kernel(SwigluArgs{.rows = tokens_, .width = f_, .backward = backward, .type = w_}, operands);
    else
        b_.kernel(GeluArgs{.rows = tokens_, .width = f_, .backward = backward, .type = w_}, operands);
}

void TransformerPasses::rotate(Tensor qkv, bool backward) {
    if (c_.model.positions != Positions::rope) return;
    b_.kernel(RopeArgs{.batch = c_.parallelism.micro_batch_size, .sequence = c_.training.sequence_length,
                       .heads = c_.model.attention_heads / t_, .kv_heads = c_.model.kv_heads / t_,
                       .head_dim = c_.model.head_dim, .theta = c_.model.rope_theta, .backward = backward, .type = w_},
              {qkv});
}

// ---- embedding ------------------------------------------------------------------------------

void TransformerPasses::embedding_forward(Tensor tokens, Tensor x) {
    const std::int32_t unit = unit_of(UnitKind::embedding);
    const EmbeddingArgs args{.tokens = tokens_, .rows = vocab_, .width = h_, .type = w_, .gradient = g_};
    const Tensor partial = split_ ? b_.transient("embedded", tokens_ * h_, w_) : x;
    b_.kernel(args, {tokens, weight(unit, "embedding.weight"), partial});
    if (split_)
        b_.reduce_scatter(partial, x, rows_ * h_);
    else if (t_ > 1)
        b_.all_reduce(x, tokens_ * h_);
    if (c_.model.positions == Positions::learned)
        b_.kernel(PositionsArgs{.tokens = rows_, .sequence = c_.training.sequence_length,
                                .table_rows = c_.model.max_positions, .width = h_, .split_tokens = split_, .type = w_,
                                .gradient = g_},
                  {x, weight(unit_of(UnitKind::positions), "positions.weight")});
}

void TransformerPasses::embedding_backward(Tensor tokens, Tensor dx) {
    if (c_.model.positions == Positions::learned)
        b_.kernel(PositionsArgs{.tokens = rows_, .sequence = c_.training.sequence_length,
                                .table_rows = c_.model.max_positions, .width = h_, .split_tokens = split_,
                                .backward = true, .accumulate = accumulate_, .type = w_, .gradient = g_},
                  {dx, gradient(unit_of(UnitKind::positions), "positions.weight")});
    b_.kernel(EmbeddingArgs{.tokens = tokens_, .rows = vocab_, .width = h_, .backward = true,
                            .accumulate = accumulate_, .type = w_, .gradient = g_},
              {tokens, full(dx, "dx_full"), gradient(unit_of(UnitKind::embedding), "embedding.weight")});
}

// ---- layer ----------------------------------------------------------------------------------

void TransformerPasses::core_attention(std::int32_t layer, const LayerTensors& s) {
    b_.section("attention", layer);
    b_.kernel(AttentionForwardArgs{.batch = c_.parallelism.micro_batch_size, .sequence = c_.training.sequence_length,
                                   .heads = c_.model.attention_heads / t_, .kv_heads = c_.model.kv_heads / t_,
                                   .head_dim = c_.model.head_dim, .type = w_},
              {s.qkv, s.context, s.lse});
}

void TransformerPasses::attention_forward(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("attention", layer);
    norm_forward(unit, "norm1", s.x, s.norm1);
    linear(unit, "qkv", c_.model.qkv_bias(), full(s.norm1, "norm1_full"), s.qkv, qkv_, h_);
    rotate(s.qkv, false);
    core_attention(layer, s);
    const Tensor partial = b_.transient("projected", tokens_ * h_, w_);
    linear(unit, "projection", false, s.context, partial, h_, q_);
    add_residual(unit, "projection.bias", s.x, summed(partial, "projected_sum"), s.y);
}

void TransformerPasses::mlp_forward_kept(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("mlp", layer);
    norm_forward(unit, "norm2", s.y, s.norm2);
    linear(unit, "fc1", c_.model.bias, full(s.norm2, "norm2_full"), s.fc1, fc1_, h_);
    activation(false, -1, s.fc1, s.act);
}

void TransformerPasses::mlp_forward(std::int32_t layer, const LayerTensors& s, Tensor out) {
    mlp_forward_kept(layer, s);
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const Tensor partial = b_.transient("mlp", tokens_ * h_, w_);
    linear(unit, "fc2", false, s.act, partial, h_, f_);
    add_residual(unit, "fc2.bias", s.y, summed(partial, "mlp_sum"), out);
}

void TransformerPasses::mlp_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dy) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("mlp", layer);
    if (c_.model.bias) bias_gradient(unit, "fc2.bias", dout, rows_, h_);
    const Tensor dfull = full(dout, "dout_full");
    const Tensor dact = b_.transient("dact", tokens_ * f_, w_);
    input_gradient(unit, "fc2.weight", dfull, dact, h_, f_);
    weight_gradient(unit, "fc2.weight", dfull, s.act, h_, f_);
    const Tensor dfc1 = b_.transient("dfc1", tokens_ * fc1_, w_);
    activation(true, dact, s.fc1, dfc1);
    if (c_.model.bias) bias_gradient(unit, "fc1.bias", dfc1, tokens_, fc1_);
    weight_gradient(unit, "fc1.weight", dfc1, full(s.norm2, "norm2_full"), fc1_, h_);
    const Tensor partial = b_.transient("dnorm2", tokens_ * h_, w_);
    input_gradient(unit, "fc1.weight", dfc1, partial, fc1_, h_);
    norm_backward(unit, "norm2", summed(partial, "dnorm2_sum"), s.y, dout, dy);
}

void TransformerPasses::attention_backward(std::int32_t layer, const LayerTensors& s, Tensor dy, Tensor dx) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("attention", layer);
    if (c_.model.bias) bias_gradient(unit, "projection.bias", dy, rows_, h_);
    const Tensor dfull = full(dy, "dy_full");
    const Tensor dcontext = b_.transient("dcontext", tokens_ * q_, w_);
    input_gradient(unit, "projection.weight", dfull, dcontext, h_, q_);
    weight_gradient(unit, "projection.weight", dfull, s.context, h_, q_);
    const Tensor dqkv = b_.transient("dqkv", tokens_ * qkv_, w_);
    b_.kernel(AttentionBackwardArgs{.batch = c_.parallelism.micro_batch_size,
                                    .sequence = c_.training.sequence_length, .heads = c_.model.attention_heads / t_,
                                    .kv_heads = c_.model.kv_heads / t_, .head_dim = c_.model.head_dim, .type = w_},
              {dcontext, s.qkv, s.context, s.lse, dqkv});
    rotate(dqkv, true);
    if (c_.model.qkv_bias()) bias_gradient(unit, "qkv.bias", dqkv, tokens_, qkv_);
    weight_gradient(unit, "qkv.weight", dqkv, full(s.norm1, "norm1_full"), qkv_, h_);
    const Tensor partial = b_.transient("dnorm1", tokens_ * h_, w_);
    input_gradient(unit, "qkv.weight", dqkv, partial, qkv_, h_);
    norm_backward(unit, "norm1", summed(partial, "dnorm1_sum"), s.x, dy, dx);
}

void TransformerPasses::layer_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dx) {
    b_.section("mlp", layer);
    const Tensor dy = b_.transient("dy", rows_ * h_, w_);
    mlp_backward(layer, s, dout, dy);
    attention_backward(layer, s, dy, dx);
}

// ---- head -----------------------------------------------------------------------------------

void TransformerPasses::head_forward(const HeadTensors& s, Tensor loss) {
    const std::int32_t head = unit_of(UnitKind::head);
    const DType kept = c_.loss_fp32_copy ? DType::fp32 : w_;
    b_.section("head");
    norm_forward(unit_of(UnitKind::final_norm), "final_norm", s.x, s.norm);
    const Tensor input = full(s.norm, "norm_full");
    const Tensor logits = kept == w_ ? s.logits : b_.transient("logits16", tokens_ * vocab_, w_);
    b_.kernel(GemmArgs{.m = tokens_, .n = vocab_, .k = h_, .transpose_b = true, .type = w_, .output = w_},
              {input, weight(head, ".weight"), logits});
    if (logits != s.logits) b_.kernel(CastArgs{.elements = tokens_ * vocab_, .from = w_, .to = kept}, {logits, s.logits});
    LossArgs args{.part = LossArgs::Part::maximum, .tokens = tokens_, .columns = vocab_,
                  .vocabulary = c_.model.vocab_size, .type = kept, .gradient = w_};
    const Tensor maximum = b_.transient("maximum", tokens_, c_.statistics);
    b_.kernel(args, {s.logits, maximum});
    if (t_ > 1) b_.all_reduce(maximum, tokens_, Reduction::maximum);
    const Tensor sums = b_.transient("sums", 2 * tokens_, c_.statistics);
    args.part = LossArgs::Part::sum;
    b_.kernel(args, {s.logits, maximum, s.targets, sums});
    if (t_ > 1) b_.all_reduce(sums, 2 * tokens_);
    args.part = LossArgs::Part::forward;
    b_.kernel(args, {maximum, sums, s.lse, loss});
}

void TransformerPasses::head_backward(const HeadTensors& s, Tensor dx) {
    const std::int32_t head = unit_of(UnitKind::head);
    const DType kept = c_.loss_fp32_copy ? DType::fp32 : w_;
    b_.section("head");
    const double tokens = static_cast<double>(c_.training.global_batch_size * c_.training.sequence_length);
    const Tensor dlogits = kept == w_ ? s.logits : b_.transient("dlogits", tokens_ * vocab_, w_);
    b_.kernel(LossArgs{.part = LossArgs::Part::backward, .tokens = tokens_, .columns = vocab_,
                       .vocabulary = c_.model.vocab_size, .scale = 1.0 / tokens, .type = kept, .gradient = w_},
              {s.logits, s.lse, s.targets, dlogits});
    weight_gradient(head, ".weight", dlogits, full(s.norm, "norm_full"), vocab_, h_);
    const Tensor partial = b_.transient("dnorm", tokens_ * h_, w_);
    input_gradient(head, ".weight", dlogits, partial, vocab_, h_);
    norm_backward(unit_of(UnitKind::final_norm), "final_norm", summed(partial, "dnorm_sum"), s.x, -1, dx);
}

}  // namespace foretrain
