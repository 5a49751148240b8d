#include "plan/program/transformer.h"

#include "base/error.h"

namespace foretrain {

TransformerPasses::TransformerPasses(const StageContext& context, const Stage& stage, PassBuilder& builder)
    : c_(context),
      stage_(stage),
      b_(builder),
      t_(context.parallelism.tensor),
      context_(context.parallelism.context),
      tokens_(context.tokens()),
      rows_(context.rows()),
      h_(context.model.hidden_size),
      q_(context.model.query_size() / t_),
      qkv_((context.model.is_latent() ? 2 * context.model.query_size() + context.model.attended_size()
                                      : context.model.qkv_size()) /
           t_),
      v_(context.model.attended_size() / t_),
      f_(context.model.ffn_hidden_size / t_),
      fc1_(context.model.fc1_size() / t_),
      shared_(context.model.moe.shared_ffn / t_),
      vocab_(context.vocabulary / t_),
      share_(context.expert_share()),
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

// The head's products stay in the type that its tensors are stored in.
std::optional<DType> TransformerPasses::products_of(std::int32_t unit) const {
    const StageUnit& u = stage_.units[static_cast<std::size_t>(unit)];
    const bool head = stage_.unit_shapes[static_cast<std::size_t>(u.shape)].kind == UnitKind::head;
    return head ? std::nullopt : c_.training.products;
}

// ---- pieces ---------------------------------------------------------------------------------

TransformerPasses::Tensor TransformerPasses::full(Tensor rows, const char* what) { return full(rows, what, h_); }

TransformerPasses::Tensor TransformerPasses::full(Tensor rows, const char* what, std::int64_t width) {
    if (!split_) return rows;
    const Tensor whole = b_.transient(what, tokens_ * width, w_);
    b_.all_gather(rows, whole, rows_ * width);
    return whole;
}

TransformerPasses::Tensor TransformerPasses::summed(Tensor partial, const char* what) {
    return summed(partial, what, h_);
}

TransformerPasses::Tensor TransformerPasses::summed(Tensor partial, const char* what, std::int64_t width) {
    if (t_ == 1) return partial;
    if (!split_) {
        b_.all_reduce(partial, tokens_ * width);
        return partial;
    }
    const Tensor part = b_.transient(what, rows_ * width, w_);
    b_.reduce_scatter(partial, part, rows_ * width);
    return part;
}

void TransformerPasses::norm_forward(std::int32_t unit, const char* name, Tensor x, Tensor y) {
    NormForwardArgs args{.rows = rows_,
                         .width = h_,
                         .rms = c_.model.norm == Norm::rmsnorm,
                         .epsilon = c_.model.norm_epsilon,
                         .type = w_};
    args.unbiased = !args.rms && !c_.model.norm_bias;
    const std::string n(name);
    std::vector<Tensor> operands{x, y, weight(unit, (n + ".weight").c_str())};
    if (args.biased()) operands.push_back(weight(unit, (n + ".bias").c_str()));
    b_.kernel(args, operands);
}

void TransformerPasses::norm_backward(std::int32_t unit, const char* name, Tensor dy, Tensor x, Tensor residual,
                                      Tensor dx) {
    NormBackwardArgs args{.rows = rows_,
                          .width = h_,
                          .rms = c_.model.norm == Norm::rmsnorm,
                          .residual = residual >= 0,
                          .accumulate = accumulate_,
                          .epsilon = c_.model.norm_epsilon,
                          .type = w_,
                          .gradient = g_};
    args.unbiased = !args.rms && !c_.model.norm_bias;
    const std::string n(name);
    std::vector<Tensor> operands{dy, x};
    if (residual >= 0) operands.push_back(residual);
    operands.push_back(weight(unit, (n + ".weight").c_str()));
    operands.push_back(dx);
    operands.push_back(gradient(unit, (n + ".weight").c_str()));
    if (args.biased()) operands.push_back(gradient(unit, (n + ".bias").c_str()));
    b_.kernel(args, operands);
}

// y (T, out) = x (T, in) W^T (in, out) [+ bias]
void TransformerPasses::linear(std::int32_t unit, const char* name, bool bias, Tensor x, Tensor y, std::int64_t out,
                               std::int64_t in) {
    linear(unit, name, bias, x, y, {tokens_, out, in});
}

void TransformerPasses::linear(std::int32_t unit, const char* name, bool bias, Tensor x, Tensor y, const Product& p) {
    const std::string n(name);
    std::vector<Tensor> operands{x, weight(unit, (n + ".weight").c_str()), y};
    if (bias) operands.push_back(weight(unit, (n + ".bias").c_str()));
    b_.kernel(GemmArgs{.m = p.rows,
                       .n = p.out,
                       .k = p.in,
                       .transpose_b = true,
                       .bias = bias,
                       .type = w_,
                       .output = w_,
                       .quantised = p.exact ? std::nullopt : products_of(unit),
                       .groups = p.groups},
              operands);
}

// dx (T, in) = dy (T, out) W (out, in)
void TransformerPasses::input_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor dx, std::int64_t out,
                                       std::int64_t in) {
    input_gradient(unit, name, dy, dx, {tokens_, out, in});
}

