// Files of run records as the subcommands that learn from them take them: read, filtered, with the user's own profiles
// and clusters in place of those that the records name.
//
//   std::vector<RunRecord> records = run_records_from(options);    // options of run_groups()
#pragma once

#include <vector>

#include "cli/options.h"
#include "plan/run_record.h"

namespace foretrain::cli {

constexpr std::size_t most_run_files = 1000;

// "Which runs" and "Corrected by".
std::vector<OptionGroup> run_option_groups();
std::vector<RunRecord> read_run_files(const std::vector<std::string>& paths);
// As the options say: of some sources or frameworks, corrected.
void choose_runs(const Options& options, std::vector<RunRecord>& records);

}  // namespace foretrain::cli
