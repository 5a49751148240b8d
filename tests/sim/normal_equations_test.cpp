#include "sim/normal_equations.h"

#include <gtest/gtest.h>

#include <cmath>

namespace foretrain {
namespace {

// (4 2; 2 3) x = (10 9): x = (3/2, 2), and the inverse is (3 -2; -2 4) / 8.
TEST(NormalEquations, SolveAndSayHowFarTheyKnow) {
    NormalEquations e(2);
    e.at(0, 0) = 4;
    e.at(0, 1) = e.at(1, 0) = 2;
    e.at(1, 1) = 3;
    e.right = {10, 9};
    const std::vector<double> x = solve(e);
    EXPECT_NEAR(x[0], 1.5, 1e-12);
    EXPECT_NEAR(x[1], 2.0, 1e-12);
    const std::vector<double> errors = standard_errors(e);
    EXPECT_NEAR(errors[0], std::sqrt(3.0 / 8), 1e-12);
    EXPECT_NEAR(errors[1], std::sqrt(4.0 / 8), 1e-12);
}

}  // namespace
}  // namespace foretrain
