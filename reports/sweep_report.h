// A sweep's answer: which plans are best, the best one in full, what memory buys, and why the rest
// fell.
//
//   std::cout << sweep_table(result, /*top=*/10);
//   std::cout << sweep_json(result).dump() << '\n';
//
// The table leaves out the elapsed time, so that the same sweep prints the same bytes.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string sweep_table(const SweepResult& result, std::size_t top);
Json sweep_json(const SweepResult& result);
std::string sweep_csv(const SweepResult& result);  // heading and one line a plan, best first

}  // namespace foretrain
