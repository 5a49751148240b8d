// Vocabulary-parallel cross-entropy, in its four parts.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

// This rank's columns of the vocabulary.
struct Shard {
    std::int64_t first;
    std::int64_t valid;  // columns that are not padding

    Shard(const LossArgs& a, const KernelContext& c)
        : first(c.tensor_rank * a.columns), valid(std::clamp<std::int64_t>(a.vocabulary - first, 0, a.columns)) {}
    // The column in which token i's target stands, or -1 if it is another rank's.
    std::int64_t column(std::int32_t target) const {
        const std::int64_t at = target - first;
        return at >= 0 && at < valid ? at : -1;
    }
};

template <class T>
void maximum(const LossArgs& a, const KernelContext& c) {
    const Shard shard(a, c);
    const T* logits = in<T>(c, 0);
    T* result = out<T>(c, 1);
    for (std::int64_t i = 0; i < a.tokens; ++i, logits += a.columns)
        result[i] = max_packs<T>(
            shard.valid, [&](auto at) { return at.keep(at.load(logits), -std::numeric_limits<T>::infinity()); });
}

// sum over a row of exp(logit - maximum): blocks in T, and the blocks in double.
template <class T>
double sum_of_exponentials(const T* row, std::int64_t n, T maximum) {
    constexpr std::int64_t block = 1024;
    double sum = 0;
    for (std::int64_t first = 0; first < n; first += block)
        sum += static_cast<double>(sum_packs<T>(std::min(block, n - first), [&](auto at) {
            return at.keep(exp(at.load(row + first) - Pack<T>(maximum)));
        }));
    return sum;
}

template <class T>
void sum(const LossArgs& a, const KernelContext& c) {
    const Shard shard(a, c);
    const T *logits = in<T>(c, 0), *maxima = in<T>(c, 1);
    const std::int32_t* targets = in<std::int32_t>(c, 2);
    T* sums = out<T>(c, 3);
    for (std::int64_t i = 0; i < a.tokens; ++i, logits += a.columns) {
        sums[i] = static_cast<T>(sum_of_exponentials(logits, shard.valid, maxima[i]));
        const std::int64_t target = shard.column(targets[i]);
        sums[a.tokens + i] = target >= 0 ? logits[target] - maxima[i] : T{0};
    }
}

template <class T>
void forward(const LossArgs& a, const KernelContext& c) {
    const T *maxima = in<T>(c, 0), *sums = in<T>(c, 1);
    T* lse = out<T>(c, 2);
    double total = 0;
    for (std::int64_t i = 0; i < a.tokens; ++i) {
        const double logarithm = std::log(static_cast<double>(sums[i]));
        lse[i] = static_cast<T>(static_cast<double>(maxima[i]) + logarithm);
        total += logarithm - static_cast<double>(sums[a.tokens + i]);
    }
    *out<double>(c, 3) += total;
}

template <class T>
void backward(const LossArgs& a, const KernelContext& c) {
    const Shard shard(a, c);
    const T *logits = in<T>(c, 0), *lse = in<T>(c, 1);
    const std::int32_t* targets = in<std::int32_t>(c, 2);
    T* dlogits = out<T>(c, 3);
    const T scale = static_cast<T>(a.scale);
    for (std::int64_t i = 0; i < a.tokens; ++i, logits += a.columns, dlogits += a.columns) {
        each_pack<T>(shard.valid,
                     [&](auto at) { at.store(dlogits, exp(at.load(logits) - Pack<T>(lse[i])) * Pack<T>(scale)); });
        std::fill_n(dlogits + shard.valid, a.columns - shard.valid, T{0});
        const std::int64_t target = shard.column(targets[i]);
        if (target >= 0) dlogits[target] -= scale;
    }
}

}  // namespace

void loss(const LossArgs& a, const KernelContext& c) {
    if (a.part == LossArgs::Part::backward) require_same("loss_backward", a.type, a.gradient);
    with_type("loss", a.type, [&]<class T>(T) {
        switch (a.part) {
            case LossArgs::Part::maximum: return maximum<T>(a, c);
            case LossArgs::Part::sum: return sum<T>(a, c);
            case LossArgs::Part::forward: return forward<T>(a, c);
            case LossArgs::Part::backward: return backward<T>(a, c);
        }
    });
}

}  // namespace foretrain::cpu
