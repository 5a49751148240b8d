// Attention in tiles, without the s x s matrix, for kernels that say which keys a query sees.
//
// A tile holds query_tile queries against key_tile keys. Forward keeps, for each query, the running
// maximum and sum of the softmax and rescales the context when the maximum grows; it may resume where an
// earlier call over other keys has ended, whose lse and context say all there is to know. Backward
// recomputes each tile's probabilities from the saved lse.
//
// `seen(query)` keys, from the first on, are seen by a query; it does not fall as queries go on.
//
//   each_tile(queries, [&](std::int64_t first, std::int64_t rows) {
//       forward_tile(head, first, rows, [](std::int64_t query) { return query + 1; }, false);
//   });
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

constexpr std::int64_t query_tile = 64, key_tile = 64;

// Rows of one head's tensor in a packed one, `stride` elements apart.
template <class T>
struct Rows {
    T* first;
    std::int64_t stride;
    T* at(std::int64_t row) const { return first + row * stride; }
};

// One head of one sample.
template <class T>
struct ForwardHead {
    std::int64_t head_dim;
    Rows<const T> queries, keys, values;
    Rows<T> context, lse;
};
template <class T>
struct BackwardHead {
    std::int64_t head_dim;
    Rows<const T> queries, keys, values, dcontext, context, lse;
    Rows<T> dqueries, dkeys, dvalues;  // the latter two are added to
};

template <class T>
T softmax_scale(std::int64_t head_dim) {
    return T(1) / std::sqrt(static_cast<T>(head_dim));
}

// The queries times the softmax scale, dense: (rows, head_dim).
template <class T>
void scale_queries(Rows<const T> queries, std::int64_t first, std::int64_t rows, std::int64_t width, T* result) {
    const T scale = softmax_scale<T>(width);
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < width; ++j) result[r * width + j] = queries.at(first + r)[j] * scale;
}

// The running softmax of a tile of queries.
template <class T>
struct OnlineSoftmax {
    T maximum[query_tile], sum[query_tile];
    T* context;  // (queries, head_dim), not yet divided by sum

    // Where earlier keys have led, or nowhere yet.
    void begin(const ForwardHead<T>& h, std::int64_t first, std::int64_t rows, bool resume) {
        std::fill_n(maximum, rows, -std::numeric_limits<T>::infinity());
        std::fill_n(sum, rows, T{0});
        std::fill_n(context, rows * h.head_dim, T{0});
        for (std::int64_t r = 0; resume && r < rows; ++r) {
            maximum[r] = *h.lse.at(first + r);
            sum[r] = 1;
            std::copy_n(h.context.at(first + r), h.head_dim, context + r * h.head_dim);
        }
    }

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

    void end(const ForwardHead<T>& h, std::int64_t first, std::int64_t rows) const {
        for (std::int64_t r = 0; r < rows; ++r) {
            const T inverse = 1 / sum[r];
            T* result = h.context.at(first + r);
            for (std::int64_t j = 0; j < h.head_dim; ++j) result[j] = context[r * h.head_dim + j] * inverse;
            *h.lse.at(first + r) = maximum[r] + std::log(sum[r]);
        }
    }
};

template <class T, class Seen>
void forward_tile(const ForwardHead<T>& h, std::int64_t first, std::int64_t rows, Seen&& seen, bool resume) {
    const std::int64_t d = h.head_dim, end = seen(first + rows - 1);
    if (end == 0 && resume) return;
    T *queries = scratch<T, 0>(query_tile * d), *scores = scratch<T, 1>(query_tile * key_tile);
    OnlineSoftmax<T> softmax;
    softmax.context = scratch<T, 2>(query_tile * d);
    softmax.begin(h, first, rows, resume);
    scale_queries(h.queries, first, rows, d, queries);
    for (std::int64_t key = 0; key < end; key += key_tile) {
        const std::int64_t keys = std::min(key_tile, end - key);
        const View<T> k{h.keys.at(key), keys, d, h.keys.stride}, v{h.values.at(key), keys, d, h.values.stride};
        multiply(false, View<T>{queries, rows, d, d}, transposed(k), scores, keys);
        for (std::int64_t r = 0; r < rows; ++r)
            softmax.row(r, scores + r * keys, std::clamp<std::int64_t>(seen(first + r) - key, 0, keys), keys, d);
        multiply(true, View<T>{scores, rows, keys, keys}, v, softmax.context, d);
    }
    softmax.end(h, first, rows);
}

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

// Adds what a tile of queries gives to dK and dV; dQ is written, or added to if `add`.
template <class T, class Seen>
void backward_tile(const BackwardHead<T>& h, std::int64_t first, std::int64_t rows, Seen&& seen, bool add) {
    const std::int64_t d = h.head_dim, end = seen(first + rows - 1);
    if (end == 0 && add) return;
    T *queries = scratch<T, 0>(query_tile * d), *scores = scratch<T, 1>(query_tile * key_tile);
    T *dscores = scratch<T, 2>(query_tile * key_tile), *dqueries = scratch<T, 3>(query_tile * d);
    std::fill_n(dqueries, rows * d, T{0});
    scale_queries(h.queries, first, rows, d, queries);
    const View<T> q{queries, rows, d, d};
    const View<T> dcontext{h.dcontext.at(first), rows, d, h.dcontext.stride};
    T delta[query_tile];  // sum over head_dim of dcontext * context
    for (std::int64_t r = 0; r < rows; ++r)
        delta[r] = sum_packs<T>(
            d, [&](auto at) { return at.load(h.dcontext.at(first + r)) * at.load(h.context.at(first + r)); });

    for (std::int64_t key = 0; key < end; key += key_tile) {
        const std::int64_t keys = std::min(key_tile, end - key);
        const View<T> k{h.keys.at(key), keys, d, h.keys.stride}, v{h.values.at(key), keys, d, h.values.stride};
        const View<T> p{scores, rows, keys, keys}, ds{dscores, rows, keys, keys};
        multiply(false, q, transposed(k), scores, keys);
        multiply(false, dcontext, transposed(v), dscores, keys);
        for (std::int64_t r = 0; r < rows; ++r)
            score_gradients(scores + r * keys, dscores + r * keys,
                            std::clamp<std::int64_t>(seen(first + r) - key, 0, keys), keys, *h.lse.at(first + r),
                            delta[r]);
        multiply(true, transposed(p), dcontext, h.dvalues.at(key), h.dvalues.stride);
        multiply(true, transposed(ds), q, h.dkeys.at(key), h.dkeys.stride);  // q holds the scale already
        multiply(true, ds, k, dqueries, d);
    }
    const T scale = softmax_scale<T>(d);
    for (std::int64_t r = 0; r < rows; ++r) {
        T* result = h.dqueries.at(first + r);
        for (std::int64_t j = 0; j < d; ++j) result[j] = (add ? result[j] : T{0}) + dqueries[r * d + j] * scale;
    }
}

template <class Tile>
void each_tile(std::int64_t queries, Tile&& tile) {
    for (std::int64_t first = 0; first < queries; first += query_tile)
        tile(first, std::min(query_tile, queries - first));
}

}  // namespace foretrain::cpu