void TransformerPasses::input_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor dx, const Product& p) {
    b_.kernel(GemmArgs{.m = p.rows,
                       .n = p.in,
                       .k = p.out,
                       .role = GemmRole::input_gradient,
                       .type = w_,
                       .output = w_,
                       .quantised = p.exact ? std::nullopt : products_of(unit),
                       .groups = p.groups},
              {dy, weight(unit, name), dx});
}

// dW (out, in) [+]= dy^T (out, T) x (T, in)
void TransformerPasses::weight_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor x, std::int64_t out,
                                        std::int64_t in) {
    weight_gradient(unit, name, dy, x, {tokens_, out, in});
}

void TransformerPasses::weight_gradient(std::int32_t unit, const char* name, Tensor dy, Tensor x, const Product& p) {
    b_.kernel(GemmArgs{.m = p.out,
                       .n = p.in,
                       .k = p.rows,
                       .transpose_a = true,
                       .accumulate = accumulate_,
                       .role = GemmRole::weight_gradient,
                       .type = w_,
                       .output = g_,
                       .quantised = p.exact ? std::nullopt : products_of(unit),
                       .groups = p.groups},
              {dy, x, gradient(unit, name)});
    if (c_.memory.weight_gradients) b_.hold(b_.transient("dw", p.groups * p.out * p.in, w_));
}

void TransformerPasses::bias_gradient(std::int32_t unit, const char* name, Tensor dy, std::int64_t rows,
                                      std::int64_t width) {
    b_.kernel(BiasGradientArgs{.rows = rows, .width = width, .accumulate = accumulate_, .type = w_, .gradient = g_},
              {dy, gradient(unit, name)});
}

// y = x + r [+ biases]
void TransformerPasses::add_residual(std::int32_t unit, const std::vector<const char*>& biases, Tensor x, Tensor r,
                                     Tensor y) {
    ResidualAddArgs args{.rows = rows_, .width = h_, .bias = !biases.empty(), .type = w_};
    args.bias2 = biases.size() > 1;
    std::vector<Tensor> operands{x, r, y};
    for (const char* name : biases) operands.push_back(weight(unit, name));
    b_.kernel(args, operands);
}

void TransformerPasses::add_rows(Tensor x, Tensor y, Tensor sum) {
    b_.kernel(ResidualAddArgs{.rows = rows_, .width = h_, .type = w_}, {x, y, sum});
}

void TransformerPasses::accumulate(Tensor x, Tensor y) {
    b_.kernel(AccumulateArgs{.elements = tokens_ * h_, .from = w_, .to = w_}, {x, y});
}

// ---- embedding ------------------------------------------------------------------------------

void TransformerPasses::embedding_forward(Tensor tokens, Tensor embedded, Tensor x) {
    const std::int32_t unit = unit_of(UnitKind::embedding);
    const EmbeddingArgs args{.tokens = tokens_, .rows = vocab_, .width = h_, .type = w_, .gradient = g_};
    const Tensor sum = c_.model.embedding_norm ? embedded : x;
    const Tensor partial = split_ ? b_.transient("embedded", tokens_ * h_, w_) : sum;
    b_.kernel(args, {tokens, weight(unit, "embedding.weight"), partial});
    if (split_)
        b_.reduce_scatter(partial, sum, rows_ * h_);
    else if (t_ > 1)
        b_.all_reduce(sum, tokens_ * h_);
    if (c_.model.positions == Positions::learned)
        b_.kernel(PositionsArgs{.tokens = rows_,
                                .sequence = c_.training.sequence_length,
                                .table_rows = c_.model.position_rows(),
                                .width = h_,
                                .split_tokens = split_,
                                .type = w_,
                                .gradient = g_,
                                .context = context_},
                  {sum, weight(unit_of(UnitKind::positions), "positions.weight")});
    if (c_.model.embedding_norm) norm_forward(unit_of(UnitKind::embedding_norm), "embedding_norm", embedded, x);
}

