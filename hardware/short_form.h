// The short form of a cluster, for whoever knows what was bought and not how it was measured: the
// device's own system (DeviceSpec::system), with the links and the line rate that the form states.
//
//   {"gpu": "a100-sxm-80gb", "gpus": 64, "gpus_per_node": 8, "intra_node": "nvlink3",
//    "inter_node_gbps_per_node": 800}
//
// `intra_node` names a link (hardware/links.h), "nvlink" or "pcie" the system's own of that kind.
// The rate between nodes has to be stated where there are several. A file without a `name` is called as
// the file is. `fabric`, `oversubscription` and `leaf_nodes` may be added, as in the long form.
#pragma once

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace foretrain {

inline bool is_short_form(const Json& value) { return value.has("gpu"); }
ClusterSpec cluster_from_short_form(const Json& value);

}  // namespace foretrain
