// How far a prediction can be trusted, and what it needs of the host: the parts of reports that the
// table, JSON and CSV of a prediction share. All are empty for a plan without a step or without memory.
//
//   trust_table(p)     "  80 % interval: 6.612 s to 8.166 s. Widest: ..."
//   host_table(p)      "  Host memory of a node: at most 74.80 GiB while a checkpoint is written ..."
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string interval_text(const Prediction& prediction);  // "6.612 s .. 8.166 s, 80 % interval"
std::string trust_table(const Prediction& prediction);
std::string host_table(const Prediction& prediction);
Json interval_json(const StepInterval& interval);
Json host_json(const HostMemory& host);

}  // namespace foretrain
