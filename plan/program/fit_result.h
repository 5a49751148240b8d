// What a fit of constants to measured steps found, and how far each can be trusted: what `foretrain fit` prints.
// Plain data that sim/ fills and reports/ tells; neither knows the other.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace foretrain {

struct FittedConstant {
    std::string name, reason;
    std::vector<std::string> paths;  // of the figures that it scales; the first one's are:
    double before = 0, after = 0;
    double prior = 0;                   // relative standard deviation that was believed
    double standard_error = 0;          // relative, after the fit
    std::optional<double> fold_spread;  // relative standard deviation over folds
    bool at_bound = false;
    std::size_t rows = 0;  // whose step it moves noticeably
    // By source, the share of all that is known of it, the largest first; empty: nothing rests on runs.
    std::vector<std::pair<std::string, double>> sources;
    bool rests_on_one() const { return !sources.empty() && sources.front().second >= most_on_one; }

    static constexpr double most_on_one = 0.95;
};

// Predicted steps of one run, in seconds: by the constants as they were, as fitted, and as fitted without it.
struct FitRow {
    std::string id, source;
    double measured = 0, before = 0, after = 0;
    std::optional<double> folded;  // by a fit to the other folds
    std::optional<double> cold;    // by a fit without its source, frameworks' figures from neutral ones
    std::optional<double> own;     // the same, and then its source's own frameworks fitted to it
};

// A run of a source of which a few others were given: predicted by constants that those corrected.
struct GivenRow {
    std::string source;
    double measured = 0, from_cold = 0;  // corrected from a fit without the source
    double from_before = 0;              // and from the constants as they were
};

struct FitReport {
    std::vector<FittedConstant> constants;
    std::vector<FitRow> rows;
    std::map<std::string, std::size_t> left_out;  // runs that take no part, by reason
    int folds = 0;                                // 0: no such fits
    bool without_source = false;
    std::size_t given = 0;  // runs of a source that GivenRows know
    std::vector<GivenRow> given_rows;
};

}  // namespace foretrain
