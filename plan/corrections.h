// Profiles and clusters of the user's own in place of those that plans name: what a fit wrote, taken up again.
//
//   Corrections c{.frameworks = frameworks_from_json(Json::parse_file("megatron-lm.json")), .clusters = {}};
//   correct(plan, c);
//
// A profile serves the plans of its name and version; of a cluster the device's calibration serves plans on a device
// of its name, and the links those with links of their names. All else in a plan stays.
#pragma once

#include <vector>

#include "plan/framework.h"
#include "plan/plan.h"

namespace foretrain {

struct Corrections {
    std::vector<Framework> frameworks;
    std::vector<ClusterSpec> clusters;
};

void correct(Plan& plan, const Corrections& corrections);

}  // namespace foretrain
