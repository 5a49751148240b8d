// The parts of a prediction under the names that JSON, CSV and tables share, so that a figure has
// one name and one order everywhere.
//
//   for (const TimePart& part : breakdown(stage_time)) sum += part.time;    // == stage_time.step
//   for (const auto& [axis, bytes] : communication_by_axis(prediction)) ...      // tensor, data, ...
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/program/result.h"

namespace foretrain {

struct TimePart {
    std::string key;    // "tensor_exposed"
    std::string label;  // for tables, with a remark that says what it is
    std::string remark;
    Time time;
    bool computes = false;  // kernels run; else they are waited for
};

// By what the time goes to: kinds of kernels, recompute, optimizer, and what is waited for.
std::vector<TimePart> breakdown(const StageTime& time);
// The same kernels by the pass that runs them: gemm, attention, head and other kernels once more.
std::vector<TimePart> by_pass(const StageTime& time);

// Bytes that a GPU sends in a step by one collective of one group, of the stage that sends most by it.
struct SentBytes {
    std::string group;       // "tensor", "data", "pipeline", "embedding", ...
    std::string collective;  // "all_gather", "send", ...
    Bytes bytes;
};
std::vector<SentBytes> communication_by_collective(const Prediction& prediction);

// Bytes sent by a GPU in a step on the axes tensor, data, pipeline, context and expert, each of the
// stage that sends most on it.
std::vector<std::pair<std::string, Bytes>> communication_by_axis(const Prediction& prediction);

std::string axis_of_group(const std::string& group);  // "embedding" is of the pipeline

// "megatron-lm (2024)": with the version that is meant where none is named.
std::string framework_text(const Plan& plan);
std::string framework_version(const Plan& plan);  // "" of an unknown framework

// "backward pass of microbatch 3, in layer3.mlp; 4 in flight", or "9 chunk passes in flight" where a stage has
// several chunks, each with microbatches of its own in flight.
std::string moment_text(const Prediction& prediction, const PeakMoment& moment);

// In tables, behind the memory of a plan that is tight; a table with a mark has the note below it.
std::string tight_mark(const Prediction& prediction);  // "!" or ""
constexpr std::string_view tight_note = "! tight: less than a twentieth of the device to spare\n";
Bytes largest_allocation(const Prediction& prediction);   // of a stage, what is reserved besides left out
Bytes largest_reservation(const Prediction& prediction);  // the same with its allocator's slack

double tokens_per_second_per_device(const Prediction& prediction);

// Rows of the embedding and the head as the framework pads them: what the memory is counted for. The
// prediction must have one: a refused plan's padding may be the reason.
std::int64_t padded_vocabulary(const Prediction& prediction);

}  // namespace foretrain
