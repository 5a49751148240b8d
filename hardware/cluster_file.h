// Reading and writing a cluster: a preset by name, or a file (format "foretrain.cluster/1").
//
//   ClusterSpec c = read_cluster("dgx-h100");
//   scale_to_nodes(c, 2);
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
// below a single node, which gives a smaller node.
void scale_to_nodes(ClusterSpec& cluster, std::int64_t nodes);
void scale_to_devices(ClusterSpec& cluster, std::int64_t devices);

std::vector<std::string> cluster_preset_names();
std::vector<std::string> device_preset_names();

}  // namespace foretrain
