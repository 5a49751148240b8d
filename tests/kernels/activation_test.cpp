#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu(double x) { return x / (1 + std::exp(-x)); }

// From where the exponential saturates to where it vanishes, densely.
template <class T>
Tensor<T> ramp(std::int64_t n) {
    Tensor<T> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<T>(-30.0 + 60.0 * static_cast<double>(i) / static_cast<double>(n));
    return x;
}

template <class T>
void check_gelu(std::int64_t rows, std::int64_t width, const Tensor<T>& x) {
    auto y = zeros<T>(rows * width);
    call(GeluArgs{rows, width, false, type_of<T>}, {as_operand(x), y.data()});
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = gelu(static_cast<double>(x[i]));
        // Relative to the result, but where the reference itself cancels.
        ASSERT_NEAR(static_cast<double>(y[i]), expected, 0.2 * tolerance<T> * (std::abs(expected) + 0.01)) << x[i];
    }
}

TEST(Gelu, ForwardOverTheWholeRange) {
    check_gelu<float>(1, 10007, ramp<float>(10007));
    check_gelu<double>(1, 10007, ramp<double>(10007));
    for (std::int64_t width : {1, 5, 16, 33}) check_gelu<float>(3, width, random_tensor<float>(3 * width, 1, 3));
}

TEST(Gelu, ExtremesAreFinite) {
    Tensor<float> x{-1e30F, -1e4F, -100, 0, 100, 1e4F, 1e30F}, y(7), dx(7), dy(7, 1);
    call(GeluArgs{.rows = 1, .width = 7}, {x.data(), y.data()});
    call(GeluArgs{.rows = 1, .width = 7, .backward = true}, {dy.data(), x.data(), dx.data()});
    for (std::size_t i = 1; i < 6; ++i) EXPECT_NEAR(dx[i], x[i] > 0 ? 1 : x[i] < 0 ? 0 : 0.5, 1e-20) << x[i];
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(y[i], 0, 1e-6) << x[i];
    for (std::size_t i = 3; i < 7; ++i) EXPECT_EQ(y[i], x[i]);
    Tensor<float> nan(7, std::nanf(""));
    call(GeluArgs{.rows = 1, .width = 7}, {nan.data(), y.data()});
    for (float v : y) EXPECT_TRUE(std::isnan(v));
}

TEST(Gelu, BackwardIsTheDerivative) {
    for (std::int64_t width : {1, 7, 100}) {
        auto x = random_tensor<double>(3 * width, 1, 2);
        const auto dy = random_tensor<double>(3 * width, 2);
        auto dx = zeros<double>(3 * width);
        call(GeluArgs{3, width, true, DType::fp64}, {as_operand(dy), x.data(), dx.data()});
        const auto loss = [&] {
            double sum = 0;
            for (std::size_t i = 0; i < x.size(); ++i) sum += dy[i] * gelu(x[i]);
            return sum;
        };
        expect_gradient(loss, x, dx);
        Tensor<float> fx(x.begin(), x.end()), fdy(dy.begin(), dy.end()), fdx(x.size());
        call(GeluArgs{3, width, true, DType::fp32}, {fdy.data(), fx.data(), fdx.data()});
        expect_near(fdx, dx, 1e-5);
    }
}

Tensor<double> swiglu_reference(std::int64_t rows, std::int64_t width, const Tensor<double>& x) {
    Tensor<double> y;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < width; ++j)
            y.push_back(silu(x[static_cast<std::size_t>(2 * r * width + j)]) *
                        x[static_cast<std::size_t>((2 * r + 1) * width + j)]);
    return y;
}

TEST(Swiglu, ForwardAndBackward) {
    for (std::int64_t rows : {1, 3})
        for (std::int64_t width : {1, 5, 16, 50}) {
            auto x = random_tensor<double>(2 * rows * width, 1, 2);
            const auto dy = random_tensor<double>(rows * width, 2);
            auto y = zeros<double>(rows * width), dx = zeros<double>(2 * rows * width);
            call(SwigluArgs{rows, width, false, DType::fp64}, {x.data(), y.data()});
            expect_near(y, swiglu_reference(rows, width, x), 1e-12);
            call(SwigluArgs{rows, width, true, DType::fp64}, {as_operand(dy), x.data(), dx.data()});
            expect_gradient([&] { return dot(dy, swiglu_reference(rows, width, x)); }, x, dx);

            Tensor<float> fx(x.begin(), x.end()), fdy(dy.begin(), dy.end()), fy(y.size()), fdx(x.size());
            call(SwigluArgs{rows, width, false, DType::fp32}, {fx.data(), fy.data()});
            expect_near(fy, y, 1e-5);
            call(SwigluArgs{rows, width, true, DType::fp32}, {fdy.data(), fx.data(), fdx.data()});
            expect_near(fdx, dx, 1e-5);
        }
}

double apply(Pointwise function, double x) {
    switch (function) {
        case Pointwise::gelu: return gelu(x);
        case Pointwise::silu: return silu(x);
        case Pointwise::relu: return std::max(x, 0.0);
        case Pointwise::squared_relu: return x > 0 ? x * x : 0;
    }
    return 0;
}

TEST(OtherFunctions, TakeThePlaceOfGeluAndSilu) {
    const std::int64_t rows = 3, width = 21;
    const auto dy = random_tensor<double>(rows * width, 2);
    for (const Pointwise f : {Pointwise::gelu, Pointwise::silu, Pointwise::relu, Pointwise::squared_relu}) {
        const auto n = static_cast<std::size_t>(rows * width);
        auto x = random_tensor<double>(rows * width, 1, 2);
        auto y = zeros<double>(rows * width), dx = y;
        GeluArgs plain{rows, width, false, DType::fp64, f};
        call(plain, {x.data(), y.data()});
        for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], apply(f, x[i]), 1e-12);
        plain.backward = true;
        call(plain, {as_operand(dy), x.data(), dx.data()});
        const auto loss = [&] {
            double sum = 0;
            for (std::size_t i = 0; i < n; ++i) sum += dy[i] * apply(f, x[i]);
            return sum;
        };
        expect_gradient(loss, x, dx, to_text(plain));

        auto pair = random_tensor<double>(2 * rows * width, 3, 2), dpair = pair;
        SwigluArgs gated{rows, width, false, DType::fp64, f};
        const auto gated_loss = [&] {
            double sum = 0;
            for (std::size_t r = 0; r < 3; ++r)
                for (std::size_t j = 0; j < 21; ++j)
                    sum += dy[r * 21 + j] * apply(f, pair[2 * r * 21 + j]) * pair[(2 * r + 1) * 21 + j];
            return sum;
        };
        call(gated, {pair.data(), y.data()});
        EXPECT_NEAR(dot(dy, y), gated_loss(), 1e-11);
        gated.backward = true;
        call(gated, {as_operand(dy), pair.data(), dpair.data()});
        expect_gradient(gated_loss, pair, dpair, to_text(gated));
    }
}

}  // namespace
}  // namespace foretrain::test
