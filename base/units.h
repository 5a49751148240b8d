// Units live in types, never in a name's suffix.
//
// Bytes, Time and Flops are 64-bit integers that do not mix: adding a Time to Bytes does not
// compile. Time counts picoseconds (a 64-bit count reaches 106 days), so that predictions are
// exact integers and equal on every machine. Rates are doubles, because they are measured.
//
//   Bytes weights = 2 * Bytes{n};
//   Time transfer = weights / Bandwidth::gigabytes(50);   // rounded once, to the picosecond
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace foretrain {

// An integer amount of one dimension.
template <class Tag>
struct Quantity {
    std::int64_t value = 0;

    constexpr Quantity() = default;
    constexpr explicit Quantity(std::int64_t amount) : value(amount) {}

    constexpr auto operator<=>(const Quantity&) const = default;
    constexpr Quantity& operator+=(Quantity other) {
        value += other.value;
        return *this;
    }
    constexpr Quantity& operator-=(Quantity other) {
        value -= other.value;
        return *this;
    }
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{a.value + b.value}; }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{a.value - b.value}; }
    friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity{a.value * n}; }
    friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return Quantity{a.value * n}; }
    friend constexpr Quantity operator/(Quantity a, std::int64_t n) { return Quantity{a.value / n}; }
};

using Bytes = Quantity<struct BytesTag>;
using Time = Quantity<struct TimeTag>;    // picoseconds
using Flops = Quantity<struct FlopsTag>;  // floating-point operations (a multiply-add counts two)

constexpr double GB = 1e9;
constexpr std::int64_t GiB = std::int64_t{1} << 30;
constexpr std::int64_t MiB = std::int64_t{1} << 20;

// Rounds to the nearest picosecond. Precondition: finite, at least zero, below 9e6 seconds.
inline Time from_seconds(double s) { return Time{std::llround(s * 1e12)}; }
inline Time from_microseconds(double us) { return Time{std::llround(us * 1e6)}; }
constexpr double seconds(Time t) { return static_cast<double>(t.value) * 1e-12; }
constexpr double microseconds(Time t) { return static_cast<double>(t.value) * 1e-6; }
constexpr double gibibytes(Bytes b) { return static_cast<double>(b.value) / static_cast<double>(GiB); }

struct Bandwidth {
    double bytes_per_second = 0;
    static constexpr Bandwidth gigabytes(double per_second) { return {per_second * GB}; }
    constexpr double gigabytes() const { return bytes_per_second / GB; }
    constexpr auto operator<=>(const Bandwidth&) const = default;
};

struct FlopRate {
    double per_second = 0;
    static constexpr FlopRate tera(double tflops) { return {tflops * 1e12}; }
    constexpr double tera() const { return per_second / 1e12; }
    constexpr auto operator<=>(const FlopRate&) const = default;
};

inline Time operator/(Bytes b, Bandwidth w) { return from_seconds(static_cast<double>(b.value) / w.bytes_per_second); }

// Integer helpers that shapes and layouts need everywhere.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace foretrain
