#include "base/error.h"
#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

TEST(ResidualAdd, InPlaceOrNotWithBiasOrNot) {
    for (std::size_t width : {1U, 5U, 64U}) {
        const auto n = static_cast<std::int64_t>(3 * width), w = static_cast<std::int64_t>(width);
        const auto x = random_tensor<float>(n, 1), r = random_tensor<float>(n, 2), bias = random_tensor<float>(w, 3);
        for (bool with_bias : {false, true}) {
            const ResidualAddArgs a{.rows = 3, .width = w, .bias = with_bias};
            auto y = zeros<float>(n), over_x = x, over_r = r;
            call(a, {as_operand(x), as_operand(r), y.data(), as_operand(bias)});
            call(a, {over_x.data(), as_operand(r), over_x.data(), as_operand(bias)});
            call(a, {as_operand(x), over_r.data(), over_r.data(), as_operand(bias)});
            for (std::size_t i = 0; i < y.size(); ++i)
                EXPECT_EQ(y[i], with_bias ? x[i] + r[i] + bias[i % width] : x[i] + r[i]);
            EXPECT_EQ(over_x, y);
            EXPECT_EQ(over_r, y);
        }
    }
}

TEST(ResidualAdd, TakesTwoBiases) {
    const auto x = random_tensor<double>(15, 1), r = random_tensor<double>(15, 2);
    const auto one = random_tensor<double>(5, 3), two = random_tensor<double>(5, 4);
    auto y = zeros<double>(15);
    ResidualAddArgs a{.rows = 3, .width = 5, .bias = true, .type = DType::fp64};
    a.bias2 = true;
    EXPECT_EQ(operand_count(a), 5);
    call(a, {as_operand(x), as_operand(r), y.data(), as_operand(one), as_operand(two)});
    for (std::size_t i = 0; i < 15; ++i) EXPECT_NEAR(y[i], x[i] + r[i] + one[i % 5] + two[i % 5], 1e-15);
}

template <class From, class To>
void check_conversions() {
    const auto x = random_tensor<From>(37, 1);
    auto y = zeros<To>(37);
    call(CastArgs{37, type_of<From>, type_of<To>}, {as_operand(x), y.data()});
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], static_cast<To>(x[i]));
    call(AccumulateArgs{37, type_of<From>, type_of<To>}, {as_operand(x), y.data()});
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 2 * static_cast<To>(x[i]));
}

TEST(CastAndAccumulate, EveryPairOfTypes) {
    check_conversions<float, float>();
    check_conversions<float, double>();
    check_conversions<double, float>();
    check_conversions<double, double>();
    EXPECT_THROW(call(CastArgs{1, DType::fp32, DType::bf16}, {nullptr, nullptr}), RunError);
    EXPECT_THROW(call(AccumulateArgs{1, DType::fp16, DType::fp32}, {nullptr, nullptr}), RunError);
}

// The textbook form, with bias-corrected moments.
struct Adam {
    double parameter, momentum = 0, variance = 0;
    void step(const AdamwArgs& a, double gradient, int t) {
        parameter -= a.learning_rate * a.weight_decay * parameter;
        momentum = a.beta1 * momentum + (1 - a.beta1) * gradient;
        variance = a.beta2 * variance + (1 - a.beta2) * gradient * gradient;
        const double m = momentum / (1 - std::pow(a.beta1, t)), v = variance / (1 - std::pow(a.beta2, t));
        parameter -= a.learning_rate * m / (std::sqrt(v) + a.epsilon);
    }
};

template <class P, class O>
void check_adamw(bool master) {
    const std::size_t n = 37;
    AdamwArgs a{.elements = n, .learning_rate = 0.1, .master = master};
    a.type = a.gradient = type_of<P>;
    a.optimizer = type_of<O>;
    auto parameter = random_tensor<P>(n, 1);
    Tensor<O> momentum(n), variance(n), weights(parameter.begin(), parameter.end());
    std::vector<Adam> expected;
    for (P p : parameter) expected.push_back({static_cast<double>(p)});
    for (int t = 1; t <= 3; ++t) {
        auto gradient = random_tensor<P>(n, static_cast<unsigned>(t));
        gradient[n - 1] = 0;  // padding: gradient and parameter 0
        if (t == 1) parameter[n - 1] = 0, weights[n - 1] = 0, expected[n - 1].parameter = 0;
        for (std::size_t i = 0; i < n; ++i) expected[i].step(a, static_cast<double>(gradient[i]), t);
        call(a, {parameter.data(), gradient.data(), momentum.data(), variance.data(), weights.data()}, 0, t);
    }
    Tensor<double> result;
    for (const Adam& e : expected) result.push_back(e.parameter);
    expect_near(parameter, result, tolerance<P>);
    if (master) expect_near(weights, result, tolerance<O>);
    EXPECT_EQ(parameter[n - 1], P{0});
}

TEST(Adamw, ThreeStepsWithAndWithoutMaster) {
    for (bool master : {false, true}) {
        check_adamw<float, float>(master);
        check_adamw<double, double>(master);
    }
    check_adamw<float, double>(true);
}

}  // namespace
}  // namespace foretrain::test
