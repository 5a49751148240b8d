#include "sim/normal_equations.h"

#include <cmath>

#include "base/error.h"

namespace foretrain {

namespace {

// Cholesky's lower triangle, in place of the left side.
NormalEquations factorised(NormalEquations e) {
    for (std::size_t j = 0; j < e.n; ++j) {
        for (std::size_t k = 0; k < j; ++k) e.at(j, j) -= e.at(j, k) * e.at(j, k);
        FORETRAIN_CHECK(e.at(j, j) > 0, "normal equations that are not positive definite");
        e.at(j, j) = std::sqrt(e.at(j, j));
        for (std::size_t i = j + 1; i < e.n; ++i) {
            for (std::size_t k = 0; k < j; ++k) e.at(i, j) -= e.at(i, k) * e.at(j, k);
            e.at(i, j) /= e.at(j, j);
        }
    }
    return e;
}

std::vector<double> solve_factorised(const NormalEquations& lower, std::vector<double> x) {
    for (std::size_t i = 0; i < lower.n; ++i) {
        for (std::size_t k = 0; k < i; ++k) x[i] -= lower.at(i, k) * x[k];
        x[i] /= lower.at(i, i);
    }
    for (std::size_t i = lower.n; i-- > 0;) {
        for (std::size_t k = i + 1; k < lower.n; ++k) x[i] -= lower.at(k, i) * x[k];
        x[i] /= lower.at(i, i);
    }
    return x;
}

}  // namespace

std::vector<double> solve(const NormalEquations& e) { return solve_factorised(factorised(e), e.right); }

std::vector<double> standard_errors(const NormalEquations& e) {
    const NormalEquations lower = factorised(e);
    std::vector<double> out;
    for (std::size_t i = 0; i < e.n; ++i) {
        std::vector<double> unit(e.n, 0.0);
        unit[i] = 1;
        out.push_back(std::sqrt(solve_factorised(lower, std::move(unit))[i]));
    }
    return out;
}

}  // namespace foretrain
