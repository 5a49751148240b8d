// A layer's experts in place of its MLP, as Megatron-LM has them (megatron/core/transformer/moe): the router
// chooses experts for each token; a copy of the token goes to each, by way of an all-to-all over the ranks that share
// the experts out; the products of the local experts are as many small ones; and all comes back the same way and is
// summed up. Beside them shared experts are an MLP that every token visits.
//
//   norm2 (R, h) -> permute -> all-to-all -> [all-gather over expert_tensor] -> sort by expert -> dispatched
//     -> fc1, activation, fc2 of each local expert -> and back -> (R, h)
//
// Rows are those of ExpertShare: fixed capacity, or the busiest rank's without one. What the router's weights
// multiply is done with a gated activation, and by a permutation in place after another; what a shared gate does with
// a sum is no kernel here.
#include "plan/program/transformer.h"

namespace foretrain {

bool TransformerPasses::has_experts(std::int32_t layer) const {
    return c_.model.has_experts(stage_.layout.like[static_cast<std::size_t>(layer)]);
}

void TransformerPasses::permute(Tensor x, Tensor y, std::int64_t from, std::int64_t to, std::int64_t width) {
    b_.kernel(PermuteArgs{from, to, width, w_}, {x, y});
}

// One expert's rows come from one rank, or are sent in order: nothing to sort.
bool TransformerPasses::sorts() const { return share_.local > 1 && share_.ranks * share_.tensor > 1; }

// Copies of this rank's rows (R, h) to the experts: `to` (gathered rows, h).
void TransformerPasses::dispatch(Tensor rows, Tensor to) {
    const bool exchanges = share_.ranks > 1, gathers = share_.tensor > 1;
    const std::int64_t sent = share_.sent(), gathered = share_.gathered();
    Tensor now = exchanges || gathers || sorts() ? b_.transient("permuted", sent * h_, w_) : to;
    permute(rows, now, rows_, sent, h_);
    if (exchanges) {
        const Tensor received = gathers || sorts() ? b_.transient("received", sent * h_, w_) : to;
        b_.exchange_tokens(now, received, sent * h_ / share_.ranks);
        now = received;
    }
    if (gathers) {
        const Tensor whole = sorts() ? b_.transient("received_full", gathered * h_, w_) : to;
        b_.all_gather(now, whole, sent * h_, Axis::expert_tensor);
        now = whole;
    }
    if (sorts()) permute(now, to, gathered, gathered, h_);
}

// The way back, of what lies as the experts have it, with the sum of a token's copies: (R, h).
TransformerPasses::Tensor TransformerPasses::combine(Tensor from) {
    const std::int64_t sent = share_.sent(), gathered = share_.gathered();
    Tensor now = from;
    if (sorts()) {
        now = b_.transient("unsorted", gathered * h_, w_);
        permute(from, now, gathered, gathered, h_);
    }
    if (share_.tensor > 1) {
        const Tensor part = b_.transient("returned_part", sent * h_, w_);
        b_.reduce_scatter(now, part, sent * h_, Axis::expert_tensor);
        now = part;
    }
    if (share_.ranks > 1) {
        const Tensor returned = b_.transient("returned", sent * h_, w_);
        b_.exchange_tokens(now, returned, sent * h_ / share_.ranks);
        now = returned;
    }
    const Tensor sum = b_.transient("combined", rows_ * h_, w_);
    permute(now, sum, sent, rows_, h_);
    return sum;
}

// Router, dispatch, fc1 and activation.
void TransformerPasses::expert_products(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer), experts = unit_of(UnitKind::experts, layer);
    const bool biased = c_.model.moe.router_bias;
    const GemmArgs route{.m = rows_,
                         .n = share_.experts,
                         .k = h_,
                         .transpose_b = true,
                         .bias = biased,
                         .type = w_,
                         .output = DType::fp32};
    std::vector<Tensor> operands{s.norm2, weight(unit, "router.weight"), s.logits};
    if (biased) operands.push_back(weight(unit, "router.bias"));
    b_.kernel(route, operands);
    b_.kernel(RouterArgs{rows_, share_.experts, c_.model.moe.topk, false, w_}, {s.logits, s.scored, s.chosen});
    dispatch(s.norm2, s.dispatched);
    const std::int64_t rows = share_.of_expert(), gates = c_.model.gated_mlp ? 2 : 1;
    linear(experts, "fc1", c_.model.mlp_biased(), s.dispatched, s.fc1, {rows, gates * share_.ffn, h_, share_.local});
    activation(false, -1, s.fc1, s.act, share_.gathered(), share_.ffn, true);
    if (s.weighted >= 0) permute(s.act, s.weighted, share_.gathered(), share_.gathered(), share_.ffn);
}

