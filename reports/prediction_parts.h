// The parts of a prediction under the names that JSON, CSV and tables share, so that a figure has
// one name and one order everywhere.
//
//   for (const TimePart& part : breakdown(stage_time)) sum += part.time;    // == stage_time.step
//   for (const auto& [axis, bytes] : communication_by_axis(prediction)) ...      // tensor, data, ...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/program/result.h"

namespace foretrain {

struct TimePart {
    std::string key;    // "tensor_exposed"
    std::string label;  // for tables, with a remark that says what it is
    std::string remark;
    Time time;
};

std::vector<TimePart> breakdown(const StageTime& time);

// Bytes sent by a GPU in a step on the axes tensor, data, pipeline, context and expert, each of the
// stage that sends most on it.
std::vector<std::pair<std::string, Bytes>> communication_by_axis(const Prediction& prediction);

double tokens_per_second_per_device(const Prediction& prediction);

// Rows of the embedding and the head as the framework pads them: what the memory is counted for. The
// prediction must have one: a refused plan's padding may be the reason.
std::int64_t padded_vocabulary(const Prediction& prediction);

}  // namespace foretrain
