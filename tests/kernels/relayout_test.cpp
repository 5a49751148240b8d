#include "base/context_split.h"
#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

using Part = RelayoutArgs::Part;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

Tensor<float> relaid(const RelayoutArgs& args, const Tensor<float>& x) {
    Tensor<float> y(x.size(), -1);
    call(args, {as_operand(x), y.data()});
    return y;
}

TEST(ContextSplit, GivesEachRankAnEarlyAndALateChunk) {
    const auto held = [](std::int64_t ranks, std::int64_t rank) {
        std::vector<std::int64_t> positions;
        for (std::int64_t i = 0; i < 12 / ranks; ++i) positions.push_back(position_in_sequence(i, 12, ranks, rank));
        return positions;
    };
    using Positions = std::vector<std::int64_t>;
    EXPECT_EQ(held(2, 0), (Positions{0, 1, 2, 9, 10, 11}));
    EXPECT_EQ(held(2, 1), (Positions{3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(held(3, 1), (Positions{2, 3, 8, 9}));
    EXPECT_EQ(held(1, 0), (Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    // Of each pair of positions the mask leaves as many to every rank.
    for (const std::int64_t ranks : {2, 3, 6}) {
        std::vector<std::int64_t> pairs(index(ranks));
        for (std::int64_t rank = 0; rank < ranks; ++rank)
            for (const std::int64_t p : held(ranks, rank)) pairs[index(rank)] += p + 1;
        EXPECT_EQ(pairs, std::vector<std::int64_t>(index(ranks), 12 * 13 / 2 / ranks));
    }
}

TEST(Relayout, HeadsOfEachRankBecomeOnePart) {
    // Two rows of two parts of two: row r, part p, element e is 100 r + 10 p + e.
    const Tensor<float> by_rows{0, 1, 10, 11, 100, 101, 110, 111}, by_parts{0, 1, 100, 101, 10, 11, 110, 111};
    RelayoutArgs args{Part::split_heads, 1, 4, 4, 2, DType::fp32};
    EXPECT_EQ(relaid(args, by_rows), by_parts);
    args.part = Part::join_heads;
    EXPECT_EQ(relaid(args, by_parts), by_rows);
}

TEST(Relayout, PartsOfTheRanksBecomeWholeSequences) {
    // Two samples of four positions of width one (of two heads): sample b, position p is 10 b + p.
    const Tensor<float> whole{0, 1, 2, 3, 10, 11, 12, 13}, parts{0, 3, 10, 13, 1, 2, 11, 12};
    RelayoutArgs args{Part::join_sequence, 2, 4, 2, 2, DType::fp32};
    EXPECT_EQ(relaid(args, parts), whole);
    args.part = Part::split_sequence;
    EXPECT_EQ(relaid(args, whole), parts);
}

TEST(Relayout, ThereAndBackIsNoChange) {
    for (const std::int64_t ranks : {1, 2, 3}) {
        const auto x = random_tensor<float>(2 * 12 / ranks * 6, 1);
        for (const auto& [there, back] :
             {std::pair{Part::split_heads, Part::join_heads}, {Part::join_sequence, Part::split_sequence}})
            EXPECT_EQ(relaid({back, 2, 12, 6, ranks, DType::fp32}, relaid({there, 2, 12, 6, ranks, DType::fp32}, x)),
                      x);
    }
}

TEST(KeyValue, LeavesQueriesAlone) {
    // One row, two groups of (two queries, key, value), one wide.
    Tensor<float> qkv{1, 2, 3, 4, 5, 6, 7, 8}, kv(4);
    call(KeyValueArgs{1, 4, 2, 1, false, DType::fp32}, {qkv.data(), kv.data()});
    EXPECT_EQ(kv, (Tensor<float>{3, 4, 7, 8}));
    kv = {-3, -4, -7, -8};
    call(KeyValueArgs{1, 4, 2, 1, true, DType::fp32}, {kv.data(), qkv.data()});
    EXPECT_EQ(qkv, (Tensor<float>{1, 2, -3, -4, 5, 6, -7, -8}));
}

}  // namespace
}  // namespace foretrain::test
