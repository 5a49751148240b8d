// A fit of constants to measured runs, told: what each constant was and became, what it rests on, and how far off
// predictions are with it, also for runs that the fit did not see.
//
//   std::cout << fit_table(report);
//   fit_json(report).dump();  fit_csv(report);          // the CSV holds the constants, one a line
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/fit_result.h"

namespace foretrain {

std::string fit_table(const FitReport& report);
Json fit_json(const FitReport& report);
std::string fit_csv(const FitReport& report);

}  // namespace foretrain
