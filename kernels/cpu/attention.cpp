// Causal attention over whole sequences, and one step of it around a ring of ranks that share them out.
#include <algorithm>

#include "kernels/cpu/attention_tiles.h"

namespace foretrain::cpu {

namespace {

// Where the heads of one sample stand. Queries are packed in qkv; keys and values with them, or apart.
// Heads are visited in a fixed order, so that dK and dV of a group are sums in order.
struct Packed {
    std::int64_t batch, sequence, heads, group, head_dim;
    std::int64_t qkv_stride, context_stride;

    template <class Args>
    Packed(const Args& a, std::int64_t tokens)
        : batch(a.batch),
          sequence(tokens),
          heads(a.heads),
          group(a.heads / a.kv_heads),
          head_dim(a.head_dim),
          qkv_stride((a.heads + 2 * a.kv_heads) * a.head_dim),
          context_stride(a.heads * a.head_dim) {}

    template <class T>
    Rows<T> queries(T* qkv, std::int64_t sample, std::int64_t head) const {
        return {group_of(qkv, sample, head) + head % group * head_dim, qkv_stride};
    }
    template <class T>
    Rows<T> keys(T* qkv, std::int64_t sample, std::int64_t head) const {
        return {group_of(qkv, sample, head) + group * head_dim, qkv_stride};
    }
    template <class T>
    Rows<T> keys_apart(T* kv, std::int64_t sample, std::int64_t head) const {
        const std::int64_t stride = heads / group * 2 * head_dim;
        return {kv + sample * sequence * stride + head / group * 2 * head_dim, stride};
    }
    // They follow the keys in both packings.
    template <class T>
    Rows<T> values(Rows<T> keys) const {
        return {keys.first + head_dim, keys.stride};
    }
    template <class T>
    Rows<T> context(T* context, std::int64_t sample, std::int64_t head) const {
        return {context + sample * sequence * context_stride + head * head_dim, context_stride};
    }
    template <class T>
    Rows<T> lse(T* lse, std::int64_t sample, std::int64_t head) const {
        return {lse + sample * sequence * heads + head, heads};
    }

    template <class Head>
    void each_head(Head&& head) const {
        for (std::int64_t sample = 0; sample < batch; ++sample)
            for (std::int64_t h = 0; h < heads; ++h) head(sample, h);
    }

private:
    template <class T>
    T* group_of(T* qkv, std::int64_t sample, std::int64_t head) const {
        return qkv + sample * sequence * qkv_stride + head / group * (group + 2) * head_dim;
    }
};

template <class Args>
void require_no_window(const Args& a) {
    if (a.window > 0 && a.window < a.sequence)
        throw RunError("the CPU kernel attention has no window; it attends to the whole sequence");
}

std::int64_t seen_from_the_start(std::int64_t query) { return query + 1; }

// Which keys of the block at hand a query of this rank sees; both in the order of base/context_split.h,
// an early chunk and a late one. Of its own block those before it. Every chunk of a rank before this one
// is either earlier than both of its own or later than both; of a rank after it, between the two.
struct SeenInRing {
    std::int64_t half;  // tokens of a chunk
    std::int64_t step, context_rank;

