#include "base/error.h"
#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

struct Shape {
    std::int64_t batch, sequence, heads, kv_heads, head_dim;
};
const Shape shapes[] = {{1, 1, 1, 1, 16},   {2, 3, 2, 1, 16},  {1, 64, 1, 1, 64}, {2, 65, 2, 2, 16},
                        {1, 100, 4, 2, 80}, {1, 129, 3, 1, 5}, {1, 200, 6, 2, 64}};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Result {
    Tensor<double> context, lse;
};

// Plain loops over the packed layout: kv_heads groups of (group queries, key, value).
Result reference(const Shape& s, const Tensor<double>& qkv) {
    const std::int64_t group = s.heads / s.kv_heads, d = s.head_dim, stride = (s.heads + 2 * s.kv_heads) * d;
    Result out{zeros<double>(s.batch * s.sequence * s.heads * d), zeros<double>(s.batch * s.sequence * s.heads)};
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t h = 0; h < s.heads; ++h)
            for (std::int64_t i = 0; i < s.sequence; ++i) {
                const auto at = [&](std::int64_t row, std::int64_t slot) {
                    return qkv.data() + (b * s.sequence + row) * stride + (h / group * (group + 2) + slot) * d;
                };
                const double* q = at(i, h % group);
                Tensor<double> p;
                double sum = 0;
                for (std::int64_t j = 0; j <= i; ++j) {
                    double score = 0;
                    for (std::int64_t e = 0; e < d; ++e) score += q[e] * at(j, group)[e];
                    p.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
                    sum += p.back();
                }
                const std::int64_t row = (b * s.sequence + i) * s.heads + h;
                out.lse[index(row)] = std::log(sum);
                for (std::int64_t j = 0; j <= i; ++j)
                    for (std::int64_t e = 0; e < d; ++e)
                        out.context[index(row * d + e)] += p[index(j)] / sum * at(j, group + 1)[e];
            }
    return out;
}

template <class T>
struct Forward {
    Tensor<T> context, lse;
};

template <class T>
Forward<T> forward(const Shape& s, const Tensor<T>& qkv) {
    const std::int64_t rows = s.batch * s.sequence;
    Forward<T> f{zeros<T>(rows * s.heads * s.head_dim), zeros<T>(rows * s.heads)};
    call(AttentionForwardArgs{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, type_of<T>},
         {as_operand(qkv), f.context.data(), f.lse.data()});
    return f;
}

template <class T>
Tensor<T> backward(const Shape& s, const Tensor<T>& dcontext, const Tensor<T>& qkv, const Forward<T>& f) {
    Tensor<T> dqkv(qkv.size(), T(7));
    call(AttentionBackwardArgs{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, type_of<T>},
         {as_operand(dcontext), as_operand(qkv), as_operand(f.context), as_operand(f.lse), dqkv.data()});
    return dqkv;
}

std::int64_t qkv_elements(const Shape& s) { return s.batch * s.sequence * (s.heads + 2 * s.kv_heads) * s.head_dim; }

template <class T>
void check_forward(const Shape& s) {
    const auto qkv = random_tensor<T>(qkv_elements(s), 1);
    const Forward<T> f = forward(s, qkv);
    const Result expected = reference(s, in_double(qkv));
    expect_near(f.context, expected.context, tolerance<T>);
    expect_near(f.lse, expected.lse, tolerance<T>);
}

TEST(Attention, ForwardMatchesPlainLoops) {
    for (const Shape& s : shapes) {
        check_forward<float>(s);
        check_forward<double>(s);
    }
}

TEST(Attention, LargeScoresDoNotOverflow) {
    const Shape s{1, 130, 1, 1, 16};
    auto qkv = random_tensor<float>(qkv_elements(s), 1, 30);  // scores of a thousand and more
    const Forward<float> f = forward(s, qkv);
    for (float v : f.context) EXPECT_TRUE(std::isfinite(v));
    for (float v : backward(s, random_tensor<float>(130 * 16, 2), qkv, f)) EXPECT_TRUE(std::isfinite(v));
}

TEST(Attention, BackwardIsTheDerivative) {
    for (const Shape& s : shapes) {
        auto qkv = random_tensor<double>(qkv_elements(s), 1);
        const auto dcontext = random_tensor<double>(s.batch * s.sequence * s.heads * s.head_dim, 2);
        const Forward<double> f = forward(s, qkv);
        const auto dqkv = backward(s, dcontext, qkv, f);
        expect_gradient([&] { return dot(dcontext, forward(s, qkv).context); }, qkv, dqkv);

        const Tensor<float> fqkv(qkv.begin(), qkv.end()), fdcontext(dcontext.begin(), dcontext.end());
        expect_near(backward(s, fdcontext, fqkv, forward(s, fqkv)), dqkv, 1e-5);
    }
}

TEST(Attention, NothingFlowsFromLaterTokens) {
    const Shape s{1, 150, 2, 1, 16};
    auto qkv = random_tensor<float>(qkv_elements(s), 1);
    const Forward<float> before = forward(s, qkv);
    const std::int64_t changed = 70, stride = (s.heads + 2 * s.kv_heads) * s.head_dim;
    for (std::int64_t i = changed * stride; i < qkv_elements(s); ++i) qkv[index(i)] += 1;
    const Forward<float> after = forward(s, qkv);
    for (std::int64_t i = 0; i < changed * s.heads * s.head_dim; ++i)
        ASSERT_EQ(before.context[index(i)], after.context[index(i)]) << i;
}

TEST(Attention, RefusesAWindowThatHidesKeys) {
    const AttentionForwardArgs a{.batch = 1, .sequence = 8, .heads = 1, .kv_heads = 1, .head_dim = 4, .window = 4};
    EXPECT_THROW(call(a, {nullptr, nullptr, nullptr}), RunError);
}

}  // namespace
}  // namespace foretrain::test