// (R, h), of what every token visits; -1 where there is nothing, and where only `kept` tensors are wanted.
TransformerPasses::Tensor TransformerPasses::shared_forward(std::int32_t layer, const LayerTensors& s, bool kept) {
    if (shared_ == 0) return -1;
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const std::int64_t gates = c_.model.gated_mlp ? 2 : 1;
    linear(unit, "shared.fc1", false, full(s.norm2, "norm2_full"), s.shared_fc1, gates * shared_, h_);
    activation(false, -1, s.shared_fc1, s.shared_act, tokens_, shared_);
    if (kept) return -1;
    const Tensor sum = out_product(unit, "shared.fc2", s.shared_act, shared_, {"shared", "shared_sum"}, -1);
    if (c_.model.moe.shared_gate) {
        const Tensor gate = b_.transient("shared_gate", rows_, w_);
        linear(unit, "shared_gate", false, s.norm2, gate, {rows_, 1, h_, 1, true});
    }
    return sum;
}

// Without `out` only what the backward pass reads.
void TransformerPasses::experts_forward(std::int32_t layer, const LayerTensors& s, Tensor out) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer), experts = unit_of(UnitKind::experts, layer);
    b_.section("experts", layer);
    norm_forward(unit, "norm2", s.y, s.norm2);
    const Tensor shared = shared_forward(layer, s, out < 0);
    expert_products(layer, s);
    if (out < 0) return;
    const Tensor results = b_.transient("results", share_.gathered() * h_, w_);
    linear(experts, "fc2", c_.model.mlp_biased(), s.weighted >= 0 ? s.weighted : s.act, results,
           {share_.of_expert(), h_, share_.ffn, share_.local});
    const Tensor sum = combine(results);
    if (shared >= 0) add_rows(sum, shared, sum);
    add_residual(unit, {}, s.y, sum, out);
}

// ---- backward -------------------------------------------------------------------------------

// The gradient (R, h) of norm2 through the routed experts, from that of the layer's output.
TransformerPasses::Tensor TransformerPasses::routed_backward(std::int32_t layer, const LayerTensors& s, Tensor dout) {
    const std::int32_t experts = unit_of(UnitKind::experts, layer);
    const std::int64_t all = share_.gathered(), gates = c_.model.gated_mlp ? 2 : 1;
    const Product fc1{share_.of_expert(), gates * share_.ffn, h_, share_.local};
    const Product fc2{share_.of_expert(), h_, share_.ffn, share_.local};
    const Tensor dresults = b_.transient("dresults", all * h_, w_);
    dispatch(dout, dresults);
    // Widths of all local experts side by side: sums over as many rows as one has.
    const auto bias = [&](const char* name, Tensor dy, std::int64_t width) {
        if (c_.model.mlp_biased()) bias_gradient(experts, name, dy, share_.of_expert(), share_.local * width);
    };
    bias("fc2.bias", dresults, h_);
    Tensor dact = b_.transient("dact", all * share_.ffn, w_);
    input_gradient(experts, "fc2.weight", dresults, dact, fc2);
    weight_gradient(experts, "fc2.weight", dresults, s.weighted >= 0 ? s.weighted : s.act, fc2);
    if (s.weighted >= 0) {
        const Tensor unweighted = b_.transient("dact_unweighted", all * share_.ffn, w_);
        b_.kernel(PermuteArgs{all, all, share_.ffn, w_, true}, {dact, s.act, unweighted});
        dact = unweighted;
    }
    const Tensor dfc1 = b_.transient("dfc1", all * gates * share_.ffn, w_);
    activation(true, dact, s.fc1, dfc1, all, share_.ffn, true);
    bias("fc1.bias", dfc1, gates * share_.ffn);
    weight_gradient(experts, "fc1.weight", dfc1, s.dispatched, fc1);
    const Tensor ddispatched = b_.transient("ddispatched", all * h_, w_);
    input_gradient(experts, "fc1.weight", dfc1, ddispatched, fc1);
    return combine(ddispatched);
}

