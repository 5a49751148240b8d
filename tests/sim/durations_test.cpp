// What computing loses to a collective beside it, with sums that a person can do: at a share of 200 per mille it
// goes on at a pace of 0.8, so what takes 8 us alone takes 10 beside the collective, and loses 2 at most.
#include "sim/durations.h"

#include <gtest/gtest.h>

#include <optional>

namespace foretrain {
namespace {

constexpr std::int16_t fifth = 200;

Time us(double t) { return from_microseconds(t); }

Instruction of_kind(InstructionKind kind) {
    Instruction i;
    i.kind = kind;
    return i;
}

Instruction stall_beside(InstructionKind collective) {
    Instruction i = of_kind(InstructionKind::stall);
    i.like = collective;
    i.axis = Axis::replica;
    i.share = fifth;
    i.count = 1 << 20;
    return i;
}

// Two stages of two data ranks on a node, where a collective takes `collective_us` whatever it moves, as does a
// message.
class Durations : public testing::Test {
protected:
    void with_collectives_of(double collective_us) {
        ClusterSpec cluster;
        cluster.devices_per_node = 4;
        cluster.device.peak[DType::bf16] = FlopRate::tera(1);
        cluster.device.memory_bandwidth = Bandwidth::gigabytes(1);
        cluster.domain.ring_gbps = cluster.domain.pairwise_gbps = 1e15;
        cluster.domain.simple_from = Bytes{GiB};
        cluster.domain.a_us = cluster.domain.pairwise_a_us = collective_us;
        cost_.emplace(cluster, RankGrid{.data = 2, .pipeline = 2});
        ASSERT_EQ(cost_->collective(InstructionKind::all_gather, Axis::replica, Bytes{8 << 20}), us(collective_us));
        durations_.begin_stage(kernels_, 0, 1);
    }

    void compute(double t) { durations_.took(of_kind(InstructionKind::kernel), us(t)); }
    Time take(const Instruction& i) { return durations_.of(i, *cost_); }
    Time lose_to(InstructionKind collective) { return take(stall_beside(collective)); }

    std::optional<CostModel> cost_;
    std::vector<KernelArgs> kernels_;
    InstructionDurations durations_;
};

TEST_F(Durations, WhatIsLostIsBoundedByWhatIsComputedMeanwhile) {
    with_collectives_of(100);
    compute(8);
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(2)) << "of 10 us beside the collective, not a fifth of its 100";
}

TEST_F(Durations, AShortCollectiveTakesItsShareOnly) {
    with_collectives_of(5);
    compute(8);
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(1));
}

TEST_F(Durations, NothingIsLostTwice) {
    with_collectives_of(100);
    compute(8);
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(2));
    EXPECT_EQ(lose_to(InstructionKind::all_gather), Time{0}) << "nothing was computed since";
    EXPECT_EQ(lose_to(InstructionKind::reduce_scatter), us(2)) << "reductions run beside gathers, and count apart";
    compute(4);
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(1));
}

// They take what they take, whatever was computed before, and end nothing: a collective goes on beside them.
TEST_F(Durations, StallsForMessagesNeitherLoseNorStartAnew) {
    with_collectives_of(100);
    Instruction share = stall_beside(InstructionKind::ring_shift);
    share.axis = Axis::pipeline;
    EXPECT_EQ(take(share), us(20)) << "a fifth of a message, though nothing was computed";
    take(of_kind(InstructionKind::wait));
    compute(4);
    Instruction each = of_kind(InstructionKind::stall);
    each.axis = Axis::pipeline;
    each.count = us(4).value;
    EXPECT_EQ(take(each), us(4));
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(2)) << "both its 4 us and those before it ran beside";
}

TEST_F(Durations, AWaitStartsAnew) {
    with_collectives_of(100);
    compute(8);
    EXPECT_EQ(take(of_kind(InstructionKind::wait)), Time{0});
    EXPECT_EQ(lose_to(InstructionKind::all_gather), Time{0}) << "what was computed before is another pass'";
    compute(4);
    EXPECT_EQ(lose_to(InstructionKind::all_gather), us(1));
}

TEST(MostLost, IsWhatAPaceOfTheRestLosesToIt) {
    EXPECT_EQ(most_lost(us(8), fifth), us(2));
    EXPECT_EQ(most_lost(us(10), 500), us(10));
    EXPECT_EQ(most_lost(us(8), 0), Time{0});
    EXPECT_EQ(most_lost(us(8), Instruction::whole), Time{INT64_MAX}) << "nothing is computed beside it";
}

}  // namespace
}  // namespace foretrain
