// A ring of ranks, one after the other on this thread: each holds its part of the sequences, blocks of keys
// and values are handed on as the program does it, and the parts together are held against plain loops.
#include "base/context_split.h"
#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

struct Shape {
    std::int64_t batch, sequence, heads, kv_heads, head_dim, ranks;

    std::int64_t held() const { return sequence / ranks; }
    std::int64_t rows() const { return batch * held(); }
    std::int64_t group() const { return heads / kv_heads; }
    std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
    std::int64_t context_width() const { return heads * head_dim; }
    std::int64_t kv_width() const { return 2 * kv_heads * head_dim; }
};
const Shape shapes[] = {{1, 4, 1, 1, 16, 2},   {2, 12, 4, 2, 8, 2},  {2, 12, 2, 1, 5, 3},
                        {1, 264, 2, 2, 16, 2}, {1, 400, 2, 1, 8, 4}, {2, 24, 6, 2, 4, 1}};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Rows of a whole tensor (batch, sequence, width) that a rank holds, in its order.
template <class T>
Tensor<T> part_of(const Shape& s, const Tensor<T>& whole, std::int64_t width, std::int64_t rank) {
    Tensor<T> part;
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t i = 0; i < s.held(); ++i) {
            const auto row =
                whole.begin() + (b * s.sequence + position_in_sequence(i, s.sequence, s.ranks, rank)) * width;
            part.insert(part.end(), row, row + width);
        }
    return part;
}

template <class T>
void put_back(const Shape& s, const Tensor<T>& part, std::int64_t width, std::int64_t rank, Tensor<T>& whole) {
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t i = 0; i < s.held(); ++i)
            std::copy_n(part.begin() + (b * s.held() + i) * width, width,
                        whole.begin() + (b * s.sequence + position_in_sequence(i, s.sequence, s.ranks, rank)) * width);
}

template <class T>
struct Ranks {
    std::vector<Tensor<T>> qkv, kv, context, lse;
};

template <class T>
RingAttentionArgs step_of(const Shape& s, std::int64_t step, bool backward) {
    return {s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, s.ranks, step, backward, type_of<T>};
}

void call_on(std::int64_t rank, const KernelArgs& args, std::vector<void*> operands) {
    launch(cpu_kernels(), args, {.operand = operands, .context_rank = rank});
}

template <class T>
Ranks<T> forward(const Shape& s, const Tensor<T>& qkv) {
    Ranks<T> r;
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
        r.qkv.push_back(part_of(s, qkv, s.qkv_width(), rank));
        r.kv.push_back(zeros<T>(s.rows() * s.kv_width()));
        call(KeyValueArgs{s.rows(), s.heads, s.kv_heads, s.head_dim, false, type_of<T>},
             {r.qkv.back().data(), r.kv.back().data()});
    }
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
        r.context.push_back(Tensor<T>(index(s.rows() * s.context_width()), T(9)));
        r.lse.push_back(Tensor<T>(index(s.rows() * s.heads), T(9)));
        for (std::int64_t step = 0; step < s.ranks; ++step)
            call_on(rank, step_of<T>(s, step, false),
                    {r.qkv[index(rank)].data(), r.kv[index((rank + s.ranks - step) % s.ranks)].data(),
                     r.context.back().data(), r.lse.back().data()});
    }
    return r;
}

template <class T>
Tensor<T> backward(const Shape& s, const Tensor<T>& dcontext, const Ranks<T>& r) {
    std::vector<Tensor<T>> dqkv, dkv;
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
        dqkv.push_back(Tensor<T>(index(s.rows() * s.qkv_width()), T(7)));
        dkv.push_back(zeros<T>(s.rows() * s.kv_width()));
    }
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
        const Tensor<T> mine = part_of(s, dcontext, s.context_width(), rank);
        for (std::int64_t step = 0; step < s.ranks; ++step) {
            const std::size_t owner = index((rank + s.ranks - step) % s.ranks);
            Tensor<T> added(dkv[owner].size(), T(7));
            const auto at = index(rank);
            call_on(rank, step_of<T>(s, step, true),
                    {as_operand(mine), as_operand(r.qkv[at]), as_operand(r.kv[owner]), as_operand(r.context[at]),
                     as_operand(r.lse[at]), dqkv[at].data(), added.data()});
            for (std::size_t e = 0; e < added.size(); ++e) dkv[owner][e] += added[e];
        }
    }
    Tensor<T> whole(index(s.batch * s.sequence * s.qkv_width()));
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) {
        call(KeyValueArgs{s.rows(), s.heads, s.kv_heads, s.head_dim, true, type_of<T>},
             {dkv[index(rank)].data(), dqkv[index(rank)].data()});
        put_back(s, dqkv[index(rank)], s.qkv_width(), rank, whole);
    }
    return whole;
}

