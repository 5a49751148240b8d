// GELU and SwiGLU.
#include "kernels/cpu/functions.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

// GELU in its tanh form is x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because
// (1 + tanh u) / 2 = sigmoid(2u). So one exponential does, and nothing cancels where x < 0.
constexpr double slope = 1.5957691216057308, cubic = slope * 0.044715;  // 2u = x (slope + cubic x^2)

template <class T>
void run(const GeluArgs& a, const T* x, T* y) {
    each_pack<T>(a.rows * a.width, [&](auto at) {
        const Pack<T> v = at.load(x);
        const Pack<T> twice_u = v * (Pack<T>(T(slope)) + Pack<T>(T(cubic)) * (v * v));
        at.store(y, v * sigmoid(twice_u));
    });
}

// d/dx [x s(2u)] = s + x s (1 - s) (2u)'.
template <class T>
void run_backward(const GeluArgs& a, const T* dy, const T* x, T* dx) {
    each_pack<T>(a.rows * a.width, [&](auto at) {
        const Pack<T> v = at.load(x), square = v * v;
        const Pack<T> s = sigmoid(v * (Pack<T>(T(slope)) + Pack<T>(T(cubic)) * square));
        const Pack<T> inner = Pack<T>(T(slope)) + Pack<T>(T(3 * cubic)) * square;
        at.store(dx, at.load(dy) * (s + v * s * (Pack<T>(T(1)) - s) * inner));
    });
}

template <class T>
void run(const SwigluArgs& a, const T* x, T* y) {
    for (std::int64_t r = 0; r < a.rows; ++r, x += 2 * a.width, y += a.width)
        each_pack<T>(a.width, [&](auto at) {
            const Pack<T> gate = at.load(x), up = at.load(x + a.width);
            at.store(y, gate * sigmoid(gate) * up);
        });
}

// silu(g) = g s(g); silu'(g) = s + g s (1 - s).
template <class T>
void run_backward(const SwigluArgs& a, const T* dy, const T* x, T* dx) {
    for (std::int64_t r = 0; r < a.rows; ++r, x += 2 * a.width, dx += 2 * a.width, dy += a.width)
        each_pack<T>(a.width, [&](auto at) {
            const Pack<T> gate = at.load(x), up = at.load(x + a.width), d = at.load(dy), s = sigmoid(gate);
            at.store(dx, d * up * s * (Pack<T>(T(1)) + gate * (Pack<T>(T(1)) - s)));
            at.store(dx + a.width, d * gate * s);
        });
}

}  // namespace

void gelu(const GeluArgs& a, const KernelContext& c) {
    with_type("gelu", a.type, [&]<class T>(T) {
        if (a.backward)
            run_backward(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2));
        else
            run(a, in<T>(c, 0), out<T>(c, 1));
    });
}

void swiglu(const SwigluArgs& a, const KernelContext& c) {
    with_type("swiglu", a.type, [&]<class T>(T) {
        if (a.backward)
            run_backward(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2));
        else
            run(a, in<T>(c, 0), out<T>(c, 1));
    });
}

}  // namespace foretrain::cpu
