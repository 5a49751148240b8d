#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

const Tensor<std::int32_t> tokens{3, 0, 11, 5, 3, 6, 8};  // of a vocabulary of 12
constexpr std::int64_t count = 7, vocabulary = 12, width = 5;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

TEST(Embedding, ShardsSumToTheWhole) {
    const auto table = random_tensor<float>(vocabulary * width, 1);
    for (std::int64_t shards : {1, 2, 3}) {
        const std::int64_t rows = vocabulary / shards;
        auto sum = zeros<double>(count * width);
        for (std::int64_t r = 0; r < shards; ++r) {
            Tensor<float> y(index(count * width), 9);
            call(EmbeddingArgs{.tokens = count, .rows = rows, .width = width},
                 {as_operand(tokens), const_cast<float*>(table.data()) + r * rows * width, y.data()}, r);
            for (std::size_t i = 0; i < y.size(); ++i) sum[i] += static_cast<double>(y[i]);
        }
        for (std::int64_t i = 0; i < count; ++i)
            for (std::int64_t j = 0; j < width; ++j)
                EXPECT_EQ(sum[index(i * width + j)], static_cast<double>(table[index(tokens[index(i)] * width + j)]));
    }
}

TEST(Embedding, BackwardScattersToItsShard) {
    const auto dy = random_tensor<double>(count * width, 1);
    auto expected = zeros<double>(vocabulary * width);
    for (std::int64_t i = 0; i < count * width; ++i)
        expected[index(tokens[index(i / width)] * width + i % width)] += dy[index(i)];
    for (std::int64_t shards : {1, 2, 3})
        for (bool accumulate : {false, true}) {
            const std::int64_t rows = vocabulary / shards;
            Tensor<double> dtable(index(vocabulary * width), 2);
            for (std::int64_t r = 0; r < shards; ++r)
                call(EmbeddingArgs{count, rows, width, true, accumulate, DType::fp64, DType::fp64},
                     {as_operand(tokens), as_operand(dy), dtable.data() + r * rows * width}, r);
            for (std::size_t i = 0; i < dtable.size(); ++i)
                EXPECT_NEAR(dtable[i], expected[i] + (accumulate ? 2 : 0), 1e-14);
        }
}

// Two sequences of six, whole or cut over tensor ranks.
TEST(Positions, SplitTokensStandWhereTheyBelong) {
    const std::int64_t sequence = 6, total = 12, table_rows = 8;
    const auto table = random_tensor<double>(table_rows * width, 1), x = random_tensor<double>(total * width, 2);
    for (std::int64_t ranks : {1, 2, 3, 4}) {
        auto y = x;
        auto dtable = Tensor<double>(index(table_rows * width), 3);
        PositionsArgs a{.tokens = total / ranks, .sequence = sequence, .table_rows = table_rows, .width = width};
        a.split_tokens = ranks > 1;
        a.type = a.gradient = DType::fp64;
        for (std::int64_t r = 0; r < ranks; ++r) {
            a.backward = false;
            call(a, {y.data() + r * a.tokens * width, as_operand(table)}, r);
            a.backward = true;
            a.accumulate = r > 0;  // the first zeroes
            call(a, {const_cast<double*>(x.data()) + r * a.tokens * width, dtable.data()}, r);
        }
        auto expected = zeros<double>(table_rows * width);
        for (std::int64_t i = 0; i < total * width; ++i) {
            const std::int64_t cell = i / width % sequence * width + i % width;
            EXPECT_EQ(y[index(i)], x[index(i)] + table[index(cell)]);
            expected[index(cell)] += x[index(i)];
        }
        expect_near(dtable, expected, 1e-14);
    }
}

TEST(Positions, UnsplitIgnoresTheTensorRank) {
    const auto table = random_tensor<float>(4 * width, 1);
    auto a = zeros<float>(4 * width), b = a;
    const PositionsArgs args{.tokens = 4, .sequence = 4, .table_rows = 4, .width = width};
    call(args, {a.data(), as_operand(table)}, 0);
    call(args, {b.data(), as_operand(table)}, 1);
    EXPECT_EQ(a, b);
}

// Two sequences of twelve over two context ranks, whose rows are cut over two tensor ranks besides.
TEST(Positions, ContextRanksHoldAnEarlyAndALateChunk) {
    const std::int64_t sequence = 12, batch = 2, context = 2, tensor = 2;
    const auto table = random_tensor<double>(sequence * width, 1);
    for (std::int64_t rank = 0; rank < context; ++rank) {
        auto y = zeros<double>(batch * sequence / context * width);
        auto dtable = Tensor<double>(index(sequence * width), 3), expected = zeros<double>(sequence * width);
        PositionsArgs a{.tokens = 6, .sequence = sequence, .table_rows = sequence, .width = width};
        a.split_tokens = true;
        a.context = context;
        a.type = a.gradient = DType::fp64;
        for (std::int64_t t = 0; t < tensor; ++t) {
            std::vector<void*> operands{y.data() + t * a.tokens * width, as_operand(table)};
            a.backward = false;
            launch(cpu_kernels(), a, {.operand = operands, .tensor_rank = t, .context_rank = rank});
            operands[1] = dtable.data();
            a.backward = true;
            a.accumulate = t > 0;  // the first zeroes
            launch(cpu_kernels(), a, {.operand = operands, .tensor_rank = t, .context_rank = rank});
        }
        const std::vector<std::int64_t> positions =
            rank == 0 ? std::vector<std::int64_t>{0, 1, 2, 9, 10, 11} : std::vector<std::int64_t>{3, 4, 5, 6, 7, 8};
        for (std::size_t row = 0; row < 12; ++row)
            for (std::size_t j = 0; j < width; ++j) {
                const std::size_t cell = index(positions[row % 6] * width) + j;
                EXPECT_EQ(y[row * width + j], table[cell]);
                expected[cell] += y[row * width + j];
            }
        expect_near(dtable, expected, 1e-14);
    }
}

