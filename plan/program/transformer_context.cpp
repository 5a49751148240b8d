// The core attention of TransformerPasses, on one rank's tokens or across context ranks.
//
// Ring: keys and values go around the group, a block a step, while the block before is attended to. The
// backward pass sends them around again, and behind them the sum of what each rank adds to their gradients,
// which the last step of the ring brings home; a rank's own part waits there. So forward c-1 messages of
// one block, backward twice as many (as Transformer Engine's p2p form does, but for the order of steps:
// it keeps the last block of the forward pass in place of the first).
//
// All-to-all: queries, keys and values are exchanged for whole sequences of a share of the heads, and the
// context back (DeepSpeed-Ulysses, arXiv:2309.14509). The backward pass exchanges the context again
// rather than keep it twice.
#include <algorithm>
#include <vector>

#include "plan/program/transformer.h"

namespace foretrain {

bool TransformerPasses::exchanges_heads() const {
    return context_ > 1 && c_.parallelism.context_method == ContextMethod::all_to_all;
}

std::int64_t TransformerPasses::window(std::int32_t layer) const {
    return c_.model.window_of(stage_.layout.like[static_cast<std::size_t>(layer)], c_.training.sequence_length);
}

// Of whole sequences.
template <class Args>
Args TransformerPasses::attention_args(std::int32_t layer) const {
    const std::int64_t ranks = t_ * (exchanges_heads() ? context_ : 1);
    return {.batch = c_.parallelism.micro_batch_size,
            .sequence = c_.training.sequence_length,
            .heads = c_.model.attention_heads / ranks,
            .kv_heads = c_.model.kv_heads / ranks,
            .head_dim = c_.model.head_dim,
            .type = w_,
            .window = window(layer),
            .score_bytes = c_.memory.score_bytes,
            .v_head_dim = c_.model.is_latent() ? c_.model.mla.v_dim : 0};
}

std::int64_t TransformerPasses::score_elements(std::int32_t layer) const {
    if (c_.memory.score_bytes == 0) return 0;
    const AttentionForwardArgs a = attention_args<AttentionForwardArgs>(layer);
    const std::int64_t keys = a.window > 0 ? std::min(a.window, a.sequence) : a.sequence;
    return a.batch * a.heads * a.sequence * keys * a.score_bytes;
}

// ---- all-to-all -----------------------------------------------------------------------------

// y (b, s, width / c) from x (T, width)
void TransformerPasses::by_heads(Tensor x, Tensor y, std::int64_t width) {
    using Part = RelayoutArgs::Part;
    const std::int64_t n = tokens_ * width;
    RelayoutArgs args{
        Part::split_heads, c_.parallelism.micro_batch_size, c_.training.sequence_length, width, context_, w_};
    const Tensor parts = b_.transient("parts", n, w_), received = b_.transient("received", n, w_);
    b_.kernel(args, {x, parts});
    b_.all_to_all(parts, received, n / context_);
    args.part = Part::join_sequence;
    b_.kernel(args, {received, y});
}

// y (T, width) from x (b, s, width / c)
void TransformerPasses::by_tokens(Tensor x, Tensor y, std::int64_t width) {
    using Part = RelayoutArgs::Part;
    const std::int64_t n = tokens_ * width;
    RelayoutArgs args{
        Part::split_sequence, c_.parallelism.micro_batch_size, c_.training.sequence_length, width, context_, w_};
    const Tensor parts = b_.transient("parts", n, w_), received = b_.transient("received", n, w_);
    b_.kernel(args, {x, parts});
    b_.all_to_all(parts, received, n / context_);
    args.part = Part::join_heads;
    b_.kernel(args, {received, y});
}

// ---- ring -----------------------------------------------------------------------------------

RingAttentionArgs TransformerPasses::ring_step(std::int64_t step, bool backward) const {
    return {.batch = c_.parallelism.micro_batch_size,
            .sequence = c_.training.sequence_length,
            .heads = c_.model.attention_heads / t_,
            .kv_heads = c_.model.kv_heads / t_,
            .head_dim = c_.model.head_dim,
            .context = context_,
            .step = step,
            .backward = backward,
            .type = w_,
            .v_head_dim = c_.model.is_latent() ? c_.model.mla.v_dim : 0};
}

KeyValueArgs TransformerPasses::key_value(bool unpack) const {
    return {tokens_,
            c_.model.attention_heads / t_,
            c_.model.kv_heads / t_,
            c_.model.head_dim,
            unpack,
            w_,
            c_.model.is_latent() ? c_.model.mla.v_dim : 0};
}

void TransformerPasses::ring_attention(const LayerTensors& s) {
    const std::int64_t block = tokens_ * (qkv_ - q_);  // keys and values
    Tensor here = b_.transient("kv", block, w_);
    b_.kernel(key_value(false), {s.qkv, here});
    std::int32_t arrival = -1;  // of what is here
    for (std::int64_t step = 0; step < context_; ++step) {
        const bool more = step + 1 < context_;
        const Tensor next = more ? b_.transient("kv", block, w_) : -1;
        const std::int32_t shift = more ? b_.ring_shift(here, next, block) : -1;
        b_.await(b_.kernel(ring_step(step, false), {s.qkv, here, s.context, s.lse}), arrival);
        here = next;
        arrival = shift;
    }
}

// In step k this rank adds to the gradients of the block of the k-th rank before it, to which the rank before
// this one has added in step k - 1. They set out in step 1 and are home after step c - 1.
TransformerPasses::Tensor TransformerPasses::ring_attention_backward(const LayerTensors& s, Tensor dcontext) {
    const std::int64_t block = tokens_ * (qkv_ - q_);
    const auto make = [&](const char* what) { return b_.transient(what, block, w_); };
    const auto add = [&](Tensor x, Tensor y, std::int32_t arrival) {
        b_.await(b_.kernel(AccumulateArgs{.elements = block, .from = w_, .to = w_}, {x, y}), arrival);
    };
    const Tensor dqkv = b_.transient("dqkv", tokens_ * qkv_, w_);
    Tensor here = make("kv"), own = -1, sum = -1;
    b_.kernel(key_value(false), {s.qkv, here});
    std::int32_t arrival = -1;
    for (std::int64_t step = 0; step < context_; ++step) {
        const bool more = step + 1 < context_, joins = step >= 2;
        const Tensor next = more ? make("kv") : -1, received = joins ? make("dkv_received") : -1;
        const std::int32_t shift = more ? b_.ring_shift(here, next, block) : -1;
        const std::int32_t sum_arrival = joins ? b_.ring_shift(sum, received, block) : -1;
        const Tensor dkv = make("dkv");
        b_.await(b_.kernel(ring_step(step, true), {dcontext, s.qkv, here, s.context, s.lse, dqkv, dkv}), arrival);
        if (joins) add(received, dkv, sum_arrival);
        (step == 0 ? own : sum) = dkv;
        here = next;
        arrival = shift;
    }
    const Tensor home = make("dkv_received");
    const std::int32_t home_arrival = b_.ring_shift(sum, home, block);
    add(home, own, home_arrival);
    b_.kernel(key_value(true), {own, dqkv});
    return dqkv;
}

// ---- whichever it is ------------------------------------------------------------------------

void TransformerPasses::core_attention(std::int32_t layer, const LayerTensors& s) {
    b_.section("attention", layer);
    if (context_ > 1 && !exchanges_heads()) return ring_attention(s);
    const Tensor context = exchanges_heads() ? b_.transient("context", tokens_ * v_, w_) : s.context;
    std::vector<Tensor> operands{s.qkv, context, s.lse};
    if (s.scores >= 0) operands.push_back(s.scores);
    b_.kernel(attention_args<AttentionForwardArgs>(layer), operands);
    if (exchanges_heads()) by_tokens(context, s.context, v_);
}

// dqkv (T, (a + 2g) d / t) from dcontext (T, a d / t)
TransformerPasses::Tensor TransformerPasses::core_attention_backward(std::int32_t layer, const LayerTensors& s,
                                                                     Tensor dcontext) {
    if (context_ > 1 && !exchanges_heads()) return ring_attention_backward(s, dcontext);
    const AttentionBackwardArgs args = attention_args<AttentionBackwardArgs>(layer);
    const Tensor dqkv = b_.transient("dqkv", tokens_ * qkv_, w_);
    if (!exchanges_heads()) {
        std::vector<Tensor> operands{dcontext, s.qkv, s.context, s.lse, dqkv};
        if (s.scores >= 0) operands.push_back(s.scores);
        b_.kernel(args, operands);
        return dqkv;
    }
    const auto heads = [&](const char* what, std::int64_t width) { return b_.transient(what, tokens_ * width, w_); };
    const Tensor context_heads = heads("context_heads", v_), dcontext_heads = heads("dcontext_heads", v_);
    by_heads(s.context, context_heads, v_);
    by_heads(dcontext, dcontext_heads, v_);
    const Tensor dqkv_heads = heads("dqkv_heads", qkv_);
    std::vector<Tensor> operands{dcontext_heads, s.qkv, context_heads, s.lse, dqkv_heads};
    if (s.scores >= 0) operands.push_back(s.scores);
    b_.kernel(args, operands);
    by_tokens(dqkv_heads, dqkv, qkv_);
    return dqkv;
}

}  // namespace foretrain
