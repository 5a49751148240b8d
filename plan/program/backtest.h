// Runs that were measured, each with its prediction: what `foretrain backtest` compares. Plain data that sim/
// fills and reports/ tells; neither knows the other.
//
//   for (const BacktestRow& row : rows)
//       if (row.has_step()) error = seconds(row.prediction->step) / *row.run.measured.step_time_s - 1;
#pragma once

#include <optional>
#include <string>

#include "plan/program/result.h"
#include "plan/run_record.h"

namespace foretrain {

struct BacktestRow {
    RunRecord run;                         // its plan is the prediction's
    std::string refused;                   // a key to count by; empty: there is a prediction
    std::string why;                       // and in a sentence
    std::optional<Prediction> prediction;  // may say that the plan does not fit: the run says that it did

    bool has_step() const { return prediction.has_value() && run.measured.step_time_s.has_value(); }
};

}  // namespace foretrain
