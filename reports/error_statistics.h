// How far predictions are from what was measured, in one line of figures, and whether they put plans in the
// right order.
//
//   std::vector<Compared> rows{{.predicted = 9, .measured = 10, .inside = true}, ...};
//   ErrorSummary e = errors_of(rows);      // e.median_ape, e.bias, ... (fractions: 0.1 is 10 %)
//   std::optional<double> tau = kendall_tau_b(predicted_throughput, measured_throughput);
//
// An error is predicted / measured - 1; `bias` is its median, with its sign. The quantiles lie between two values
// in proportion, as NumPy's do.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace foretrain {

struct Compared {
    double predicted = 0, measured = 0;  // above zero
    bool inside = false;                 // the prediction's interval holds what was measured
    double error() const { return predicted / measured - 1; }
};

struct ErrorSummary {
    std::size_t count = 0;  // 0: the others mean nothing
    double median_ape = 0, mape = 0, p90_ape = 0;
    double bias = 0;
    double coverage = 0;  // share of rows whose interval holds the measurement
};

ErrorSummary errors_of(const std::vector<Compared>& rows);

// Precondition: not empty, 0 <= q <= 1.
double quantile(std::vector<double> values, double q);

// Kendall's tau with ties counted as its form b does: 1 where both order all pairs alike, -1 where they order them
// the other way round; nothing where one of them ties all.
std::optional<double> kendall_tau_b(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace foretrain
