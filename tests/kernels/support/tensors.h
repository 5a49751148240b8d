// What the kernel tests share: random tensors, calls, and the two ways to judge a result.
//
//   Tensor<double> x = random_tensor<double>(n, 1);
//   call(GeluArgs{.rows = 1, .width = n}, {x.data(), y.data()});
//   expect_near(y, reference, 1e-5);                           // against a plain loop in double
//   expect_gradient([&] { return dot(dy, gelu_of(x)); }, x, dx);  // against central differences
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace foretrain::test {

template <class T>
using Tensor = std::vector<T>;

template <class T>
constexpr DType type_of = sizeof(T) == 8 ? DType::fp64 : DType::fp32;

// Relative to the largest element: what a kernel in T may be off from the reference in double.
template <class T>
constexpr double tolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;

template <class T>
Tensor<T> random_tensor(std::int64_t elements, unsigned seed, double scale = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0, scale);
    Tensor<T> x(static_cast<std::size_t>(elements));
    for (T& v : x) v = static_cast<T>(normal(engine));
    return x;
}

template <class T>
Tensor<T> zeros(std::int64_t elements) {
    return Tensor<T>(static_cast<std::size_t>(elements));
}

template <class T>
Tensor<double> in_double(const Tensor<T>& x) {
    return Tensor<double>(x.begin(), x.end());
}

inline void call(const KernelArgs& args, std::vector<void*> operands, std::int64_t tensor_rank = 0,
                 std::int64_t step = 1) {
    launch(cpu_kernels(), args, {.operand = operands, .tensor_rank = tensor_rank, .step = step});
}

// A const operand.
template <class T>
void* as_operand(const Tensor<T>& x) {
    return const_cast<T*>(x.data());
}

template <class T>
void expect_near(const Tensor<T>& result, const Tensor<double>& reference, double relative,
                 const std::string& what = "") {
    ASSERT_EQ(result.size(), reference.size()) << what;
    double scale = 1e-30;
    for (double v : reference) scale = std::max(scale, std::abs(v));
    for (std::size_t i = 0; i < result.size(); ++i)
        ASSERT_NEAR(static_cast<double>(result[i]), reference[i], relative * scale) << what << " at " << i;
}

inline double dot(const Tensor<double>& a, const Tensor<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// `gradient` is the derivative of value() by the elements of x; at most about 200 of them are tried.
template <class Value>
void expect_gradient(Value&& value, Tensor<double>& x, const Tensor<double>& gradient, const std::string& what = "") {
    ASSERT_EQ(x.size(), gradient.size()) << what;
    double scale = 1e-3;
    for (double g : gradient) scale = std::max(scale, std::abs(g));
    const double h = 1e-5;
    for (std::size_t i = 0; i < x.size(); i += 1 + x.size() / 200) {
        const double middle = x[i];
        x[i] = middle + h;
        const double above = value();
        x[i] = middle - h;
        const double below = value();
        x[i] = middle;
        ASSERT_NEAR((above - below) / (2 * h), gradient[i], 1e-6 * scale) << what << " at " << i;
    }
}

}  // namespace foretrain::test
