// What is known of links by name: the constants of collectives inside a node ("nvlink4", "pcie5") and
// across a network ("infiniband", "roce", "efa", "tcp"), each with where it was measured and how far it
// can be trusted. The table is hardware/presets/links.json, the one place that holds these figures.
//
//   DomainConstants d = domain_constants(Json("nvlink4"));    // d.ring_gbps == 371
//   NetworkConstants n = network_constants(Json("efa"));
//
// A cluster file names a link and states only what differs:
//   "domain": {"link": "nvlink4"},  "network": {"fabric": "roce", "nics_per_node": 4, ...}
//
// Errors: UserError at the name, with the nearest known one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "hardware/calibration.h"

namespace foretrain {

DomainConstants domain_constants(const Json& link);
NetworkConstants network_constants(const Json& fabric);
std::optional<DomainConstants> find_domain_constants(const std::string& link);

std::vector<std::string> domain_links();
std::vector<std::string> fabrics();

}  // namespace foretrain
