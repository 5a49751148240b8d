// A bandwidth that somebody measured on the machines themselves overrides what a link of this name
// reaches elsewhere. Bus bandwidth as nccl-tests prints it, at sizes where it no longer rises, with all
// devices of the nodes taking part:
//
//   "domain":  {"link": "nvlink4", "measured_bus_gbps": {"all_gather": 352, "all_reduce": 465, "pairwise": 310,
//                                                        "source": "nccl-tests on our nodes"}}
//   "network": {"fabric": "roce", ..., "measured_bus_gbps": {"all_reduce": 171, "source": "..."}}
//
// Where switches reduce (NVLS), the all-reduce tells of them and the all-gather of the ring. `source` is
// required; `spread` may be added and is 0.05 if not.
#pragma once

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace foretrain {

void set_measured(DomainConstants& domain, const Json& measured, int devices_per_node);
void set_measured(NetworkSpec& network, const Json& measured);

}  // namespace foretrain
