// Where the groups of an axis stand on the machines, and what of the network each may use.
//
// Ranks fill nodes in order, so a group's ranks per node follow from the axis' stride and size. All
// groups of an axis communicate at once (slices of the same layer, of the same gradient), so those
// that leave a node share its NICs:
//
//   line rate of a group = min(nic min(nics, g max(1, nics/devices)), nics nic / k)
//
// with g its ranks on the node and k the groups that leave it: each rank reaches its own NICs at most,
// and the node has no more than it has. Groups that lie across leaves of the network's tree divide by its
// oversubscription. A group is held to its weakest node.
//
//   placements({.tensor = 8, .data = 4}, Axis::data, 8, network)
//       == {{.ranks = 4, .nodes = 4, .per_node = 1, .line_gbps = nic}}
#pragma once

#include <cstdint>
#include <vector>

#include "hardware/cluster_spec.h"
#include "hardware/collective_time.h"
#include "plan/rank_grid.h"

namespace foretrain {

// The distinct placements among the axis' groups: one where the axis fits the nodes evenly, more
// where some groups straddle nodes and others do not.
std::vector<GroupPlacement> placements(const RankGrid& grid, Axis axis, std::int64_t devices_per_node,
                                       const NetworkSpec& network);

// The line rate of one rank of the group that alone sends out of its node, as in a ring, GB/s; 0 inside a node.
double rank_line_gbps(const GroupPlacement& group, std::int64_t devices_per_node, const NetworkSpec& network);

// The line rate of one rank's message from `stage` to `peer` when the whole stage sends, GB/s; 0 if
// every rank finds its peer on its own node.
double message_line_gbps(const RankGrid& grid, std::int64_t stage, std::int64_t peer, std::int64_t devices_per_node,
                         const NetworkSpec& network);

}  // namespace foretrain
