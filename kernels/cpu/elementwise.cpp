// Kernels without exponentials or reductions: the compiler vectorises their loops, and since nothing
// is contracted or reordered, a vector lane gives the bits that a scalar would.
#include <cmath>

#include "kernels/cpu/functions.h"

namespace foretrain::cpu {

namespace {

template <class T>
void run(const ResidualAddArgs& a, const T* x, const T* r, T* y, const T* bias, const T* bias2) {
    if (!bias) {
        for (std::int64_t i = 0; i < a.rows * a.width; ++i) y[i] = x[i] + r[i];
        return;
    }
    for (std::int64_t row = 0; row < a.rows; ++row, x += a.width, r += a.width, y += a.width) {
        for (std::int64_t j = 0; j < a.width; ++j) y[j] = x[j] + r[j] + bias[j];
        for (std::int64_t j = 0; bias2 && j < a.width; ++j) y[j] += bias2[j];
    }
}

// For every pair of element types.
template <class Run>
void with_types(std::string_view kernel, DType from, DType to, Run&& run) {
    with_type(kernel, from, [&]<class From>(From) { with_type(kernel, to, [&]<class To>(To) { run(From{}, To{}); }); });
}

// P: parameter and gradient; O: optimizer state. Arithmetic in O.
template <class P, class O>
void run(const AdamwArgs& a, const KernelContext& c) {
    const O beta1 = static_cast<O>(a.beta1), beta2 = static_cast<O>(a.beta2), epsilon = static_cast<O>(a.epsilon);
    const O decay = static_cast<O>(1 - a.learning_rate * a.weight_decay);
    // theta -= rate * (m / c1) / (sqrt(v / c2) + epsilon), with the corrections c1 and c2 taken out of the loop.
    const double steps = static_cast<double>(c.step);
    const O rate = static_cast<O>(a.learning_rate / (1 - std::pow(a.beta1, steps)));
    const O correction = static_cast<O>(1 / std::sqrt(1 - std::pow(a.beta2, steps)));
    const P* gradient = in<P>(c, 1);
    P* parameter = out<P>(c, 0);
    O *momentum = out<O>(c, 2), *variance = out<O>(c, 3);
    const auto step = [&](std::int64_t i, O theta) {
        const O g = static_cast<O>(gradient[i]);
        const O m = beta1 * momentum[i] + (1 - beta1) * g;
        const O v = beta2 * variance[i] + (1 - beta2) * g * g;
        momentum[i] = m;
        variance[i] = v;
        return theta * decay - rate * m / (std::sqrt(v) * correction + epsilon);
    };
    if (a.master) {
        O* master = out<O>(c, 4);
        for (std::int64_t i = 0; i < a.elements; ++i) {
            master[i] = step(i, master[i]);
            parameter[i] = static_cast<P>(master[i]);
        }
    } else {
        for (std::int64_t i = 0; i < a.elements; ++i)
            parameter[i] = static_cast<P>(step(i, static_cast<O>(parameter[i])));
    }
}

}  // namespace

void residual_add(const ResidualAddArgs& a, const KernelContext& c) {
    with_type("residual_add", a.type, [&]<class T>(T) {
        const T *bias = a.bias ? in<T>(c, 3) : nullptr, *bias2 = a.bias2 ? in<T>(c, 4) : nullptr;
        run(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2), bias, bias2);
    });
}

void accumulate(const AccumulateArgs& a, const KernelContext& c) {
    with_types("accumulate", a.from, a.to, [&]<class From, class To>(From, To) {
        const From* x = in<From>(c, 0);
        To* y = out<To>(c, 1);
        for (std::int64_t i = 0; i < a.elements; ++i) y[i] += static_cast<To>(x[i]);
    });
}

void cast(const CastArgs& a, const KernelContext& c) {
    with_types("cast", a.from, a.to, [&]<class From, class To>(From, To) {
        const From* x = in<From>(c, 0);
        To* y = out<To>(c, 1);
        for (std::int64_t i = 0; i < a.elements; ++i) y[i] = static_cast<To>(x[i]);
    });
}

void adamw(const AdamwArgs& a, const KernelContext& c) {
    require_same("adamw", a.type, a.gradient);
    with_types("adamw", a.type, a.optimizer, [&]<class P, class O>(P, O) { run<P, O>(a, c); });
}

}  // namespace foretrain::cpu