struct Shape {
    std::int64_t batch, sequence, heads, kv_heads, head_dim;
    std::int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Pairs as complex numbers, head by head, by the slot's place in its group.
Tensor<double> rope_reference(const Shape& s, Tensor<double> qkv, double theta) {
    const std::int64_t slots = s.heads / s.kv_heads + 2, half = s.head_dim / 2;
    for (std::int64_t row = 0; row < s.batch * s.sequence; ++row)
        for (std::int64_t head = 0; head < s.heads + 2 * s.kv_heads; ++head)
            for (std::int64_t i = 0; i < half && head % slots != slots - 1; ++i) {
                double& low = qkv[index(row * s.stride() + head * s.head_dim + i)];
                double& high = qkv[index(row * s.stride() + head * s.head_dim + half + i)];
                const double angle = static_cast<double>(row % s.sequence) *
                                     std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_dim));
                const double turned = low * std::cos(angle) - high * std::sin(angle);
                high = high * std::cos(angle) + low * std::sin(angle);
                low = turned;
            }
    return qkv;
}

template <class T>
void check_rope(const Shape& s, double theta) {
    const auto before = random_tensor<T>(s.batch * s.sequence * s.stride(), 1);
    auto qkv = before;
    RopeArgs a{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, theta, false, type_of<T>};
    call(a, {qkv.data()});
    expect_near(qkv, rope_reference(s, in_double(before), theta), tolerance<T>);
    a.backward = true;  // the inverse, which is the transpose: so also the gradient
    call(a, {qkv.data()});
    expect_near(qkv, in_double(before), tolerance<T>);
}

TEST(Rope, TurnsQueriesAndKeysAndBack) {
    for (const Shape& s : {Shape{1, 1, 1, 1, 16}, Shape{2, 9, 4, 2, 6}, Shape{1, 33, 3, 1, 80}, Shape{2, 5, 2, 2, 64}})
        for (double theta : {10000.0, 500000.0}) {
            check_rope<float>(s, theta);
            check_rope<double>(s, theta);
        }
}

// Each context rank turns its rows as they turn in whole sequences.
TEST(Rope, ContextRanksTurnByTheirOwnPositions) {
    const Shape s{2, 12, 4, 2, 6};
    const auto before = random_tensor<double>(s.batch * s.sequence * s.stride(), 1);
    const Tensor<double> expected = rope_reference(s, before, 1e4);
    const std::int64_t ranks = 3, held = s.sequence / ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Tensor<double> part, turned;
        for (std::int64_t row = 0; row < s.batch * held; ++row) {
            const std::int64_t at = row % held < 2 ? rank * 2 + row % held : (5 - rank) * 2 + row % held - 2;
            const auto from = (row / held * s.sequence + at) * s.stride();
            part.insert(part.end(), before.begin() + from, before.begin() + from + s.stride());
            turned.insert(turned.end(), expected.begin() + from, expected.begin() + from + s.stride());
        }
        RopeArgs a{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, 1e4, false, DType::fp64};
        a.context = ranks;
        std::vector<void*> operands{part.data()};
        launch(cpu_kernels(), a, {.operand = operands, .context_rank = rank});
        expect_near(part, turned, 1e-12);
    }
}

// The first elements of a head turn as a head of that size would; the others stay.
TEST(Rope, TurnsAPartOfEachHead) {
    const Shape s{2, 7, 4, 2, 12};
    const auto before = random_tensor<double>(s.batch * s.sequence * s.stride(), 1);
    auto qkv = before;
    RopeArgs a{s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, 1e4, false, DType::fp64, 8};
    call(a, {qkv.data()});
    const Shape part{s.batch, s.sequence, s.heads, s.kv_heads, 8};
    Tensor<double> cut, expected = before;
    for (std::size_t head = 0; head < before.size() / 12; ++head)
        cut.insert(cut.end(), before.begin() + static_cast<std::ptrdiff_t>(head * 12),
                   before.begin() + static_cast<std::ptrdiff_t>(head * 12 + 8));
    cut = rope_reference(part, cut, 1e4);
    for (std::size_t i = 0; i < cut.size(); ++i) expected[i / 8 * 12 + i % 8] = cut[i];
    expect_near(qkv, expected, 1e-12);
    a.backward = true;
    call(a, {qkv.data()});
    expect_near(qkv, before, 1e-12);
}

}  // namespace
}  // namespace foretrain::test
