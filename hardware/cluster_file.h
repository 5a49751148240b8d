// Reading and writing a cluster: a preset by name, or a file (format "foretrain.cluster/1").
//
//   ClusterSpec c = read_cluster("dgx-h100");
//   scale_to_nodes(c, 2);
//
// A file states a cluster whole, or names the preset that it is "like" and what differs:
//   {"like": "dgx-h100", "network": {"fabric": "roce", "nics_per_node": 4, "oversubscription": 2, "leaf_nodes": 16}}
// Links by name: hardware/links.h. Measured bandwidths: hardware/measured.h. The short form:
// hardware/short_form.h.
//
// Errors: UserError (unknown preset with the nearest name, unknown key, figure out of range).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace foretrain {

ClusterSpec read_cluster(const std::string& name_or_file);
ClusterSpec cluster_from_json(const Json& value);  // a name, a path relative to the value's file, or an object
Json cluster_to_json(const ClusterSpec& cluster);

// `--nodes N`, `--gpus N`. A count that fills no whole number of nodes is refused, except one
// below a single node, which gives a smaller node. Racks that are one domain (NVL72) may be used in
// part: 256 devices are 64 of each of four.
void scale_to_nodes(ClusterSpec& cluster, std::int64_t nodes);
void scale_to_devices(ClusterSpec& cluster, std::int64_t devices);

std::vector<std::string> cluster_preset_names();

}  // namespace foretrain
