// A backtest, told three ways: a table for a person, JSON and CSV for a machine.
//
//   std::cout << backtest_rows_table(rows) << backtest_summary_table(summary_of(rows));
//   std::cout << backtest_json(rows).dump() << '\n';
//   std::cout << backtest_csv(rows);                     // a line a run, refused ones too
//
// Tables show percentages, JSON and CSV fractions: `error` is predicted / measured - 1, `bias` its median.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "plan/program/backtest.h"
#include "reports/backtest_summary.h"

namespace foretrain {

std::string backtest_rows_table(const std::vector<BacktestRow>& rows);
std::string backtest_summary_table(const BacktestSummary& summary);
Json backtest_json(const std::vector<BacktestRow>& rows);
std::string backtest_csv(const std::vector<BacktestRow>& rows);

// Parts. The plan in short: "tp8 pp12 v3 dp8 z1 m2 full"; what is left out is 1, or none.
std::string short_plan(const Plan& plan);
// The largest parts of the slowest stage's time with their shares of it: "gemm 62 %, bubble 14 %".
std::string largest_parts(const Prediction& prediction, std::size_t count);
std::string scale_name(int decade);  // "10 to 99"

}  // namespace foretrain
