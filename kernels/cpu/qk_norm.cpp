// The norm over each query and key head.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/functions.h"

namespace foretrain::cpu {

namespace {

// Calls body(head in qkv, head in raw, offset of the head's weight, whether it is a key), row by row.
template <class T, class Body>
void each_head(const QkNormArgs& a, T* qkv, Body&& body) {
    const std::int64_t group = a.heads / a.kv_heads, d = a.head_dim;
    std::int64_t raw = 0;
    for (std::int64_t row = 0; row < a.rows; ++row)
        for (std::int64_t g = 0; g < a.kv_heads; ++g, qkv += d)  // past the value
            for (std::int64_t h = 0; h <= group; ++h, qkv += d, raw += d) {
                const bool key = h == group;
                body(qkv, raw, a.per_head ? (key ? g : g * group + h) * d : 0, key);
            }
}

template <class T>
T mean_of(const T* x, std::int64_t n, bool rms) {
    T sum = 0;
    if (!rms)
        for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    return sum / static_cast<T>(n);
}

template <class T>
T scale_of(const T* x, T mean, const QkNormArgs& a) {
    T squares = 0;
    for (std::int64_t i = 0; i < a.head_dim; ++i) squares += (x[i] - mean) * (x[i] - mean);
    return 1 / std::sqrt(squares / static_cast<T>(a.head_dim) + static_cast<T>(a.epsilon));
}

template <class T>
void run(const QkNormArgs& a, const KernelContext& c) {
    T* raw = out<T>(c, 1);
    const T *query = in<T>(c, 2), *key = in<T>(c, 3);
    each_head(a, out<T>(c, 0), [&](T* x, std::int64_t at, std::int64_t weight, bool is_key) {
        std::copy_n(x, a.head_dim, raw + at);
        const T* w = (is_key ? key : query) + weight;
        const T mean = mean_of(x, a.head_dim, a.rms), scale = scale_of(x, mean, a);
        for (std::int64_t i = 0; i < a.head_dim; ++i) x[i] = (x[i] - mean) * scale * w[i];
    });
}

// As in norm.cpp: dx = scale * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight.
template <class T>
void run_backward(const QkNormArgs& a, const KernelContext& c) {
    const T* raw = in<T>(c, 1);
    const T *query = in<T>(c, 2), *key = in<T>(c, 3);
    T *dquery = out<T>(c, 4), *dkey = out<T>(c, 5);
    if (!a.accumulate) {
        std::fill_n(dquery, (a.per_head ? a.heads : 1) * a.head_dim, T{0});
        std::fill_n(dkey, (a.per_head ? a.kv_heads : 1) * a.head_dim, T{0});
    }
    const T count = static_cast<T>(a.head_dim);
    each_head(a, out<T>(c, 0), [&](T* dy, std::int64_t at, std::int64_t weight, bool is_key) {
        const T *x = raw + at, *w = (is_key ? key : query) + weight;
        T* dw = (is_key ? dkey : dquery) + weight;
        const T mean = mean_of(x, a.head_dim, a.rms), scale = scale_of(x, mean, a);
        T gradients = 0, products = 0;
        for (std::int64_t i = 0; i < a.head_dim; ++i) {
            const T xhat = (x[i] - mean) * scale;
            gradients += dy[i] * w[i];
            products += dy[i] * w[i] * xhat;
            dw[i] += dy[i] * xhat;
        }
        const T mean_gradient = a.rms ? T{0} : gradients / count;
        for (std::int64_t i = 0; i < a.head_dim; ++i) {
            const T xhat = (x[i] - mean) * scale;
            dy[i] = scale * (dy[i] * w[i] - mean_gradient - xhat * (products / count));
        }
    });
}

}  // namespace

void qk_norm(const QkNormArgs& a, const KernelContext& c) {
    if (a.backward) require_same("qk_norm_backward", a.type, a.gradient);
    with_type("qk_norm", a.type, [&]<class T>(T) {
        if (a.backward)
            run_backward<T>(a, c);
        else
            run<T>(a, c);
    });
}

}  // namespace foretrain::cpu
