// Causal attention in tiles, without the s x s matrix.
//
// A tile holds query_tile queries against key_tile keys. Forward keeps, for each query, the running
// maximum and sum of the softmax and rescales the context when the maximum grows; tiles wholly above
// the diagonal are skipped. Backward recomputes each tile's probabilities from the saved lse.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

constexpr std::int64_t query_tile = 64, key_tile = 64;

// Where one head of one sequence stands in the packed rows.
struct HeadPlace {
    std::int64_t query, key, value;  // offsets in qkv
    std::int64_t context;            // offset in context
    std::int64_t lse;                // offset in lse
};

template <class Args>
struct Layout {
    std::int64_t batch, sequence, heads, group, head_dim;
    std::int64_t qkv_stride, context_stride;

    explicit Layout(const Args& a)
        : batch(a.batch),
          sequence(a.sequence),
          heads(a.heads),
          group(a.heads / a.kv_heads),
          head_dim(a.head_dim),
          qkv_stride((a.heads + 2 * a.kv_heads) * a.head_dim),
          context_stride(a.heads * a.head_dim) {
        if (a.window > 0 && a.window < a.sequence)
            throw RunError("the CPU kernel attention has no window; it attends to the whole sequence");
    }

    HeadPlace place(std::int64_t sample, std::int64_t head) const {
        const std::int64_t row = sample * sequence;
        const std::int64_t start = row * qkv_stride + head / group * (group + 2) * head_dim;
        return {start + head % group * head_dim, start + group * head_dim, start + (group + 1) * head_dim,
                row * context_stride + head * head_dim, row * heads + head};
    }
    template <class T>
    T softmax_scale() const {
        return T(1) / std::sqrt(static_cast<T>(head_dim));
    }
};

// The queries times the softmax scale, dense: (rows, head_dim).
template <class T>
void scale_queries(const T* queries, std::int64_t stride, std::int64_t rows, std::int64_t width, T scale, T* result) {
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < width; ++j) result[r * width + j] = queries[r * stride + j] * scale;
}

// Keys of the tile that begins at `first_key` which query `query` sees.
std::int64_t visible(std::int64_t query, std::int64_t first_key, std::int64_t keys) {
    return std::clamp<std::int64_t>(query + 1 - first_key, 0, keys);
}

// The running softmax of a tile of queries.
template <class T>
struct OnlineSoftmax {
    T maximum[query_tile], sum[query_tile];
    T* context;  // (queries, head_dim), not yet divided by sum

    // Turns row r of scores into exp(score - maximum), 0 where the mask hides them.
    void row(std::int64_t r, T* scores, std::int64_t seen, std::int64_t keys, std::int64_t head_dim) {
        std::fill(scores + seen, scores + keys, T{0});
        if (seen == 0) return;
        const T highest =
            max_packs<T>(seen, [&](auto at) { return at.keep(at.load(scores), -std::numeric_limits<T>::infinity()); });
        if (!(highest <= maximum[r])) {  // also where highest is not a number
            const T factor = std::exp(maximum[r] - highest);
            maximum[r] = highest;
            sum[r] *= factor;
            for (std::int64_t j = 0; j < head_dim; ++j) context[r * head_dim + j] *= factor;
        }
        sum[r] += sum_packs<T>(seen, [&](auto at) {
            const Pack<T> p = exp(at.load(scores) - Pack<T>(maximum[r]));
            at.store(scores, p);
            return at.keep(p);
        });
    }
};

template <class T>
void forward_tile(const Layout<AttentionForwardArgs>& l, const HeadPlace& at, std::int64_t first, const T* qkv,
                  T* context, T* lse) {
    const std::int64_t d = l.head_dim, rows = std::min(query_tile, l.sequence - first);
    T *queries = scratch<T, 0>(query_tile * d), *scores = scratch<T, 1>(query_tile * key_tile);
    OnlineSoftmax<T> softmax;
    softmax.context = scratch<T, 2>(query_tile * d);
    std::fill_n(softmax.maximum, query_tile, -std::numeric_limits<T>::infinity());
    std::fill_n(softmax.sum, query_tile, T{0});
    std::fill_n(softmax.context, query_tile * d, T{0});
    scale_queries(qkv + at.query + first * l.qkv_stride, l.qkv_stride, rows, d, l.template softmax_scale<T>(), queries);

    for (std::int64_t key = 0; key < first + rows; key += key_tile) {
        const std::int64_t keys = std::min(key_tile, first + rows - key), row = key * l.qkv_stride;
        const View<T> k{qkv + at.key + row, keys, d, l.qkv_stride}, v{qkv + at.value + row, keys, d, l.qkv_stride};
        multiply(false, View<T>{queries, rows, d, d}, transposed(k), scores, keys);
        for (std::int64_t r = 0; r < rows; ++r)
            softmax.row(r, scores + r * keys, visible(first + r, key, keys), keys, d);
        multiply(true, View<T>{scores, rows, keys, keys}, v, softmax.context, d);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
        const T inverse = 1 / softmax.sum[r];
        T* result = context + at.context + (first + r) * l.context_stride;
        for (std::int64_t j = 0; j < d; ++j) result[j] = softmax.context[r * d + j] * inverse;
        lse[at.lse + (first + r) * l.heads] = softmax.maximum[r] + std::log(softmax.sum[r]);
    }
}