// The same through the router.
TransformerPasses::Tensor TransformerPasses::router_backward(std::int32_t layer, const LayerTensors& s) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const Product product{rows_, share_.experts, h_, 1, true};
    const Tensor dlogits = b_.transient("drouter", rows_ * share_.experts, w_);
    b_.kernel(RouterArgs{rows_, share_.experts, c_.model.moe.topk, true, w_}, {s.logits, s.scored, s.chosen, dlogits});
    if (c_.model.moe.router_bias) bias_gradient(unit, "router.bias", dlogits, rows_, share_.experts);
    weight_gradient(unit, "router.weight", dlogits, s.norm2, product);
    const Tensor dx = b_.transient("dnorm2_router", rows_ * h_, w_);
    input_gradient(unit, "router.weight", dlogits, dx, product);
    return dx;
}

// The same through the shared experts; -1 where there are none.
TransformerPasses::Tensor TransformerPasses::shared_backward(std::int32_t layer, const LayerTensors& s, Tensor dout) {
    if (shared_ == 0) return -1;
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    const std::int64_t gates = c_.model.gated_mlp ? 2 : 1;
    const Tensor dfull = full(dout, "dout_full");
    const Tensor dact = b_.transient("dshared_act", tokens_ * shared_, w_);
    input_gradient(unit, "shared.fc2.weight", dfull, dact, h_, shared_);
    weight_gradient(unit, "shared.fc2.weight", dfull, s.shared_act, h_, shared_);
    const Tensor dfc1 = b_.transient("dshared_fc1", tokens_ * gates * shared_, w_);
    activation(true, dact, s.shared_fc1, dfc1, tokens_, shared_);
    weight_gradient(unit, "shared.fc1.weight", dfc1, full(s.norm2, "norm2_full"), gates * shared_, h_);
    const Tensor partial = b_.transient("dnorm2_shared", tokens_ * h_, w_);
    input_gradient(unit, "shared.fc1.weight", dfc1, partial, gates * shared_, h_);
    const Tensor sum = summed(partial, "dnorm2_shared_sum");
    if (c_.model.moe.shared_gate) {
        const Tensor dgate = b_.transient("dshared_gate", rows_, w_);
        permute(dout, dgate, rows_ * h_, rows_, 1);
        const Product product{rows_, 1, h_, 1, true};
        weight_gradient(unit, "shared_gate.weight", dgate, s.norm2, product);
        const Tensor through_gate = b_.transient("dnorm2_gate", rows_ * h_, w_);
        input_gradient(unit, "shared_gate.weight", dgate, through_gate, product);
        add_rows(through_gate, sum, sum);
    }
    return sum;
}

void TransformerPasses::experts_backward(std::int32_t layer, const LayerTensors& s, Tensor dout, Tensor dy) {
    const std::int32_t unit = unit_of(UnitKind::layer, layer);
    b_.section("experts", layer);
    const Tensor sum = routed_backward(layer, s, dout);
    add_rows(router_backward(layer, s), sum, sum);
    if (const Tensor shared = shared_backward(layer, s, dout); shared >= 0) add_rows(shared, sum, sum);
    norm_backward(unit, "norm2", sum, s.y, dout, dy);
}

}  // namespace foretrain
