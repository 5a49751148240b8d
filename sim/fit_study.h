// A fit to measured runs and what it is worth: the same fits without some of the runs, judged on those.
//
//   FitReport report = fit_study(model, {.folds = 5, .without_source = true}, factors);
//
// Folds are the same for the same seed, on any machine. Without a source, what only its frameworks tell must not be
// known: all frameworks' figures begin at neutral ones (FreeConstant::neutral), believed less.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/program/fit_result.h"
#include "sim/fit.h"

namespace foretrain {

struct StudySettings {
    int folds = 0;                // 0: none; else at least 2
    bool without_source = false;  // needs at least two sources
    std::size_t given = 0;        // with without_source: correct each by so many of its runs
    std::uint64_t seed = 1;
    std::function<void(const std::string& what, double part)> progress;
};

// Which rows each fold judges: every row once, each source spread over the folds.
std::vector<Rows> folds_of(const FitModel& model, int folds, std::uint64_t seed);

// A fit to few runs: constants that would move by less than a hundredth stay as they are, and the rest is fitted again.
Fitted fit_few(const FitModel& model, const Rows& rows, FitSettings settings);

FitReport fit_study(const FitModel& model, const StudySettings& settings, LogFactors& factors);

}  // namespace foretrain
