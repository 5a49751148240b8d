#include "sim/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace foretrain {
namespace {

NetworkSpec network(int nics, double gigabytes) {
    NetworkSpec n;
    n.nics_per_node = nics;
    n.nic = Bandwidth::gigabytes(gigabytes);
    return n;
}
GroupPlacement only(const RankGrid& grid, Axis axis, const NetworkSpec& n) {
    const auto all = placements(grid, axis, 8, n);
    EXPECT_EQ(all.size(), 1U);
    return all.front();
}

TEST(Placement, AGroupInsideANodeUsesNoNetwork) {
    EXPECT_EQ(only({.tensor = 4, .data = 8}, Axis::tensor, network(8, 50)), (GroupPlacement{4, 1, 4, 0}));
    EXPECT_EQ(only({.tensor = 2, .data = 4, .pipeline = 8}, Axis::data, network(8, 50)), (GroupPlacement{4, 1, 4, 0}));
    EXPECT_EQ(only({.tensor = 2}, Axis::data, network(8, 50)), (GroupPlacement{1, 1, 1, 0}));
}

// Line rates per node when all groups of the axis communicate at once: 4 NICs of 12.5 GB/s are 6.25
// for each of 8 ranks, and so on; with a NIC for each device neighbours do not disturb each other.
TEST(Placement, GroupsShareTheNodesNics) {
    const auto line = [](std::int64_t tensor, int nics, double gigabytes) {
        return only({.tensor = tensor, .data = 64}, Axis::data, network(nics, gigabytes)).line_gbps;
    };
    for (const auto& [nics, gigabytes, per_rank] :
         {std::tuple{4, 12.5, 6.25}, {4, 25.0, 12.5}, {8, 25.0, 25.0}, {8, 50.0, 50.0}, {1, 50.0, 6.25}}) {
        EXPECT_DOUBLE_EQ(line(8, nics, gigabytes), per_rank);
        EXPECT_DOUBLE_EQ(line(4, nics, gigabytes), 2 * per_rank);
        EXPECT_DOUBLE_EQ(line(2, nics, gigabytes), 4 * per_rank);
        EXPECT_DOUBLE_EQ(line(1, nics, gigabytes), 8 * per_rank);
    }
}

TEST(Placement, CountsNodesAndRanksPerNode) {
    const NetworkSpec n = network(8, 50);
    EXPECT_EQ(only({.tensor = 8, .data = 4}, Axis::data, n), (GroupPlacement{4, 4, 1, 50}));
    EXPECT_EQ(only({.tensor = 2, .data = 16}, Axis::data, n), (GroupPlacement{16, 4, 4, 200}));
    EXPECT_EQ(only({.tensor = 16, .data = 2}, Axis::tensor, n), (GroupPlacement{16, 2, 8, 400}));
    EXPECT_EQ(only({.tensor = 4, .context = 4}, Axis::context, n), (GroupPlacement{4, 2, 2, 100}));
    EXPECT_EQ(only({.tensor = 8, .data = 2, .pipeline = 4}, Axis::embedding, n), (GroupPlacement{2, 2, 1, 50}));
}

// A shard group may fill a node that the whole of the replicas leaves; those that hold the same part are one a
// node then, and share its NICs.
TEST(Placement, ShardGroupsStayCloserThanTheReplicas) {
    const NetworkSpec n = network(4, 25);
    const RankGrid grid{.tensor = 2, .context = 2, .data = 8, .shard = 4};
    EXPECT_EQ(only(grid, Axis::replica, n), (GroupPlacement{16, 4, 4, 50}));
    EXPECT_EQ(only(grid, Axis::shard, n), (GroupPlacement{4, 1, 4, 0}));
    EXPECT_EQ(only(grid, Axis::replicate, n), (GroupPlacement{4, 4, 1, 12.5}));
    const RankGrid two_nodes{.tensor = 2, .data = 16, .shard = 8};
    EXPECT_EQ(only(two_nodes, Axis::shard, n), (GroupPlacement{8, 2, 4, 50}));
    EXPECT_EQ(only(two_nodes, Axis::replicate, n), (GroupPlacement{2, 2, 1, 12.5}));
}

// Context and data together are as far apart as both.
TEST(Placement, ReplicasSpanContextAndData) {
    const NetworkSpec n = network(8, 50);
    EXPECT_EQ(only({.tensor = 2, .context = 4, .data = 4}, Axis::context, n), (GroupPlacement{4, 1, 4, 0}));
    EXPECT_EQ(only({.tensor = 2, .context = 4, .data = 4}, Axis::replica, n), (GroupPlacement{16, 4, 4, 200}));
}

// Around a ring one rank of each node sends out: over its own NICs, if all groups together leave it those.
TEST(Placement, ARingLeavesANodeOverOneRanksLine) {
    const auto line = [](std::int64_t tensor, int nics) {
        const NetworkSpec n = network(nics, 50);
        return rank_line_gbps(only({.tensor = tensor, .context = 16 / tensor}, Axis::context, n), 8, n);
    };
    EXPECT_DOUBLE_EQ(line(1, 8), 50);
    EXPECT_DOUBLE_EQ(line(4, 8), 50);
    EXPECT_DOUBLE_EQ(line(1, 4), 50);  // two devices share a NIC, of which one sends
    EXPECT_DOUBLE_EQ(line(8, 4), 25);  // all eight send
    EXPECT_DOUBLE_EQ(line(1, 16), 100);
    EXPECT_DOUBLE_EQ(rank_line_gbps({4, 1, 4, 0}, 8, network(8, 50)), 0);
}

TEST(Placement, OversubscriptionDividesTheLineRate) {
    NetworkSpec n = network(8, 50);
    n.oversubscription = 2;
    EXPECT_EQ(only({.tensor = 8, .data = 4}, Axis::data, n), (GroupPlacement{4, 4, 1, 25}));
}

// Leaves of two nodes: groups on nodes 0-1 and 2-3 have the full rate, those over four nodes half of it.
TEST(Placement, GroupsWithinALeafHaveTheFullRate) {
    NetworkSpec n = network(8, 50);
    n.oversubscription = 2;
    n.leaf_nodes = 2;
    const RankGrid grid{.tensor = 8, .data = 2, .pipeline = 2};
    EXPECT_EQ(only(grid, Axis::data, n), (GroupPlacement{2, 2, 1, 50}));
    EXPECT_EQ(only(grid, Axis::pipeline, n), (GroupPlacement{2, 2, 1, 25}));
    EXPECT_DOUBLE_EQ(message_line_gbps(grid, 0, 1, 8, n), 25);
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 8, .pipeline = 4}, 0, 1, 8, n), 50);
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 8, .pipeline = 4}, 1, 2, 8, n), 25);
    n.leaf_nodes = 3;  // nodes 2-3 lie across leaves
    EXPECT_EQ(only(grid, Axis::data, n), (GroupPlacement{2, 2, 1, 25}));
    n.leaf_nodes = 4;
    EXPECT_EQ(only(grid, Axis::pipeline, n), (GroupPlacement{2, 2, 1, 50}));
}

