// LayerNorm and RMSNorm.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

template <class T>
struct Statistics {
    T mean = 0;
    T scale = 0;  // 1 / sqrt(variance + epsilon)
};

// Two passes over a row that lies in the nearest cache by then: the one-pass variance cancels.
template <class T>
Statistics<T> statistics(const T* x, std::int64_t width, bool rms, double epsilon) {
    const T count = static_cast<T>(width);
    Statistics<T> s;
    if (!rms) s.mean = sum_packs<T>(width, [&](auto at) { return at.load(x); }) / count;
    const T squares = sum_packs<T>(width, [&](auto at) {
        const Pack<T> d = at.keep(at.load(x) - Pack<T>(s.mean));
        return d * d;
    });
    s.scale = 1 / std::sqrt(squares / count + static_cast<T>(epsilon));
    return s;
}

template <class T>
void run(const NormForwardArgs& a, const T* x, T* y, const T* weight, const T* bias) {
    for (std::int64_t r = 0; r < a.rows; ++r, x += a.width, y += a.width) {
        const Statistics<T> s = statistics(x, a.width, a.rms, a.epsilon);
        each_pack<T>(a.width, [&](auto at) {
            const Pack<T> normal = (at.load(x) - Pack<T>(s.mean)) * Pack<T>(s.scale);
            const Pack<T> scaled = normal * at.load(weight);
            at.store(y, bias ? scaled + at.load(bias) : scaled);
        });
    }
}

// Sums over rows of dy * xhat and dy, by blocks of rows and then over the blocks.
template <class T>
struct WeightSums {
    std::int64_t width;
    T *block_weight, *block_bias, *weight, *bias;

    explicit WeightSums(std::int64_t n) : width(n), block_weight(scratch<T, 0>(4 * n)) {
        block_bias = block_weight + n;
        weight = block_weight + 2 * n;
        bias = block_weight + 3 * n;
        std::fill_n(block_weight, 4 * n, T{0});
    }
    void close_block() {
        for (std::int64_t i = 0; i < 2 * width; ++i) weight[i] += block_weight[i];
        std::fill_n(block_weight, 2 * width, T{0});
    }
};

// With g = dy * weight and xhat the normalised row:
// dx = scale * (g - mean(g) - xhat * mean(g * xhat)) + residual; RMSNorm has no mean(g).
template <class T>
void backward_row(const NormBackwardArgs& a, const T* dy, const T* x, const T* residual, const T* weight, T* dx,
                  WeightSums<T>& sums) {
    const Statistics<T> s = statistics(x, a.width, a.rms, a.epsilon);
    const T count = static_cast<T>(a.width);
    const auto normal = [&](auto at) { return (at.load(x) - Pack<T>(s.mean)) * Pack<T>(s.scale); };
    const T mean_gradient =
        a.rms ? T{0} : sum_packs<T>(a.width, [&](auto at) { return at.load(dy) * at.load(weight); }) / count;
    const T mean_product =
        sum_packs<T>(a.width, [&](auto at) { return at.load(dy) * at.load(weight) * normal(at); }) / count;
    each_pack<T>(a.width, [&](auto at) {
        const Pack<T> y = at.load(dy), xhat = normal(at);
        at.store(sums.block_weight, at.load(sums.block_weight) + y * xhat);
        if (a.biased()) at.store(sums.block_bias, at.load(sums.block_bias) + y);
        const Pack<T> through = y * at.load(weight) - Pack<T>(mean_gradient) - xhat * Pack<T>(mean_product);
        const Pack<T> gradient = through * Pack<T>(s.scale);
        at.store(dx, residual ? Pack<T>(gradient + at.load(residual)) : gradient);
    });
}

template <class T>
void run(const NormBackwardArgs& a, const KernelContext& c) {
    constexpr std::int64_t block = 32;
    const std::size_t after = a.residual ? 3 : 2;  // the residual, an operand that may be left out
    const T *residual = a.residual ? in<T>(c, 2) : nullptr, *weight = in<T>(c, after);
    T *dx = out<T>(c, after + 1), *dweight = out<T>(c, after + 2);
    WeightSums<T> sums(a.width);
    for (std::int64_t r = 0; r < a.rows; ++r) {
        const std::int64_t at = r * a.width;
        backward_row(a, in<T>(c, 0) + at, in<T>(c, 1) + at, residual ? residual + at : nullptr, weight, dx + at, sums);
        if (r % block == block - 1) sums.close_block();
    }
    sums.close_block();
    for (std::int64_t i = 0; i < a.width; ++i) dweight[i] = (a.accumulate ? dweight[i] : T{0}) + sums.weight[i];
    if (!a.biased()) return;
    T* dbias = out<T>(c, after + 3);
    for (std::int64_t i = 0; i < a.width; ++i) dbias[i] = (a.accumulate ? dbias[i] : T{0}) + sums.bias[i];
}

}  // namespace

void norm_forward(const NormForwardArgs& a, const KernelContext& c) {
    with_type("norm_forward", a.type,
              [&]<class T>(T) { run(a, in<T>(c, 0), out<T>(c, 1), in<T>(c, 2), a.biased() ? in<T>(c, 3) : nullptr); });
}

void norm_backward(const NormBackwardArgs& a, const KernelContext& c) {
    require_same("norm_backward", a.type, a.gradient);
    with_type("norm_backward", a.type, [&]<class T>(T) { run<T>(a, c); });
}

}  // namespace foretrain::cpu
