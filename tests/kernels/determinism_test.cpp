// Every kernel, twice: the second time with its tensors elsewhere, at every misalignment. The bits of
// every operand must agree.
#include <cstring>

#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

struct OperandShape {
    std::int64_t bytes;
    int integers_below = 0;  // int32 indices if not 0
};

// Random contents, `offset` bytes past a multiple of 64.
struct Memory {
    std::vector<std::byte> storage;
    std::byte* data;
    std::int64_t bytes;

    template <class T>
    Memory(T, const OperandShape& shape, unsigned seed, std::size_t offset)
        : storage(static_cast<std::size_t>(shape.bytes) + 256), bytes(shape.bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
        data = storage.data() + (64 - address % 64) + offset;
        if (shape.integers_below > 0) {
            std::mt19937 engine(seed);
            for (std::int64_t i = 0; i < bytes / 4; ++i) {
                const auto value = static_cast<std::int32_t>(engine() % static_cast<unsigned>(shape.integers_below));
                std::memcpy(data + i * 4, &value, 4);
            }
        } else {
            auto values = random_tensor<T>(bytes / static_cast<std::int64_t>(sizeof(T)), seed);
            for (T& v : values) v = std::abs(v);  // variances and sums are not negative
            std::memcpy(data, values.data(), values.size() * sizeof(T));
        }
    }
};

template <class T>
std::vector<std::vector<std::byte>> results(const KernelArgs& args, const std::vector<OperandShape>& shapes,
                                            std::size_t offset) {
    std::vector<Memory> memory;
    std::vector<void*> addresses;
    for (const OperandShape& s : shapes)
        memory.emplace_back(T{}, s, static_cast<unsigned>(memory.size()), (offset * (memory.size() + 1)) % 64);
    for (const Memory& m : memory) addresses.push_back(m.data);
    call(args, addresses, 1, 2);
    std::vector<std::vector<std::byte>> bytes;
    for (const Memory& m : memory) bytes.emplace_back(m.data, m.data + m.bytes);
    return bytes;
}

template <class T>
void check(const KernelArgs& args, std::vector<OperandShape> shapes) {
    ASSERT_EQ(static_cast<int>(shapes.size()), operand_count(args));
    const auto aligned = results<T>(args, shapes, 0);
    for (std::size_t offset = sizeof(T); offset < 64; offset += sizeof(T))
        ASSERT_EQ(results<T>(args, shapes, offset), aligned) << to_text(args) << " at offset " << offset;
}

template <class T>
class Determinism : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Determinism, Types);

TYPED_TEST(Determinism, MatrixProducts) {
    constexpr DType t = type_of<TypeParam>;
    const std::int64_t e = sizeof(TypeParam);
    struct {
        std::int64_t m, n, k;
    } const shapes[] = {{1, 9, 30}, {3, 4, 5}, {7, 7, 9}, {20, 17, 65}, {37, 130, 40}, {141, 133, 150}};
    for (const auto& s : shapes)
        for (int bits = 0; bits < 8; ++bits) {
            const GemmArgs a{s.m, s.n, s.k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, true, GemmRole::forward,
                             t,   t};
            check<TypeParam>(a, {{s.m * s.k * e}, {s.k * s.n * e}, {s.m * s.n * e}, {s.n * e}});
        }
    check<TypeParam>(BiasGradientArgs{19, 37, true, t, t}, {{19 * 37 * e}, {37 * e}});
}

TYPED_TEST(Determinism, RowKernels) {
    constexpr DType t = type_of<TypeParam>;
    const std::int64_t e = sizeof(TypeParam);
    for (std::int64_t w : {1, 13, 64, 131}) {
        const std::int64_t n = 3 * w * e;
        for (bool rms : {false, true}) {
            std::vector<OperandShape> forward{{n}, {n}, {w * e}}, backward{{n}, {n}, {n}, {w * e}, {n}, {w * e}};
            if (!rms) forward.push_back({w * e}), backward.push_back({w * e});
            check<TypeParam>(NormForwardArgs{3, w, rms, 1e-5, t}, forward);
            check<TypeParam>(NormBackwardArgs{3, w, rms, true, true, 1e-5, t, t}, backward);
        }
        check<TypeParam>(GeluArgs{3, w, false, t}, {{n}, {n}});
        check<TypeParam>(GeluArgs{3, w, true, t}, {{n}, {n}, {n}});
        check<TypeParam>(SwigluArgs{3, w, false, t}, {{2 * n}, {n}});
        check<TypeParam>(SwigluArgs{3, w, true, t}, {{n}, {2 * n}, {2 * n}});
        check<TypeParam>(ResidualAddArgs{3, w, true, t}, {{n}, {n}, {n}, {w * e}});
        check<TypeParam>(AccumulateArgs{3 * w, t, t}, {{n}, {n}});
        check<TypeParam>(CastArgs{3 * w, t, t}, {{n}, {n}});
        check<TypeParam>(AdamwArgs{.elements = 3 * w, .type = t, .gradient = t, .optimizer = t}, {{n}, {n}, {n}, {n}});
    }
}

TYPED_TEST(Determinism, AttentionAndPositions) {
    constexpr DType t = type_of<TypeParam>;
    const std::int64_t e = sizeof(TypeParam), s = 70, d = 20;
    const std::int64_t qkv = s * 8 * d * e, context = s * 4 * d * e, lse = s * 4 * e;
    check<TypeParam>(AttentionForwardArgs{1, s, 4, 2, d, t}, {{qkv}, {context}, {lse}});
    check<TypeParam>(AttentionBackwardArgs{1, s, 4, 2, d, t}, {{context}, {qkv}, {context}, {lse}, {qkv}});
    check<TypeParam>(RopeArgs{1, s, 4, 2, d, 10000, false, t}, {{qkv}});
    for (bool backward : {false, true}) {
        check<TypeParam>(EmbeddingArgs{9, 11, 13, backward, true, t, t},
                         {{9 * 4, 22}, {(backward ? 9 : 11) * 13 * e}, {(backward ? 11 : 9) * 13 * e}});
        check<TypeParam>(PositionsArgs{9, 6, 11, 13, true, backward, true, t, t}, {{9 * 13 * e}, {11 * 13 * e}});
    }
}

TYPED_TEST(Determinism, Loss) {
    constexpr DType t = type_of<TypeParam>;
    const std::int64_t e = sizeof(TypeParam), tokens = 5, columns = 1100, n = tokens * columns * e;
    using Part = LossArgs::Part;
    const auto args = [&](Part part) { return LossArgs{part, tokens, columns, 2150, 0.3, t, t}; };
    const OperandShape row{tokens * e}, targets{tokens * 4, 2150};
    check<TypeParam>(args(Part::maximum), {{n}, row});
    check<TypeParam>(args(Part::sum), {{n}, row, targets, {2 * tokens * e}});
    check<TypeParam>(args(Part::backward), {{n}, row, targets, {n}});
}

}  // namespace
}  // namespace foretrain::test