void TransformerPasses::embedding_backward(Tensor tokens, Tensor embedded, Tensor dx) {
    if (c_.model.embedding_norm) {
        const Tensor dnorm = dx;
        dx = b_.transient("dembedded", rows_ * h_, w_);
        norm_backward(unit_of(UnitKind::embedding_norm), "embedding_norm", dnorm, embedded, -1, dx);
    }
    if (c_.model.positions == Positions::learned)
        b_.kernel(PositionsArgs{.tokens = rows_,
                                .sequence = c_.training.sequence_length,
                                .table_rows = c_.model.position_rows(),
                                .width = h_,
                                .split_tokens = split_,
                                .backward = true,
                                .accumulate = accumulate_,
                                .type = w_,
                                .gradient = g_,
                                .context = context_},
                  {dx, gradient(unit_of(UnitKind::positions), "positions.weight")});
    b_.kernel(EmbeddingArgs{.tokens = tokens_,
                            .rows = vocab_,
                            .width = h_,
                            .backward = true,
                            .accumulate = accumulate_,
                            .type = w_,
                            .gradient = g_},
              {tokens, full(dx, "dx_full"), gradient(unit_of(UnitKind::embedding), "embedding.weight")});
}

// ---- head -----------------------------------------------------------------------------------

void TransformerPasses::head_forward(const HeadTensors& s, Tensor loss) {
    const std::int32_t head = unit_of(UnitKind::head);
    const DType kept = c_.memory.fp32_logits ? DType::fp32 : w_;
    b_.section("head");
    norm_forward(unit_of(UnitKind::final_norm), "final_norm", s.x, s.norm);
    const Tensor input = full(s.norm, "norm_full");
    const Tensor logits = kept == w_ ? s.logits : b_.transient("logits16", tokens_ * vocab_, w_);
    const GemmArgs product{
        .m = tokens_, .n = vocab_, .k = h_, .transpose_b = true, .bias = c_.model.head_bias, .type = w_, .output = w_};
    std::vector<Tensor> operands{input, weight(head, ".weight"), logits};
    if (product.bias) operands.push_back(weight(head, ".bias"));
    b_.kernel(product, operands);
    if (logits != s.logits)
        b_.kernel(CastArgs{.elements = tokens_ * vocab_, .from = w_, .to = kept}, {logits, s.logits});
    if (c_.memory.logit_bytes > 0) b_.hold(b_.transient("loss", tokens_ * vocab_ * c_.memory.logit_bytes, DType::fp8));
    LossArgs args{.part = LossArgs::Part::maximum,
                  .tokens = tokens_,
                  .columns = vocab_,
                  .vocabulary = c_.model.vocab_size,
                  .type = kept,
                  .gradient = w_};
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
    const DType kept = c_.memory.fp32_logits ? DType::fp32 : w_;
    b_.section("head");
    const double tokens = static_cast<double>(c_.training.global_batch_size * c_.training.sequence_length);
    const Tensor dlogits = kept == w_ ? s.logits : b_.transient("dlogits", tokens_ * vocab_, w_);
    b_.kernel(LossArgs{.part = LossArgs::Part::backward,
                       .tokens = tokens_,
                       .columns = vocab_,
                       .vocabulary = c_.model.vocab_size,
                       .scale = 1.0 / tokens,
                       .type = kept,
                       .gradient = w_},
              {s.logits, s.lse, s.targets, dlogits});
    if (c_.model.head_bias) bias_gradient(head, ".bias", dlogits, tokens_, vocab_);
    weight_gradient(head, ".weight", dlogits, full(s.norm, "norm_full"), vocab_, h_);
    if (c_.memory.head_gradient && !c_.memory.weight_gradients) b_.hold(b_.transient("dw", vocab_ * h_, w_));
    const Tensor partial = b_.transient("dnorm", tokens_ * h_, w_);
    input_gradient(head, ".weight", dlogits, partial, vocab_, h_);
    norm_backward(unit_of(UnitKind::final_norm), "final_norm", summed(partial, "dnorm_sum"), s.x, -1, dx);
}

}  // namespace foretrain
