// `foretrain calibrate --from-table`: a cluster's constants from a table that was measured elsewhere.
//
//   if (options.has("from-table")) return calibrate_from_table(options, console);
#pragma once

#include "cli/options.h"

namespace foretrain::cli {

OptionGroup table_options();
int calibrate_from_table(const Options& options, Console& console);

}  // namespace foretrain::cli
