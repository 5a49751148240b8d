// GELU, SwiGLU and their likes: one function of each element, alone or times another half.
#include <type_traits>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

// GELU in its tanh form is x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because
// (1 + tanh u) / 2 = sigmoid(2u). So one exponential does, and nothing cancels where x < 0.
constexpr double slope = 1.5957691216057308, cubic = slope * 0.044715;  // 2u = x (slope + cubic x^2)

// Each function by its value and its derivative.
struct Gelu {
    template <class T>
    static Pack<T> value(Pack<T> v) {
        return v * sigmoid(v * (Pack<T>(T(slope)) + Pack<T>(T(cubic)) * (v * v)));
    }
    // d/dx [x s(2u)] = s + x s (1 - s) (2u)'.
    template <class T>
    static Pack<T> derivative(Pack<T> v) {
        const Pack<T> square = v * v;
        const Pack<T> s = sigmoid(v * (Pack<T>(T(slope)) + Pack<T>(T(cubic)) * square));
        const Pack<T> inner = Pack<T>(T(slope)) + Pack<T>(T(3 * cubic)) * square;
        return s + v * s * (Pack<T>(T(1)) - s) * inner;
    }
};

struct Silu {
    template <class T>
    static Pack<T> value(Pack<T> v) {
        return v * sigmoid(v);
    }
    // silu'(x) = s + x s (1 - s).
    template <class T>
    static Pack<T> derivative(Pack<T> v) {
        const Pack<T> s = sigmoid(v);
        return s * (Pack<T>(T(1)) + v * (Pack<T>(T(1)) - s));
    }
};

struct Relu {
    template <class T>
    static Pack<T> value(Pack<T> v) {
        return max(v, Pack<T>(T(0)));
    }
    template <class T>
    static Pack<T> derivative(Pack<T> v) {
        return Pack<T>(v.v > Pack<T>(T(0)).v ? Pack<T>(T(1)).v : Pack<T>(T(0)).v);
    }
};

struct SquaredRelu {
    template <class T>
    static Pack<T> value(Pack<T> v) {
        const Pack<T> positive = max(v, Pack<T>(T(0)));
        return positive * positive;
    }
    template <class T>
    static Pack<T> derivative(Pack<T> v) {
        return Pack<T>(T(2)) * max(v, Pack<T>(T(0)));
    }
};

template <class Run>
void with_function(Pointwise function, Run&& run) {
    switch (function) {
        case Pointwise::gelu: return run(Gelu{});
        case Pointwise::silu: return run(Silu{});
        case Pointwise::relu: return run(Relu{});
        case Pointwise::squared_relu: return run(SquaredRelu{});
    }
}

template <class F, class T>
void run(const GeluArgs& a, const T* x, T* y) {
    each_pack<T>(a.rows * a.width, [&](auto at) { at.store(y, F::value(at.load(x))); });
}

template <class F, class T>
void run_backward(const GeluArgs& a, const T* dy, const T* x, T* dx) {
    each_pack<T>(a.rows * a.width, [&](auto at) { at.store(dx, at.load(dy) * F::derivative(at.load(x))); });
}

template <class F, class T>
void run(const SwigluArgs& a, const T* x, T* y) {
    for (std::int64_t r = 0; r < a.rows; ++r, x += 2 * a.width, y += a.width)
        each_pack<T>(a.width, [&](auto at) { at.store(y, F::value(at.load(x)) * at.load(x + a.width)); });
}

template <class F, class T>
void run_backward(const SwigluArgs& a, const T* dy, const T* x, T* dx) {
    for (std::int64_t r = 0; r < a.rows; ++r, x += 2 * a.width, dx += 2 * a.width, dy += a.width)
        each_pack<T>(a.width, [&](auto at) {
            const Pack<T> gate = at.load(x), up = at.load(x + a.width), d = at.load(dy);
            if constexpr (std::is_same_v<F, Silu>) {  // one exponential for both
                const Pack<T> s = sigmoid(gate);
                at.store(dx, d * up * s * (Pack<T>(T(1)) + gate * (Pack<T>(T(1)) - s)));
                at.store(dx + a.width, d * gate * s);
            } else {
                at.store(dx, d * up * F::derivative(gate));
                at.store(dx + a.width, d * F::value(gate));
            }
        });
}

}  // namespace

void gelu(const GeluArgs& a, const KernelContext& c) {
    with_type("gelu", a.type, [&]<class T>(T) {
        with_function(a.function, [&]<class F>(F) {
            if (a.backward)
                run_backward<F>(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2));
            else
                run<F>(a, in<T>(c, 0), out<T>(c, 1));
        });
    });
}

void swiglu(const SwigluArgs& a, const KernelContext& c) {
    with_type("swiglu", a.type, [&]<class T>(T) {
        with_function(a.function, [&]<class F>(F) {
            if (a.backward)
                run_backward<F>(a, in<T>(c, 0), in<T>(c, 1), out<T>(c, 2));
            else
                run<F>(a, in<T>(c, 0), out<T>(c, 1));
        });
    });
}

}  // namespace foretrain::cpu
