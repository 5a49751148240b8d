// Predicted against measured step times as a picture (SVG): both axes logarithmic and alike, with the line of
// equality and those of 10 % more and less, each framework in its own colour.
//
//   std::ofstream("scatter.svg") << scatter_svg(rows);
//
// Points name their run where a viewer shows titles. Rows without a step are left out and counted below.
#pragma once

#include <string>
#include <vector>

#include "plan/program/backtest.h"

namespace foretrain {

std::string scatter_svg(const std::vector<BacktestRow>& rows);

}  // namespace foretrain
