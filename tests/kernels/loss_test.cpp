#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

using Part = LossArgs::Part;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Result {
    double loss = 0;
    Tensor<double> dlogits;  // (tokens, columns of all shards)
    Tensor<double> lse;
};

// The four parts over `shards` tensor ranks, the reductions between them done here. `logits` is
// (tokens, columns); the last columns, from `vocabulary` on, are padding.
template <class T>
Result sharded(std::int64_t tokens, std::int64_t columns, std::int64_t vocabulary, std::int64_t shards,
               const Tensor<T>& logits, const Tensor<std::int32_t>& targets, double scale, bool in_place = false) {
    LossArgs a{Part::maximum, tokens, columns / shards, vocabulary, scale, type_of<T>, type_of<T>};
    std::vector<Tensor<T>> part(index(shards));
    for (std::int64_t i = 0; i < tokens * columns; ++i)
        part[index(i % columns / a.columns)].push_back(logits[index(i)]);
    Tensor<T> maximum(index(tokens), -std::numeric_limits<T>::infinity()), sums = zeros<T>(2 * tokens);
    for (auto& p : part) {
        auto local = zeros<T>(tokens);
        call(a, {p.data(), local.data()}, &p - part.data());
        for (std::size_t i = 0; i < local.size(); ++i) maximum[i] = std::max(maximum[i], local[i]);
    }
    a.part = Part::sum;
    for (auto& p : part) {
        auto local = zeros<T>(2 * tokens);
        call(a, {p.data(), maximum.data(), as_operand(targets), local.data()}, &p - part.data());
        for (std::size_t i = 0; i < local.size(); ++i) sums[i] += local[i];
    }
    Result out{.loss = 5, .dlogits = zeros<double>(tokens * columns)};
    auto lse = zeros<T>(tokens);
    a.part = Part::forward;
    call(a, {maximum.data(), sums.data(), lse.data(), &out.loss});
    out.loss -= 5;  // it adds to what was there
    out.lse = in_double(lse);
    a.part = Part::backward;
    for (std::int64_t r = 0; r < shards; ++r) {
        Tensor<T> d(part[index(r)].size(), 3);
        T* result = in_place ? part[index(r)].data() : d.data();
        call(a, {part[index(r)].data(), lse.data(), as_operand(targets), result}, r);
        for (std::int64_t i = 0; i < tokens * a.columns; ++i)
            out.dlogits[index(i / a.columns * columns + r * a.columns + i % a.columns)] =
                static_cast<double>(result[i]);
    }
    return out;
}

double reference(std::int64_t tokens, std::int64_t columns, std::int64_t vocabulary, const Tensor<double>& logits,
                 const Tensor<std::int32_t>& targets) {
    double loss = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(logits[index(i * columns + j)]);
        loss += std::log(sum) - logits[index(i * columns + targets[index(i)])];
    }
    return loss;
}

struct Shape {
    std::int64_t tokens, columns, vocabulary;
};
const Shape shapes[] = {{1, 6, 6}, {5, 12, 7}, {4, 60, 53}, {3, 2400, 2399}, {7, 36, 12}};

TEST(Loss, MatchesPlainLoopsAndItsDerivative) {
    for (const Shape& s : shapes) {
        auto logits = random_tensor<double>(s.tokens * s.columns, 1, 2);
        Tensor<std::int32_t> targets;
        for (std::int64_t i = 0; i < s.tokens; ++i)
            targets.push_back(static_cast<std::int32_t>((i * 5 + s.vocabulary - 1) % s.vocabulary));
        const auto loss = [&] { return reference(s.tokens, s.columns, s.vocabulary, logits, targets); };
        const Result d = sharded(s.tokens, s.columns, s.vocabulary, 1, logits, targets, 1.0);
        EXPECT_NEAR(d.loss, loss(), 1e-12 * loss());
        expect_gradient(loss, logits, d.dlogits);

        const Tensor<float> single(logits.begin(), logits.end());
        const Result f = sharded(s.tokens, s.columns, s.vocabulary, 1, single, targets, 0.25);
        EXPECT_NEAR(f.loss, loss(), 1e-5 * loss());
        for (std::size_t i = 0; i < f.dlogits.size(); ++i) EXPECT_NEAR(f.dlogits[i], d.dlogits[i] / 4, 1e-6);

        for (std::int64_t shards : {2, 3})  // of 36 columns and a vocabulary of 12 the last are all padding
            for (bool in_place : {false, true}) {
                const Result p = sharded(s.tokens, s.columns, s.vocabulary, shards, logits, targets, 1.0, in_place);
                EXPECT_NEAR(p.loss, d.loss, 1e-12 * d.loss);
                expect_near(p.dlogits, d.dlogits, 1e-12);
                expect_near(p.lse, d.lse, 1e-12);
            }
    }
}

TEST(Loss, LargeLogitsDoNotOverflow) {
    const Tensor<float> logits{1000, -1000, 999, 0};
    const Result r = sharded<float>(1, 4, 4, 2, logits, {2}, 1.0);
    EXPECT_NEAR(r.loss, 1 + std::log(1 + std::exp(-1.0)), 1e-6);
}

}  // namespace
}  // namespace foretrain::test
