// The constants that best explain measured steps, without leaving what was believed before further than the steps
// demand: the largest posterior of a robust likelihood (Huber's, of ln predicted/measured) and a normal prior on each
// factor's logarithm. Rows by the hundred decide; one row moves the constants that it rests on, each in proportion
// to how little it was known.
//
//   FitSettings settings;                                   // centre: the constants as they are
//   Fitted f = fit(model, model.all_rows(), settings);
//   f.factors[c], f.standard_error[c]
//
// Gauss-Newton: sensitivities are worked out at the start and once more where that led; in between predictions are
// exact and sensitivities kept. A fit to some of the rows may take the sensitivities of a fit to all, for they know
// nothing of what was measured.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/fit_model.h"

namespace foretrain {

// Ten percent of the constant are a thousandth of the step or more.
inline bool moves_noticeably(double sensitivity) { return std::fabs(sensitivity) >= 0.01; }

struct FitSettings {
    LogFactors start;           // empty: the centre
    LogFactors centre;          // of the prior; empty: all 0
    std::vector<double> prior;  // standard deviations; empty: the constants' own
    std::vector<bool> fixed;    // by constant: stays at the centre; empty: none
    // Of ln predicted/measured where all constants are right: what the forms cannot say, and noise.
    double noise = 0.03;
    const Sensitivity* sensitivity = nullptr;  // by run of the model, if it is known
    std::function<void(const std::string& what, double part)> progress;
};

struct Fitted {
    LogFactors factors;
    std::vector<double> standard_error;  // of the factor's logarithm
    std::vector<bool> stayed;            // at the centre: fixed, or no row tells
    std::vector<double> log_steps;       // of the rows
    Sensitivity sensitivity;             // of the rows, near the factors; empty if it was given
};

Fitted fit(const FitModel& model, const Rows& rows, const FitSettings& settings);

}  // namespace foretrain
