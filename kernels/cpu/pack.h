// Pack<T>: as many elements as a vector register of this machine holds, with the arithmetic and the
// exponential that the kernels need.
//
// Loops over packs are written so that the position of an element in its row alone decides how it is
// computed: full packs from the first element on, then one partly filled. A compiler's or library's
// own vectorisation of sums and exponentials would peel by address, and the bits with it.
//
//   each_pack<T>(n, [&](auto at) { at.store(y, exp(at.load(x))); });
//   T total = sum_packs<T>(n, [&](auto at) { return at.keep(exp(at.load(x))); });
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace foretrain::cpu {

#if defined(__AVX512F__)
constexpr int pack_bytes = 64;
#elif defined(__AVX__)
constexpr int pack_bytes = 32;
#else
constexpr int pack_bytes = 16;
#endif

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
    typedef float Vector __attribute__((vector_size(pack_bytes)));
    typedef std::uint32_t Bits __attribute__((vector_size(pack_bytes)));
};
template <>
struct Lanes<double> {
    typedef double Vector __attribute__((vector_size(pack_bytes)));
    typedef std::uint64_t Bits __attribute__((vector_size(pack_bytes)));
};

template <class T>
struct Pack {
    using Vector = typename Lanes<T>::Vector;
    static constexpr int lanes = pack_bytes / static_cast<int>(sizeof(T));

    Vector v;

    Pack() = default;
    Pack(T x) : v(x - Vector{}) {}
    explicit Pack(Vector x) : v(x) {}

    friend Pack operator+(Pack a, Pack b) { return Pack(a.v + b.v); }
    friend Pack operator-(Pack a, Pack b) { return Pack(a.v - b.v); }
    friend Pack operator*(Pack a, Pack b) { return Pack(a.v * b.v); }
    friend Pack operator/(Pack a, Pack b) { return Pack(a.v / b.v); }
    friend Pack max(Pack a, Pack b) { return Pack(a.v > b.v ? a.v : b.v); }

    static Pack load(const T* p) {
        Pack x;
        std::memcpy(&x.v, p, sizeof(Vector));
        return x;
    }
    void store(T* p) const { std::memcpy(p, &v, sizeof(Vector)); }
};

// A place in a row: where a full pack stands, or the last `count` elements.
template <class T>
struct FullPack {
    std::int64_t first;

    Pack<T> load(const T* row) const { return Pack<T>::load(row + first); }
    void store(T* row, Pack<T> x) const { x.store(row + first); }
    Pack<T> keep(Pack<T> x, T = 0) const { return x; }
};
template <class T>
struct LastPack {
    std::int64_t first;
    std::int64_t count;

    Pack<T> load(const T* row) const {
        T lanes[Pack<T>::lanes] = {};
        std::memcpy(lanes, row + first, static_cast<std::size_t>(count) * sizeof(T));
        return Pack<T>::load(lanes);
    }
    void store(T* row, Pack<T> x) const {
        T lanes[Pack<T>::lanes];
        x.store(lanes);
        std::memcpy(row + first, lanes, static_cast<std::size_t>(count) * sizeof(T));
    }
    // x, with the lanes behind the row's end replaced: what a reduction needs.
    Pack<T> keep(Pack<T> x, T otherwise = 0) const {
        T lanes[Pack<T>::lanes];
        x.store(lanes);
        for (std::int64_t i = count; i < Pack<T>::lanes; ++i) lanes[i] = otherwise;
        return Pack<T>::load(lanes);
    }
};

template <class T, class Body>
void each_pack(std::int64_t n, Body&& body) {
    std::int64_t i = 0;
    for (; i + Pack<T>::lanes <= n; i += Pack<T>::lanes) body(FullPack<T>{i});
    if (i < n) body(LastPack<T>{i, n - i});
}

// Combines term(place) over a row with `combine`, from `start`, in an order that n alone decides. Four
// chains, because one would wait for its own additions.
template <class T, class Term, class Combine>
T reduce_packs(std::int64_t n, T start, Term&& term, Combine&& combine) {
    constexpr int width = Pack<T>::lanes;
    Pack<T> a(start), b(start), c(start), d(start);
    std::int64_t i = 0;
    for (; i + 4 * width <= n; i += 4 * width) {
        a = combine(a, term(FullPack<T>{i}));
        b = combine(b, term(FullPack<T>{i + width}));
        c = combine(c, term(FullPack<T>{i + 2 * width}));
        d = combine(d, term(FullPack<T>{i + 3 * width}));
    }
    for (; i + width <= n; i += width) a = combine(a, term(FullPack<T>{i}));
    if (i < n) b = combine(b, term(LastPack<T>{i, n - i}));
    T lanes[width];
    combine(combine(a, b), combine(c, d)).store(lanes);
    for (int half = width / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) {
            T pair[width];
            combine(Pack<T>(lanes[l]), Pack<T>(lanes[l + half])).store(pair);
            lanes[l] = pair[0];
        }
    return lanes[0];
}

template <class T, class Term>
T sum_packs(std::int64_t n, Term&& term) {
    return reduce_packs<T>(n, T{0}, term, [](auto a, auto b) { return a + b; });
}
template <class T, class Term>
T max_packs(std::int64_t n, Term&& term) {
    return reduce_packs<T>(n, -std::numeric_limits<T>::infinity(), term, [](auto a, auto b) { return max(a, b); });
}

// What exp needs to know of a type: x = n ln 2 + r with |r| <= ln 2 / 2, exp x = 2^n exp r, and exp r
// by its Taylor series, which is exact to rounding at this many terms.
template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
    static constexpr float least = -87.3F, most = 88.3F;  // 2^n stays a normal number
    static constexpr float magic = 12582912.0F;           // 1.5 * 2^23: adding it rounds to an integer
    static constexpr float ln2_high = 0.693359375F, ln2_low = -2.12194440e-4F;
    static constexpr std::uint32_t mantissa = 23, bias = 127;
    static constexpr int terms = 7;
};
template <>
struct ExpConstants<double> {
    static constexpr double least = -708.3, most = 709.0;
    static constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
    static constexpr std::uint64_t mantissa = 52, bias = 1023;
    static constexpr int terms = 13;
};

// exp, to about one unit in the last place; 0 below the smallest normal number, finite above the
// largest, NaN for NaN.
template <class T>
Pack<T> exp(Pack<T> x) {
    using C = ExpConstants<T>;
    using Vector = typename Pack<T>::Vector;
    using Bits = typename Lanes<T>::Bits;
    const Pack<T> least(C::least), most(C::most);
    Vector y = x.v > most.v ? most.v : x.v;
    y = y < least.v ? least.v : y;
    const Vector shifted = y * T(1.4426950408889634) + C::magic;
    const Vector n = shifted - C::magic;
    const Vector r = (y - n * C::ln2_high) - n * C::ln2_low;
    T factorial = 1;
    for (int i = 2; i <= C::terms; ++i) factorial *= T(i);
    Vector series = Pack<T>(1 / factorial).v;
    for (int i = C::terms; i > 0; --i) {
        factorial /= T(i);
        series = series * r + 1 / factorial;
    }
    Bits bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << C::mantissa) + (C::bias << C::mantissa);  // n stands in the low bits of `shifted`
    Vector power;
    std::memcpy(&power, &bits, sizeof power);
    return Pack<T>(x.v < least.v ? Vector{} : series * power);
}

template <class T>
Pack<T> sigmoid(Pack<T> x) {
    return Pack<T>(T(1)) / (Pack<T>(T(1)) + exp(Pack<T>(T(0)) - x));
}

}  // namespace foretrain::cpu
