#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

constexpr std::int64_t all_rows[] = {1, 3, 35}, all_widths[] = {1, 5, 16, 50, 64, 101};

Tensor<double> reference(const NormForwardArgs& a, const Tensor<double>& x, const Tensor<double>& weight,
                         const Tensor<double>& bias) {
    Tensor<double> y(x.size());
    const auto width = static_cast<std::size_t>(a.width);
    for (std::size_t row = 0; row < x.size(); row += width) {
        double mean = 0, variance = 0;
        for (std::size_t j = 0; j < width && !a.rms; ++j) mean += x[row + j] / static_cast<double>(width);
        for (std::size_t j = 0; j < width; ++j)
            variance += (x[row + j] - mean) * (x[row + j] - mean) / static_cast<double>(width);
        for (std::size_t j = 0; j < width; ++j)
            y[row + j] = (x[row + j] - mean) / std::sqrt(variance + a.epsilon) * weight[j] + (a.rms ? 0.0 : bias[j]);
    }
    return y;
}

template <class T>
void check_forward(const NormForwardArgs& a) {
    const auto x = random_tensor<T>(a.rows * a.width, 1), weight = random_tensor<T>(a.width, 2);
    const auto bias = random_tensor<T>(a.width, 3);
    auto y = zeros<T>(a.rows * a.width);
    call(a, {as_operand(x), y.data(), as_operand(weight), as_operand(bias)});
    expect_near(y, reference(a, in_double(x), in_double(weight), in_double(bias)), tolerance<T>, to_text(a));
}

TEST(Norm, Forward) {
    for (std::int64_t rows : all_rows)
        for (std::int64_t width : all_widths)
            for (bool rms : {false, true}) {
                check_forward<float>({rows, width, rms, 1e-5, DType::fp32});
                check_forward<double>({rows, width, rms, 1e-5, DType::fp64});
            }
}

TEST(Norm, ALargeMeanDoesNotCancel) {
    auto x = random_tensor<float>(64, 1);
    for (float& v : x) v += 1000;
    const auto weight = Tensor<float>(64, 1), bias = zeros<float>(64);
    auto y = zeros<float>(64);
    const NormForwardArgs a{.rows = 1, .width = 64};
    call(a, {x.data(), y.data(), as_operand(weight), as_operand(bias)});
    expect_near(y, reference(a, in_double(x), in_double(weight), in_double(bias)), 1e-4);
}

template <class T>
struct Backward {
    Tensor<T> dx, dweight, dbias;
};

template <class T>
Backward<T> backward(const NormBackwardArgs& a, const Tensor<T>& dy, const Tensor<T>& x, const Tensor<T>& residual,
                     const Tensor<T>& weight, double before) {
    const auto width = static_cast<std::size_t>(a.width);
    Backward<T> b{zeros<T>(a.rows * a.width), Tensor<T>(width, T(before)), Tensor<T>(width, T(before))};
    call(a, {as_operand(dy), as_operand(x), as_operand(residual), as_operand(weight), b.dx.data(), b.dweight.data(),
             b.dbias.data()});
    return b;
}

void check_backward(std::int64_t rows, std::int64_t width, bool rms) {
    const NormForwardArgs forward{rows, width, rms, 1e-5, DType::fp64};
    NormBackwardArgs a{rows, width, rms, true, false, 1e-5, DType::fp64, DType::fp64};
    auto x = random_tensor<double>(rows * width, 1), weight = random_tensor<double>(width, 2);
    auto bias = random_tensor<double>(width, 3);
    const auto dy = random_tensor<double>(rows * width, 4), residual = random_tensor<double>(rows * width, 5);
    const auto loss = [&] { return dot(dy, reference(forward, x, weight, bias)) + dot(residual, x); };
    const auto b = backward(a, dy, x, residual, weight, 9);
    expect_gradient(loss, x, b.dx, to_text(a) + " dx");
    expect_gradient(loss, weight, b.dweight, to_text(a) + " dweight");
    if (!rms) expect_gradient(loss, bias, b.dbias, to_text(a) + " dbias");

    a.residual = false;  // the operand is left out, and with it its share of dx
    Backward<double> alone = b;
    call(a, {as_operand(dy), as_operand(x), as_operand(weight), alone.dx.data(), alone.dweight.data(),
             alone.dbias.data()});
    for (std::size_t j = 0; j < alone.dx.size(); ++j) EXPECT_NEAR(alone.dx[j] + residual[j], b.dx[j], 1e-14);
    a.residual = true;

    a.accumulate = true;
    const auto added = backward(a, dy, x, residual, weight, 9);
    for (std::size_t j = 0; j < added.dweight.size(); ++j) EXPECT_DOUBLE_EQ(added.dweight[j], 9 + b.dweight[j]);

    a.accumulate = false;
    a.type = a.gradient = DType::fp32;
    const auto single = [](const Tensor<double>& t) { return Tensor<float>(t.begin(), t.end()); };
    const auto f = backward(a, single(dy), single(x), single(residual), single(weight), 0);
    if (width == 1) return;  // the true gradient is nearly nothing there
    expect_near(f.dx, b.dx, 1e-4, to_text(a));
    expect_near(f.dweight, b.dweight, 1e-4, to_text(a));
    if (!rms) expect_near(f.dbias, b.dbias, 1e-4, to_text(a));
}

TEST(Norm, BackwardIsTheDerivative) {
    for (std::int64_t rows : all_rows)
        for (std::int64_t width : all_widths)
            for (bool rms : {false, true}) check_backward(rows, width, rms);
}

// Left out, the bias is zero, and so is its gradient's place.
TEST(Norm, LayerNormWithoutBias) {
    const std::int64_t rows = 5, width = 21;
    const auto x = random_tensor<double>(rows * width, 1), weight = random_tensor<double>(width, 2);
    const auto dy = random_tensor<double>(rows * width, 3), none = zeros<double>(width);
    NormForwardArgs forward{.rows = rows, .width = width, .type = DType::fp64};
    auto y = zeros<double>(rows * width), with = y;
    call(forward, {as_operand(x), with.data(), as_operand(weight), as_operand(none)});
    forward.unbiased = true;
    EXPECT_EQ(operand_count(forward), 3);
    call(forward, {as_operand(x), y.data(), as_operand(weight)});
    expect_near(y, with, 1e-15);

    NormBackwardArgs backward{.rows = rows, .width = width, .residual = false, .type = DType::fp64};
    backward.gradient = DType::fp64;
    auto dx = zeros<double>(rows * width), dx_with = dx;
    auto dweight = none, dweight_with = none, dbias = none;
    call(backward,
         {as_operand(dy), as_operand(x), as_operand(weight), dx_with.data(), dweight_with.data(), dbias.data()});
    backward.unbiased = true;
    EXPECT_EQ(operand_count(backward), 5);
    call(backward, {as_operand(dy), as_operand(x), as_operand(weight), dx.data(), dweight.data()});
    EXPECT_EQ(dx, dx_with);
    EXPECT_EQ(dweight, dweight_with);
}

}  // namespace
}  // namespace foretrain::test
