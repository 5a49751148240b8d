// Which constants of devices, links and frameworks may be fitted to runs: data (sim/presets/free_constants.json),
// each with its bounds, how far it is believed, and why it is free. A constant is a factor on one figure or on
// several that are wrong together: forward and backward attention of one kernel, what an operation costs the host in
// every framework. A figure belongs to the first constant that claims it.
//
//   for (const ConstantRule& rule : constant_rules()) ...
//   std::vector<ConstantRule> some = constant_rules("*.costs.host.*");     // whose name or a path matches
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sim/constant_path.h"

namespace foretrain {

struct ConstantRule {
    std::string name;  // "host operation"
    std::vector<ConstantPath> paths;
    bool each = false;              // one constant for each owner; else one for all of them
    bool whole = false;             // the figures are whole numbers
    double least = 0, most = 0;     // of a figure
    std::optional<double> prior;    // standard deviation of the factor's logarithm; nothing: the figure's own spread
    std::optional<double> neutral;  // of a figure, where no run of its owner was seen; nothing: as it is
    std::string reason;
};

const std::vector<ConstantRule>& constant_rules();
// Those whose name or one of whose paths matches; UserError if none does.
std::vector<ConstantRule> constant_rules(const std::string& pattern);

std::vector<ConstantRule> constant_rules_from_json(const Json& file);  // format "foretrain.constants/1"

}  // namespace foretrain