template <class T>
struct BackwardTensors {
    const T *dcontext, *qkv, *context, *lse;
    T* dqkv;
};

// One row of a tile: from scores and dP to P and dS = P (dP - delta), 0 where the mask hides them.
template <class T>
void score_gradients(T* scores, T* dscores, std::int64_t seen, std::int64_t keys, T lse, T delta) {
    each_pack<T>(seen, [&](auto at) {
        const Pack<T> p = exp(at.load(scores) - Pack<T>(lse));
        at.store(scores, p);
        at.store(dscores, p * (at.load(dscores) - Pack<T>(delta)));
    });
    std::fill(scores + seen, scores + keys, T{0});
    std::fill(dscores + seen, dscores + keys, T{0});
}

// Adds what a tile of queries gives to dQ, dK and dV, which stand in dqkv.
template <class T>
void backward_tile(const Layout<AttentionBackwardArgs>& l, const HeadPlace& at, std::int64_t first,
                   const BackwardTensors<T>& t) {
    const std::int64_t d = l.head_dim, stride = l.qkv_stride, rows = std::min(query_tile, l.sequence - first);
    const T scale = l.template softmax_scale<T>();
    T *queries = scratch<T, 0>(query_tile * d), *scores = scratch<T, 1>(query_tile * key_tile);
    T* dscores = scratch<T, 2>(query_tile * key_tile);
    scale_queries(t.qkv + at.query + first * stride, stride, rows, d, scale, queries);
    const View<T> q{queries, rows, d, d};
    const View<T> dcontext{t.dcontext + at.context + first * l.context_stride, rows, d, l.context_stride};
    const T* context = t.context + at.context + first * l.context_stride;
    T delta[query_tile];  // sum over head_dim of dcontext * context
    for (std::int64_t r = 0; r < rows; ++r)
        delta[r] = sum_packs<T>(d, [&](auto place) {
            return place.load(dcontext.data + r * l.context_stride) * place.load(context + r * l.context_stride);
        });

    T* dquery = t.dqkv + at.query + first * stride;
    for (std::int64_t key = 0; key < first + rows; key += key_tile) {
        const std::int64_t keys = std::min(key_tile, first + rows - key), row = key * stride;
        const View<T> k{t.qkv + at.key + row, keys, d, stride}, v{t.qkv + at.value + row, keys, d, stride};
        const View<T> p{scores, rows, keys, keys}, ds{dscores, rows, keys, keys};
        multiply(false, q, transposed(k), scores, keys);
        multiply(false, dcontext, transposed(v), dscores, keys);
        for (std::int64_t r = 0; r < rows; ++r)
            score_gradients(scores + r * keys, dscores + r * keys, visible(first + r, key, keys), keys,
                            t.lse[at.lse + (first + r) * l.heads], delta[r]);
        multiply(true, transposed(p), dcontext, t.dqkv + at.value + row, stride);
        multiply(true, transposed(ds), q, t.dqkv + at.key + row, stride);  // q holds the scale already
        multiply(true, ds, k, dquery, stride);
    }
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < d; ++j) dquery[r * stride + j] *= scale;
}

// Every tile of queries of every head: fixed order, so that dK and dV of a group are sums in order.
template <class Args, class Tile>
void each_tile(const Layout<Args>& l, Tile&& tile) {
    for (std::int64_t sample = 0; sample < l.batch; ++sample)
        for (std::int64_t head = 0; head < l.heads; ++head)
            for (std::int64_t first = 0; first < l.sequence; first += query_tile) tile(l.place(sample, head), first);
}

}  // namespace

void attention_forward(const AttentionForwardArgs& a, const KernelContext& c) {
    const Layout layout(a);
    with_type("attention_forward", a.type, [&]<class T>(T) {
        each_tile(layout, [&](const HeadPlace& at, std::int64_t first) {
            forward_tile(layout, at, first, in<T>(c, 0), out<T>(c, 1), out<T>(c, 2));
        });
    });
}

void attention_backward(const AttentionBackwardArgs& a, const KernelContext& c) {
    const Layout layout(a);
    with_type("attention_backward", a.type, [&]<class T>(T) {
        const BackwardTensors<T> tensors{in<T>(c, 0), in<T>(c, 1), in<T>(c, 2), in<T>(c, 3), out<T>(c, 4)};
        std::fill_n(tensors.dqkv, a.batch * a.sequence * layout.qkv_stride, T{0});
        each_tile(layout, [&](const HeadPlace& at, std::int64_t first) { backward_tile(layout, at, first, tensors); });
    });
}

}  // namespace foretrain::cpu
