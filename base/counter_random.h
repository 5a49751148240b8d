// Random numbers without a state: a key and a counter give the number, so that whoever holds a part
// of a tensor, or of a batch, makes that part alone and gets what the whole would have held.
//
//   CounterRandom random = CounterRandom::keyed(hash("layers.0.qkv.weight"), seed);
//   double x = random.normal(element);       // the same on every rank, under any sharding
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace foretrain {

// The finalizer of splitmix64: every bit of the input reaches every bit of the result.
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// FNV-1a: names to keys.
constexpr std::uint64_t hash(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325ULL;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return h;
}

class CounterRandom {
public:
    static CounterRandom keyed(std::uint64_t a, std::uint64_t b) { return CounterRandom(mix(mix(a + step) ^ b)); }

    std::uint64_t bits(std::uint64_t counter) const { return mix(key_ + (counter + 1) * step); }

    // In [0, 1).
    double uniform(std::uint64_t counter) const { return static_cast<double>(bits(counter) >> 11) * 0x1p-53; }

    // In [0, bound), for a bound far below 2^32: its bias is below 2^-32 * bound.
    std::int64_t below(std::uint64_t counter, std::int64_t bound) const {
        return static_cast<std::int64_t>(((bits(counter) >> 32) * static_cast<std::uint64_t>(bound)) >> 32);
    }

    // Standard normal, by Box and Muller: both halves of one draw, so that counters 2i and 2i + 1 share it.
    double normal(std::uint64_t counter) const {
        const std::uint64_t draw = bits(counter >> 1);
        const double u = (static_cast<double>(draw >> 32) + 0.5) * 0x1p-32;  // never zero
        const double angle = static_cast<double>(draw & 0xffffffffULL) * 0x1p-32 * 2 * std::numbers::pi;
        return std::sqrt(-2 * std::log(u)) * ((counter & 1) != 0 ? std::sin(angle) : std::cos(angle));
    }

private:
    explicit CounterRandom(std::uint64_t key) : key_(key) {}
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio, odd
    std::uint64_t key_;
};

}  // namespace foretrain