struct Result {
    Tensor<double> context, lse;
};

// Plain loops over whole sequences.
Result reference(const Shape& s, const Tensor<double>& qkv) {
    Result out{zeros<double>(s.batch * s.sequence * s.context_width()), zeros<double>(s.batch * s.sequence * s.heads)};
    const std::int64_t d = s.head_dim, group = s.group();
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t h = 0; h < s.heads; ++h)
            for (std::int64_t i = 0; i < s.sequence; ++i) {
                const auto at = [&](std::int64_t row, std::int64_t slot) {
                    return qkv.data() + (b * s.sequence + row) * s.qkv_width() + (h / group * (group + 2) + slot) * d;
                };
                Tensor<double> p;
                double sum = 0;
                for (std::int64_t j = 0; j <= i; ++j) {
                    double score = 0;
                    for (std::int64_t e = 0; e < d; ++e) score += at(i, h % group)[e] * at(j, group)[e];
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
Tensor<T> whole_context(const Shape& s, const Ranks<T>& r) {
    Tensor<T> whole(index(s.batch * s.sequence * s.context_width()));
    for (std::int64_t rank = 0; rank < s.ranks; ++rank)
        put_back(s, r.context[index(rank)], s.context_width(), rank, whole);
    return whole;
}

template <class T>
void check_forward(const Shape& s) {
    const auto qkv = random_tensor<T>(s.batch * s.sequence * s.qkv_width(), 1);
    const Ranks<T> r = forward(s, qkv);
    const Result expected = reference(s, in_double(qkv));
    Tensor<T> lse(index(s.batch * s.sequence * s.heads));
    for (std::int64_t rank = 0; rank < s.ranks; ++rank) put_back(s, r.lse[index(rank)], s.heads, rank, lse);
    expect_near(whole_context(s, r), expected.context, tolerance<T>);
    expect_near(lse, expected.lse, tolerance<T>);
}

TEST(RingAttention, StepsMergeToTheWhole) {
    for (const Shape& s : shapes) {
        check_forward<float>(s);
        check_forward<double>(s);
    }
}

TEST(RingAttention, BackwardIsTheDerivative) {
    for (const Shape& s : shapes) {
        auto qkv = random_tensor<double>(s.batch * s.sequence * s.qkv_width(), 1);
        const auto dcontext = random_tensor<double>(s.batch * s.sequence * s.context_width(), 2);
        const Tensor<double> dqkv = backward(s, dcontext, forward(s, qkv));
        if (s.sequence <= 64)
            expect_gradient([&] { return dot(dcontext, whole_context(s, forward(s, qkv))); }, qkv, dqkv);
        // And of the kernel for whole sequences, which has been held against differences itself.
        auto context = zeros<double>(s.batch * s.sequence * s.context_width());
        auto lse = zeros<double>(s.batch * s.sequence * s.heads);
        auto expected = zeros<double>(s.batch * s.sequence * s.qkv_width());
        call(AttentionForwardArgs{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, DType::fp64},
             {qkv.data(), context.data(), lse.data()});
        call(AttentionBackwardArgs{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, DType::fp64},
             {as_operand(dcontext), qkv.data(), context.data(), lse.data(), expected.data()});
        expect_near(dqkv, expected, 1e-12);
    }
}

// Merging goes by the largest score: neither a step far above nor one far below the others overflows.
TEST(RingAttention, LargeScoresDoNotOverflow) {
    const Shape s{1, 160, 1, 1, 16, 4};
    const Ranks<float> r = forward(s, random_tensor<float>(s.sequence * s.qkv_width(), 1, 30));
    for (float v : whole_context(s, r)) EXPECT_TRUE(std::isfinite(v));
    for (float v : backward(s, random_tensor<float>(s.sequence * s.context_width(), 2), r))
        EXPECT_TRUE(std::isfinite(v));
}

// An early chunk sees nothing of a later rank's: its results stay the bits that they were.
TEST(RingAttention, AStepLeavesAloneWhatItDoesNotReach) {
    const Shape s{1, 24, 2, 1, 4, 3};
    Ranks<double> r = forward(s, random_tensor<double>(s.sequence * s.qkv_width(), 1));
    const Tensor<double> before = r.context[0];
    call_on(0, step_of<double>(s, 1, false), {r.qkv[0].data(), r.kv[2].data(), r.context[0].data(), r.lse[0].data()});
    const auto half = static_cast<std::ptrdiff_t>(before.size() / 2);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + half, r.context[0].begin()));
    EXPECT_FALSE(std::equal(before.begin() + half, before.end(), r.context[0].begin() + half));
}

}  // namespace
}  // namespace foretrain::test
