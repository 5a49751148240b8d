// A prediction of one plan, told three ways: a table for a person, JSON and CSV for a machine.
//
// The table answers in the order in which one asks: what is planned, how fast, what limits it (the
// time of the slowest stage, whose parts sum to the step), what is sent, and does it fit. A plan
// that is refused shows why; one that only lacks memory shows everything and by how much.
//
//   std::cout << prediction_table(prediction);
//   std::cout << prediction_json(prediction).dump() << '\n';
//   std::cout << prediction_csv_heading() << prediction_csv_line(prediction);
//
// Conventions: MFU counts attention in full and no recompute, `mfu_causal` counts attention by
// half, HFU counts recompute; all against the dense peak at the plan's precision. Communication is
// bytes sent by a GPU in a step, per axis, of the stage that sends most on that axis; the
// synchronisation of tied embeddings counts as pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string prediction_table(const Prediction& prediction);
Json prediction_json(const Prediction& prediction);
std::string prediction_csv_heading();
std::string prediction_csv_line(const Prediction& prediction);

// Parts, for the other reports. Each ends in a line end and is indented by two.
std::string time_heading(const Prediction& prediction);  // and whose time it is
std::string time_table(const Prediction& prediction);    // the slowest stage's time, part by part
std::string memory_table(const Prediction& prediction);  // stage by role, and whether it fits
std::string memory_unit(const Prediction& prediction);   // of that table: "GiB", or "MiB" for a small plan
std::string training_table(const TrainingCost& cost);
std::string plan_line(const Plan& plan);  // "gpt2 on dgx-h100, 8 GPUs: tp 2 ..."

}  // namespace foretrain
