// The errors of a fit by source, of each kind of prediction that it made.
//
//   for (const FitErrors& e : fit_errors(report)) ...       // each source, then "all"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/program/fit_result.h"
#include "reports/error_statistics.h"

namespace foretrain {

struct FitErrors {
    std::string source;
    std::size_t runs = 0;
    ErrorSummary before, after;
    // Without a count: there was no such fit.
    ErrorSummary folded, cold, own, given_from_cold, given_from_before;
};

std::vector<FitErrors> fit_errors(const FitReport& report);

}  // namespace foretrain
