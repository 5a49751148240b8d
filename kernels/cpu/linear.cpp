// The linear layer: the GEMM and the gradient of its bias.
#include <algorithm>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/multiply.h"

namespace foretrain::cpu {

namespace {

template <class T>
void run(const GemmArgs& a, const T* left, const T* right, T* c, const T* bias) {
    if (bias)
        for (std::int64_t i = 0; i < a.m; ++i)
            for (std::int64_t j = 0; j < a.n; ++j) c[i * a.n + j] = a.accumulate ? c[i * a.n + j] + bias[j] : bias[j];
    multiply<T>(a.accumulate || a.bias, {left, a.m, a.k, a.transpose_a ? a.m : a.k, a.transpose_a},
                {right, a.k, a.n, a.transpose_b ? a.k : a.n, a.transpose_b}, c, a.n);
}

// Rows are summed in blocks, then the blocks: it rounds less than one long sum, and dy streams by.
template <class T>
void run(const BiasGradientArgs& a, const T* dy, T* db) {
    constexpr std::int64_t block = 8;
    T* total = scratch<T, 0>(a.width);
    std::fill_n(total, a.width, T{0});
    std::int64_t r = 0;
    for (; r + block <= a.rows; r += block) {
        const T* x = dy + r * a.width;
        for (std::int64_t j = 0; j < a.width; ++j) {
            T sum = x[j];
            for (std::int64_t i = 1; i < block; ++i) sum += x[i * a.width + j];
            total[j] += sum;
        }
    }
    for (; r < a.rows; ++r)
        for (std::int64_t j = 0; j < a.width; ++j) total[j] += dy[r * a.width + j];
    for (std::int64_t j = 0; j < a.width; ++j) db[j] = a.accumulate ? db[j] + total[j] : total[j];
}

}  // namespace

void gemm(const GemmArgs& a, const KernelContext& c) {
    require_same("gemm", a.type, a.output);
    with_type("gemm", a.type,
              [&]<class T>(T) { run(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2), a.bias ? in<T>(c, 3) : nullptr); });
}

void bias_gradient(const BiasGradientArgs& a, const KernelContext& c) {
    require_same("bias_gradient", a.type, a.gradient);
    with_type("bias_gradient", a.type, [&]<class T>(T) { run(a, in<T>(c, 0), out<T>(c, 1)); });
}

}  // namespace foretrain::cpu
