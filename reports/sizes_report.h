// A range of cluster sizes: the best plan of each, and which sizes nothing beats.
//
//   std::cout << sizes_table(range);
//   std::cout << sizes_json(range).dump() << '\n';
//
// Two fronts: of step time against GPUs (no smaller size is as fast), and of step time against GPU-hours
// a step (none is both faster and as cheap): with one price for all GPUs, that is time against money.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string sizes_table(const RangeResult& range);
Json sizes_json(const RangeResult& range);
std::string sizes_csv(const RangeResult& range);  // a line for each size that has a plan

}  // namespace foretrain
