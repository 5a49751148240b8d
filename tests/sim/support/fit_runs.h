// Runs of two frameworks whose steps are predictions with changed figures: what a fit has to find again.
#pragma once

#include <vector>

#include "sim/fit_model.h"

namespace foretrain::support {

// Of Megatron-LM 2024 and llm-foundry, small and large, on one node and on several; measured is what is predicted.
std::vector<FitRun> predicted_runs();

// The same with each step as these factors of the model's constants make it, times `noise` to the power of -1, 0 or 1.
std::vector<FitRun> runs_as_if(const FitModel& model, const LogFactors& factors, double noise = 1);

}  // namespace foretrain::support
