#include "base/error.h"
#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

struct Shape {
    std::int64_t m, n, k;
};
const Shape shapes[] = {{1, 1, 1},    {1, 40, 30},   {40, 1, 30},    {5, 7, 3},
                        {33, 65, 17}, {64, 96, 128}, {70, 131, 300}, {141, 133, 150}};

Tensor<double> reference(const GemmArgs& a, const Tensor<double>& left, const Tensor<double>& right, Tensor<double> c,
                         const Tensor<double>& bias) {
    for (std::int64_t i = 0; i < a.m; ++i)
        for (std::int64_t j = 0; j < a.n; ++j) {
            double sum = 0;
            for (std::int64_t p = 0; p < a.k; ++p)
                sum += left[static_cast<std::size_t>(a.transpose_a ? p * a.m + i : i * a.k + p)] *
                       right[static_cast<std::size_t>(a.transpose_b ? j * a.k + p : p * a.n + j)];
            double& out = c[static_cast<std::size_t>(i * a.n + j)];
            out = (a.accumulate ? out : 0) + sum + (a.bias ? bias[static_cast<std::size_t>(j)] : 0);
        }
    return c;
}

template <class T>
void check_gemm(const GemmArgs& a) {
    const auto left = random_tensor<T>(a.m * a.k, 1), right = random_tensor<T>(a.k * a.n, 2);
    const auto bias = random_tensor<T>(a.n, 3);
    auto c = random_tensor<T>(a.m * a.n, 4);
    const auto expected = reference(a, in_double(left), in_double(right), in_double(c), in_double(bias));
    call(a, {as_operand(left), as_operand(right), c.data(), as_operand(bias)});
    expect_near(c, expected, tolerance<T>, to_text(a));
}

TEST(Gemm, EveryTransposeAccumulationAndBias) {
    for (const Shape& s : shapes)
        for (int bits = 0; bits < 16; ++bits) {
            GemmArgs a{s.m, s.n, s.k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
            check_gemm<float>(a);
            a.type = a.output = DType::fp64;
            check_gemm<double>(a);
        }
}

TEST(Gemm, MoreThanOneBlockEveryWay) {
    check_gemm<float>({.m = 200, .n = 3076, .k = 130, .transpose_b = true, .accumulate = true});
}

TEST(Gemm, OtherTypesAreRefusedByName) {
    GemmArgs a{1, 1, 1};
    a.type = a.output = DType::bf16;
    try {
        call(a, {nullptr, nullptr, nullptr});
        FAIL();
    } catch (const RunError& e) {
        EXPECT_NE(std::string(e.what()).find("bf16"), std::string::npos);
    }
    a.type = DType::fp32;
    EXPECT_THROW(call(a, {nullptr, nullptr, nullptr}), RunError);
}

template <class T>
void check_bias_gradient(std::int64_t rows, std::int64_t width, bool accumulate) {
    const auto dy = random_tensor<T>(rows * width, 1);
    auto db = random_tensor<T>(width, 2);
    auto expected = accumulate ? in_double(db) : zeros<double>(width);
    for (std::int64_t i = 0; i < rows * width; ++i)
        expected[static_cast<std::size_t>(i % width)] += static_cast<double>(dy[static_cast<std::size_t>(i)]);
    call(BiasGradientArgs{rows, width, accumulate, type_of<T>, type_of<T>}, {as_operand(dy), db.data()});
    expect_near(db, expected, tolerance<T>);
}

TEST(BiasGradient, SumsRows) {
    for (std::int64_t rows : {1, 7, 8, 30})
        for (std::int64_t width : {1, 5, 64, 100})
            for (bool accumulate : {false, true}) {
                check_bias_gradient<float>(rows, width, accumulate);
                check_bias_gradient<double>(rows, width, accumulate);
            }
}

}  // namespace
}  // namespace foretrain::test
