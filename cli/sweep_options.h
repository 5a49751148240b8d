// The options that `sweep` and `plan` share: which model, cluster and training, and which values the
// axes of the search may take.
//
//   const std::optional<Options> options = parse({..., .groups = sweep_option_groups()}, arguments, console);
//   SweepResult result = sweep(sweep_base_from_options(*options), sweep_options_from(*options));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "sim/sweep.h"

namespace foretrain::cli {

std::vector<OptionGroup> sweep_option_groups();
Option threads_option();
SweepOptions sweep_options_from(const Options& options);

// The sizes that --nodes or --gpus names: "8,16,32", or "64..512": 64, 128, 256 and 512.
std::vector<std::int64_t> sizes_in(const std::string& option, const std::string& text);

// Shows how far a search is, on a terminal.
void show_progress(SweepOptions& options, Console& console);
void clear_progress(Console& console);
void show_stage(Console& console, const std::string& what);  // of longer work: "64 GPUs", "explaining the best"

}  // namespace foretrain::cli
