// Options that ask what a whole training takes: --tokens, --price and --power.
//
//   const std::optional<TrainingWish> wish = training_wish(*options);     // none without --tokens
//   foretrain estimate ... --tokens 15T --price 2.5 --power 1000
#pragma once

#include <optional>

#include "cli/options.h"
#include "plan/program/result.h"

namespace foretrain::cli {

OptionGroup training_option_group();
std::optional<TrainingWish> training_wish(const Options& options);

// That the training is at least one step of the plan: "--tokens 15" was meant to be 15T.
void check_tokens(const Options& options, const Plan& plan);

// Sets what the training takes at the predicted step, if there is one and it was asked for.
void set_training(Prediction& prediction, const std::optional<TrainingWish>& wish);

// A count as people write it: 300B, 1.4e12, 15T (K, M, B and T are thousand, million, ...).
double count_from_text(const std::string& option, const std::string& text);

}  // namespace foretrain::cli