// Six tensor ranks on nodes of eight: ranks 0-5 share a node, 6-11 stand 2 + 4, 12-17 stand 4 + 2,
// 18-23 share a node. Node 1 holds four ranks each of two groups that leave it; the pair on node 0
// has two NICs to itself: 100 GB/s, the weakest node of that group.
TEST(Placement, StraddlingGroupsAreFoundOneByOne) {
    const auto all = placements({.tensor = 6, .data = 4}, Axis::tensor, 8, network(8, 50));
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0], (GroupPlacement{6, 1, 6, 0}));
    EXPECT_EQ(all[1], (GroupPlacement{6, 2, 4, 100}));
}

TEST(Placement, ASmallerNodeThanTheWorldEndsInAPartialOne) {
    // 12 data ranks on nodes of eight: 8 + 4, and the four have half the node's NICs
    EXPECT_EQ(only({.data = 12}, Axis::data, network(8, 50)), (GroupPlacement{12, 2, 8, 200}));
    // stages of four: the first and the last of four stages are a node apart, four pairs at once
    EXPECT_EQ(only({.tensor = 4, .pipeline = 4}, Axis::embedding, network(4, 50)), (GroupPlacement{2, 2, 1, 50}));
    // two stages of four share a node
    EXPECT_EQ(only({.tensor = 4, .pipeline = 2}, Axis::embedding, network(4, 50)), (GroupPlacement{2, 1, 2, 0}));
}

// Nodes and ranks per node against counting the members of every group.
TEST(Placement, AgreesWithCounting) {
    for (const std::int64_t t : {1, 2, 3, 8, 12})
        for (const std::int64_t d : {1, 2, 3, 4, 16})
            for (const std::int64_t p : {1, 2, 3, 8})
                for (const Axis axis : {Axis::tensor, Axis::data, Axis::pipeline, Axis::embedding}) {
                    const RankGrid grid{.tensor = t, .data = d, .pipeline = p};
                    std::set<std::pair<std::int64_t, std::int64_t>> counted, placed;
                    for (std::int64_t r = 0; r < grid.world(); ++r) {
                        std::map<std::int64_t, std::int64_t> on_node;
                        for (const std::int64_t member : grid.members(r, axis)) ++on_node[member / 8];
                        std::int64_t most = 0;
                        for (const auto& [node, ranks] : on_node) most = std::max(most, ranks);
                        counted.emplace(static_cast<std::int64_t>(on_node.size()), most);
                    }
                    for (const GroupPlacement& g : placements(grid, axis, 8, network(8, 50)))
                        placed.emplace(g.nodes, g.per_node);
                    EXPECT_EQ(placed, counted) << t << ' ' << d << ' ' << p << ' ' << name_of(axis);
                }
}

TEST(Placement, MessagesLeaveTheNodeWhereStagesDo) {
    const NetworkSpec n = network(4, 50);
    // stages of eight fill nodes: eight ranks share four NICs
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 8, .pipeline = 4}, 1, 2, 8, n), 25);
    // stages of four: 0 and 1 share a node, 1 and 2 do not and have a NIC for each rank
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 4, .pipeline = 4}, 0, 1, 8, n), 0);
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 4, .pipeline = 4}, 1, 2, 8, n), 50);
    // stages of six: of ranks 0-5 only 2-5 find their peers on the next node
    EXPECT_DOUBLE_EQ(message_line_gbps({.tensor = 6, .pipeline = 4}, 0, 1, 8, network(2, 50)), 25);
}

}  // namespace
}  // namespace foretrain
