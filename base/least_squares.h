// Fitting a few constants to a table of measured times. Errors are relative: a kernel of ten
// microseconds counts as much as one of ten milliseconds, for a step is made of both.
//
//   // t = a + bytes * b
//   std::vector<double> ab = fit_nonnegative({{1, 4096}, {1, 65536}, {1, 1048576}}, {2.1, 5.0, 60.3});
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace foretrain {

// Constants x >= 0 that minimise the sum of ((row . x - measured) / measured)^2: a launch time or a
// time a byte below zero would be the table's noise.
std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows, const std::vector<double>& measured);

// The same for a form that is linear in its constants: `form(i, x)` is what it says of measurement i.
std::vector<double> fit_linear(const std::function<double(std::size_t, const std::vector<double>&)>& form,
                               std::size_t constants, const std::vector<double>& measured);

// A local minimum of `f` near `start`, by the simplex method of Nelder and Mead.
std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& f, std::vector<double> start,
                             int rounds = 2000);

struct FitError {
    double median = 0, p80 = 0, p90 = 0;  // of |predicted / measured - 1|
};
FitError error_of(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace foretrain
