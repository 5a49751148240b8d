// A small system of normal equations, symmetric and positive definite, and what it says of its unknowns.
//
//   NormalEquations e(2);  e.at(0, 0) = 4;  e.at(1, 1) = 1;  e.right = {8, 3};
//   solve(e)            // {2, 3}
//   standard_errors(e)  // {0.5, 1}: roots of the inverse's diagonal
#pragma once

#include <cstddef>
#include <vector>

namespace foretrain {

struct NormalEquations {
    explicit NormalEquations(std::size_t unknowns)
        : n(unknowns), right(unknowns, 0.0), left(unknowns * unknowns, 0.0) {}
    double& at(std::size_t row, std::size_t column) { return left[row * n + column]; }
    double at(std::size_t row, std::size_t column) const { return left[row * n + column]; }

    std::size_t n;
    std::vector<double> right;
    std::vector<double> left;
};

std::vector<double> solve(const NormalEquations& equations);
std::vector<double> standard_errors(const NormalEquations& equations);

}  // namespace foretrain
