// A plan from the command line: a plan file, presets, and every field of a plan as an option of the
// same name. Options override the file.
//
//   const std::optional<Options> options = parse({..., .groups = plan_option_groups()}, arguments, console);
//   Plan plan = plan_from_options(*options);
//
// `data` follows from the number of GPUs unless it is given: a file's own value is dropped where an
// option changes the GPUs, the tensor or the pipeline ranks, because it belonged to the old ones. Another cluster for
// a plan file that has one takes as many GPUs, unless --nodes or --gpus says otherwise.
#pragma once

#include <vector>

#include "cli/options.h"
#include "plan/plan.h"

namespace foretrain::cli {

// Of --recompute, here and as an axis of a sweep.
inline constexpr const char* recompute_help =
    "what the backward pass computes again:\n"
    "none (nothing), selective (attention alone), full (all layers),\n"
    "\"block N\" (N layers of each stage), \"segment N\" (all, in groups of N,\n"
    "of which only the input is kept), \"every N\" (each Nth layer)";

std::vector<OptionGroup> plan_option_groups();
Plan plan_from_options(const Options& options);

// For a sweep: the axes that it varies (tensor, pipeline, virtual-pipeline, data, zero-stage,
// micro-batch-size, recompute, with them stage-layers) are left out, whatever the file says of them; --schedule is
// the sweep's own option too, but a file's schedule stays.
std::vector<OptionGroup> sweep_base_option_groups();
Plan sweep_base_from_options(const Options& options);

// Says on stderr what reading the plan's model had to assume or leave out, if anything.
Plan announced(Plan plan, Console& console);

// Writes the plan with model and cluster inlined where `--save-plan FILE` was given.
Option save_plan_option();
void save_plan(const Options& options, Console& console, const Plan& plan);

}  // namespace foretrain::cli