    std::int64_t operator()(std::int64_t query) const {
        if (step == 0) return query + 1;
        if (context_rank >= step) return half;
        return query < half ? 0 : 2 * half;
    }
};

template <class T>
void run_ring(const RingAttentionArgs& a, const Packed& p, const SeenInRing& seen, const KernelContext& c) {
    const T *qkv = in<T>(c, 0), *kv = in<T>(c, 1);
    p.each_head([&](std::int64_t sample, std::int64_t h) {
        const Rows<const T> keys = p.keys_apart(kv, sample, h);
        const ForwardHead<T> head{p.head_dim,     p.queries(qkv, sample, h),          keys,
                                  p.values(keys), p.context(out<T>(c, 2), sample, h), p.lse(out<T>(c, 3), sample, h)};
        each_tile(p.sequence, [&](auto first, auto rows) { forward_tile(head, first, rows, seen, a.step > 0); });
    });
}

template <class T>
void run_ring_backward(const RingAttentionArgs& a, const Packed& p, const SeenInRing& seen, const KernelContext& c) {
    const T *dcontext = in<T>(c, 0), *qkv = in<T>(c, 1), *kv = in<T>(c, 2), *context = in<T>(c, 3), *lse = in<T>(c, 4);
    T *dqkv = out<T>(c, 5), *dkv = out<T>(c, 6);
    std::fill_n(dkv, p.batch * p.sequence * a.kv_heads * 2 * a.head_dim, T{0});
    p.each_head([&](std::int64_t sample, std::int64_t h) {
        const Rows<const T> keys = p.keys_apart(kv, sample, h);
        const Rows<T> dkeys = p.keys_apart(dkv, sample, h);
        const BackwardHead<T> head{p.head_dim,
                                   p.queries(qkv, sample, h),
                                   keys,
                                   p.values(keys),
                                   p.context(dcontext, sample, h),
                                   p.context(context, sample, h),
                                   p.lse(lse, sample, h),
                                   p.queries(dqkv, sample, h),
                                   dkeys,
                                   p.values(dkeys)};
        each_tile(p.sequence, [&](auto first, auto rows) { backward_tile(head, first, rows, seen, a.step > 0); });
    });
}

}  // namespace

void attention_forward(const AttentionForwardArgs& a, const KernelContext& c) {
    require_no_window(a);
    const Packed p(a, a.sequence);
    with_type("attention_forward", a.type, [&]<class T>(T) {
        const T* qkv = in<T>(c, 0);
        p.each_head([&](std::int64_t sample, std::int64_t h) {
            const Rows<const T> keys = p.keys(qkv, sample, h);
            const ForwardHead<T> head{
                p.head_dim,     p.queries(qkv, sample, h),          keys,
                p.values(keys), p.context(out<T>(c, 1), sample, h), p.lse(out<T>(c, 2), sample, h)};
            each_tile(p.sequence,
                      [&](auto first, auto rows) { forward_tile(head, first, rows, seen_from_the_start, false); });
        });
    });
}

void attention_backward(const AttentionBackwardArgs& a, const KernelContext& c) {
    require_no_window(a);
    const Packed p(a, a.sequence);
    with_type("attention_backward", a.type, [&]<class T>(T) {
        const T *dcontext = in<T>(c, 0), *qkv = in<T>(c, 1), *context = in<T>(c, 2), *lse = in<T>(c, 3);
        T* dqkv = out<T>(c, 4);
        std::fill_n(dqkv, a.batch * a.sequence * p.qkv_stride, T{0});
        p.each_head([&](std::int64_t sample, std::int64_t h) {
            const Rows<const T> keys = p.keys(qkv, sample, h);
            const Rows<T> dkeys = p.keys(dqkv, sample, h);
            const BackwardHead<T> head{p.head_dim,
                                       p.queries(qkv, sample, h),
                                       keys,
                                       p.values(keys),
                                       p.context(dcontext, sample, h),
                                       p.context(context, sample, h),
                                       p.lse(lse, sample, h),
                                       p.queries(dqkv, sample, h),
                                       dkeys,
                                       p.values(dkeys)};
            each_tile(p.sequence,
                      [&](auto first, auto rows) { backward_tile(head, first, rows, seen_from_the_start, false); });
        });
    });
}

void ring_attention(const RingAttentionArgs& a, const KernelContext& c) {
    const Packed p(a, a.sequence / a.context);
    const SeenInRing seen{p.sequence / 2, a.step, c.context_rank};
    with_type("ring_attention", a.type, [&]<class T>(T) {
        if (a.backward)
            run_ring_backward<T>(a, p, seen, c);
        else
            run_ring<T>(a, p, seen, c);
    });
}

}  // namespace foretrain::cpu
