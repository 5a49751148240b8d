#include "sim/placement.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

// `ranks` of a group on a node that `groups` groups leave. Above the leaves the tree is thinner.
double line_rate(std::int64_t ranks, std::int64_t groups, std::int64_t devices_per_node, const NetworkSpec& network,
                 bool leaves_leaf) {
    const double nic = network.nic.gigabytes(), nics = network.nics_per_node;
    const double own = static_cast<double>(ranks) * std::max(1.0, nics / static_cast<double>(devices_per_node));
    return std::min(nic * std::min(nics, own), nics * nic / static_cast<double>(groups)) /
           (leaves_leaf ? network.oversubscription : 1);
}

// Do two nodes hang at different leaves?
bool apart(std::int64_t a, std::int64_t b, const NetworkSpec& network) {
    return network.leaf_nodes <= 0 || a / network.leaf_nodes != b / network.leaf_nodes;
}

// Does one of the groups that fill blocks of `span` nodes, one after the other, lie across leaves?
bool some_apart(std::int64_t span, std::int64_t nodes, const NetworkSpec& network) {
    return network.leaf_nodes <= 0 || (nodes > network.leaf_nodes && network.leaf_nodes % span != 0);
}

// Neighbours fill whole nodes, or each stands on a node of its own: all groups are alike. False if
// they need not be.
bool place_evenly(std::int64_t ranks, std::int64_t stride, std::int64_t world, std::int64_t devices,
                  const NetworkSpec& network, GroupPlacement& place) {
    const std::int64_t span = ranks * stride;
    const bool leaves = some_apart(ceil_div(span, devices), ceil_div(world, devices), network);
    if (stand_inside(span, devices)) {
        place = {ranks, 1, ranks, 0};
    } else if (stride % devices == 0) {
        place = {ranks, ranks, 1, line_rate(1, devices, devices, network, leaves)};
    } else if (devices % stride == 0 && span % devices == 0) {
        const std::int64_t per_node = devices / stride;
        place = {ranks, ranks / per_node, per_node, line_rate(per_node, stride, devices, network, leaves)};
    } else {
        return false;
    }
    return true;
}

// Calls visit(node, ranks of the group on it) for the group of `count` ranks `first`, `first + stride`, ...
template <class Visit>
void for_each_node(std::int64_t first, std::int64_t stride, std::int64_t count, std::int64_t devices, Visit visit) {
    for (std::int64_t i = 0; i < count;) {
        const std::int64_t node = (first + i * stride) / devices;
        std::int64_t end = i + 1;
        while (end < count && (first + end * stride) / devices == node) ++end;
        visit(node, end - i);
        i = end;
    }
}

std::vector<GroupPlacement> place_one_by_one(const RankGrid& grid, Axis axis, std::int64_t devices,
                                             const NetworkSpec& network) {
    const std::int64_t ranks = grid.size(axis), stride = grid.stride(axis);
    // The embedding pair exists once for each rank of the first stage only.
    const std::int64_t candidates = axis == Axis::embedding ? grid.stride(Axis::pipeline) : grid.world();
    std::vector<std::int64_t> first;
    for (std::int64_t r = 0; r < candidates; ++r)
        if (grid.coordinate(r, axis) == 0) first.push_back(r);

    std::vector<std::int64_t> leaving(static_cast<std::size_t>(grid.world() / devices + 1));  // groups, by node
    for (const std::int64_t r : first) {
        if (r / devices == (r + (ranks - 1) * stride) / devices) continue;
        for_each_node(r, stride, ranks, devices,
                      [&](std::int64_t node, std::int64_t) { ++leaving[static_cast<std::size_t>(node)]; });
    }
    std::vector<GroupPlacement> distinct;
    for (const std::int64_t r : first) {
        GroupPlacement place{ranks, 0, 0, 0};
        const bool leaves = apart(r / devices, (r + (ranks - 1) * stride) / devices, network);
        for_each_node(r, stride, ranks, devices, [&](std::int64_t node, std::int64_t here) {
            const std::int64_t groups = std::max<std::int64_t>(1, leaving[static_cast<std::size_t>(node)]);
            const double rate = line_rate(here, groups, devices, network, leaves);
            place.line_gbps = place.nodes == 0 ? rate : std::min(place.line_gbps, rate);
            place.per_node = std::max(place.per_node, here);
            ++place.nodes;
        });
        if (place.nodes == 1) place.line_gbps = 0;
        if (std::find(distinct.begin(), distinct.end(), place) == distinct.end()) distinct.push_back(place);
    }
    return distinct;
}

}  // namespace

std::vector<GroupPlacement> placements(const RankGrid& grid, Axis axis, std::int64_t devices_per_node,
                                       const NetworkSpec& network) {
    const std::int64_t ranks = grid.size(axis);
    if (ranks <= 1) return {GroupPlacement{}};
    GroupPlacement place;
    if (place_evenly(ranks, grid.stride(axis), grid.world(), devices_per_node, network, place)) return {place};
    return place_one_by_one(grid, axis, devices_per_node, network);
}

// What the group may use, but no more than reaches one device.
double rank_line_gbps(const GroupPlacement& group, std::int64_t devices_per_node, const NetworkSpec& network) {
    const double own =
        std::max(1.0, static_cast<double>(network.nics_per_node) / static_cast<double>(devices_per_node));
    return std::min(group.line_gbps, network.nic.gigabytes() * own);
}

double message_line_gbps(const RankGrid& grid, std::int64_t stage, std::int64_t peer, std::int64_t devices_per_node,
                         const NetworkSpec& network) {
    const std::int64_t ranks = grid.stride(Axis::pipeline);
    FORETRAIN_CHECK(stage >= 0 && stage < grid.pipeline && peer >= 0 && peer < grid.pipeline, "no such stage");
    const auto node_of = [&](std::int64_t s, std::int64_t i) { return (s * ranks + i) / devices_per_node; };
    bool leaves = false;
    if (ranks % devices_per_node == 0) {
        for (std::int64_t i = 0; i < ranks && !leaves; i += devices_per_node)
            leaves = apart(node_of(stage, i), node_of(peer, i), network);
        return line_rate(1, devices_per_node, devices_per_node, network, leaves);
    }
    // The fullest node decides: it has the most messages for its NICs.
    std::int64_t most = 0, here = 0, node = -1;
    for (std::int64_t i = 0; i < ranks; ++i) {
        const std::int64_t from = node_of(stage, i), to = node_of(peer, i);
        if (from != node) here = 0;
        node = from;
        if (from == to) continue;
        most = std::max(most, ++here);
        leaves = leaves || apart(from, to, network);
    }
    return most == 0 ? 0 : line_rate(1, most, devices_per_node, network, leaves);
}

}  // namespace foretrain
