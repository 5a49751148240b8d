#include "plan/rank_grid.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace foretrain {
namespace {

using Ranks = std::vector<std::int64_t>;

TEST(RankGrid, OrdersTensorThenDataThenPipeline) {
    const RankGrid g{.tensor = 2, .data = 4, .pipeline = 2};
    EXPECT_EQ(g.world(), 16);
    EXPECT_EQ(g.members(5, Axis::tensor), (Ranks{4, 5}));
    EXPECT_EQ(g.members(5, Axis::data), (Ranks{1, 3, 5, 7}));
    EXPECT_EQ(g.members(5, Axis::pipeline), (Ranks{5, 13}));
    EXPECT_EQ(g.members(5, Axis::none), (Ranks{5}));
    EXPECT_EQ(g.rank_in_stage(5, 1), 13);
    EXPECT_THROW(g.members(16, Axis::data), InternalError);
}

// Megatron-LM's data-parallel group with context parallelism: contiguous, in tensor order.
TEST(RankGrid, ReplicasAreContextAndDataTogether) {
    const RankGrid g{.tensor = 2, .context = 2, .data = 2, .pipeline = 2};
    EXPECT_EQ(g.members(5, Axis::context), (Ranks{5, 7}));
    EXPECT_EQ(g.members(5, Axis::data), (Ranks{1, 5}));
    EXPECT_EQ(g.members(5, Axis::replica), (Ranks{1, 3, 5, 7}));
    EXPECT_EQ(g.members(15, Axis::replica), (Ranks{9, 11, 13, 15}));
    EXPECT_EQ(g.coordinate(13, Axis::replica), 2);
}

// Megatron-LM's partial data-parallel groups, PyTorch's mesh (replicate, shard): consecutive replicas share out.
TEST(RankGrid, ReplicasShardInPartsThatHoldTheSame) {
    RankGrid g{.tensor = 2, .context = 2, .data = 4, .pipeline = 2, .shard = 4};
    EXPECT_EQ(g.members(21, Axis::shard), (Ranks{17, 19, 21, 23}));
    EXPECT_EQ(g.members(21, Axis::replicate), (Ranks{21, 29}));
    EXPECT_EQ(g.coordinate(29, Axis::shard), 2);
    EXPECT_EQ(g.coordinate(29, Axis::replicate), 1);
    g.shard = 0;  // all of them
    for (std::int64_t r = 0; r < g.world(); ++r) {
        EXPECT_EQ(g.members(r, Axis::shard), g.members(r, Axis::replica));
        EXPECT_EQ(g.members(r, Axis::replicate), Ranks{r});
    }
}

TEST(RankGrid, TheEmbeddingGroupIsFirstAndLastStage) {
    const RankGrid g{.tensor = 2, .pipeline = 3};
    EXPECT_EQ(g.members(1, Axis::embedding), (Ranks{1, 5}));
    EXPECT_EQ(g.members(5, Axis::embedding), (Ranks{1, 5}));
    EXPECT_EQ((RankGrid{.tensor = 2}.members(1, Axis::embedding)), (Ranks{1}));
}

TEST(RankGrid, TheGroupsOfAnAxisPartTheWorld) {
    const RankGrid g{.tensor = 3, .context = 2, .data = 2, .pipeline = 4, .shard = 2};
    for (Axis axis :
         {Axis::tensor, Axis::context, Axis::data, Axis::replica, Axis::shard, Axis::replicate, Axis::pipeline}) {
        std::set<Ranks> groups;
        for (std::int64_t r = 0; r < g.world(); ++r) {
            const Ranks members = g.members(r, axis);
            EXPECT_EQ(members[static_cast<std::size_t>(g.coordinate(r, axis))], r);
            groups.insert(members);
        }
        EXPECT_EQ(static_cast<std::int64_t>(groups.size()) * g.size(axis), g.world()) << name_of(axis);
        EXPECT_EQ(axis_from_name(name_of(axis)), axis);
    }
    EXPECT_EQ(axis_from_name("x"), std::nullopt);
}

}  // namespace
}  // namespace foretrain
