#include "hardware/collective_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/units.h"
#include "hardware/cluster_file.h"

namespace foretrain {
namespace {

constexpr auto all_reduce = Collective::all_reduce;
constexpr auto all_gather = Collective::all_gather;
constexpr auto reduce_scatter = Collective::reduce_scatter;

// As nccl-tests defines it, GB/s.
double bus(Collective kind, std::int64_t bytes, std::int64_t ranks, double us) {
    const double n = static_cast<double>(ranks);
    const double volume = (kind == all_reduce ? 2 : 1) * (n - 1) / n;
    return volume * static_cast<double>(bytes) / us / 1e3;
}
double bus_in_node(Collective kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    return bus(kind, bytes, ranks, domain_collective_us(kind, bytes, ranks, d));
}
// A group of all ranks on nodes of eight, with all of a node's NICs.
GroupPlacement placed(std::int64_t ranks, const NetworkSpec& network) {
    if (ranks <= 8) return {.ranks = ranks, .nodes = 1, .per_node = ranks};
    return {.ranks = ranks, .nodes = ranks / 8, .per_node = 8, .line_gbps = 8 * network.nic.gigabytes()};
}
double bus_across(std::int64_t bytes, std::int64_t nodes, const ClusterSpec& c) {
    const GroupPlacement g = placed(8 * nodes, c.network);
    return bus(all_reduce, bytes, g.ranks, collective_us(all_reduce, bytes, g, c.domain, c.network.constants));
}

TEST(AllToAll, SendsEachPartInTurn) {
    // 4 ranks, parts of 1 MB at 2 GB/s: three parts of 500 us, d once more, a + s for two doublings, p in full
    DomainConstants d{
        .pairwise_gbps = 2, .pairwise_a_us = 10, .pairwise_p_us = 4, .pairwise_s_us = 3, .pairwise_d = 0.5, .born = {}};
    EXPECT_DOUBLE_EQ(domain_all_to_all_us(4000000, 4, d), 10 + 2 * 3 + 4 + 1500 + 250);
    d.pairwise_ramp_us = 6;
    EXPECT_DOUBLE_EQ(domain_all_to_all_us(4000000, 4, d), 10 + 2 * 3 + 4 + 1500 + 250 + 94.86832980505137);
    EXPECT_DOUBLE_EQ(collective_us(Collective::all_to_all, 4000000, {4, 1, 4, 0}, d, {}),
                     domain_all_to_all_us(4000000, 4, d));
}

// Four ranks on two nodes with a line of 20 GB/s: each sends two of its parts of 9 MB over its half of the
// line at 0.9 of it, and meanwhile one at 2 GB/s inside.
TEST(AllToAll, AcrossNodesTheSlowerOfLineAndDomainDecides) {
    DomainConstants d{.pairwise_gbps = 20, .born = {}};
    const GroupPlacement two_nodes{4, 2, 2, 20};
    const double ramp = 264.57513110645908;  // sqrt(35 * 2000)
    EXPECT_NEAR(network_all_to_all_us(36000000, two_nodes, d), 20 + 3 * 0.6 + 2000 + ramp, 1e-6);
    d.pairwise_gbps = 2;
    EXPECT_NEAR(network_all_to_all_us(36000000, two_nodes, d), 20 + 3 * 0.6 + 4500 + ramp, 1e-6);
}

TEST(RingShift, CostsItsSlowestHop) {
    const DomainConstants d{.pairwise_gbps = 2, .pairwise_a_us = 10, .born = {}};
    const NetworkConstants n{.p2p_us = 12, .p2p_efficiency = 0.5, .born = {}};
    EXPECT_DOUBLE_EQ(ring_shift_us(1000000, {1, 1, 1, 0}, 0, d, n), 0);
    EXPECT_DOUBLE_EQ(ring_shift_us(1000000, {4, 1, 4, 0}, 0, d, n), 510);
    EXPECT_DOUBLE_EQ(ring_shift_us(1000000, {4, 2, 2, 8}, 4, d, n), 512);  // 12 + 500 across, 510 inside
    EXPECT_DOUBLE_EQ(ring_shift_us(1000000, {4, 2, 2, 80}, 40, d, n), 510);
    EXPECT_DOUBLE_EQ(ring_shift_us(1000000, {2, 2, 1, 40}, 40, d, n), 62);  // nobody inside
}

TEST(Ring, IsStepsOfAChunk) {
    // 4 ranks, 4 MB in chunks of 1 MB at 1 GB/s: 3 or 6 steps of 1000 us. The first step again with d,
    // latency a + s for each step, and sqrt(x T) of ramp.
    DomainConstants d{
        .ring_gbps = 1, .a_us = 10, .s_us = 2, .d = 0.5, .ramp_us = 0, .simple_from = Bytes{GiB}, .born = {}};
    EXPECT_DOUBLE_EQ(ring_us(all_gather, 4000000, 4, d), 10 + 3 * 2 + 3000 + 500);
    EXPECT_DOUBLE_EQ(ring_us(reduce_scatter, 4000000, 4, d), 10 + 3 * 2 + 3000 + 500);
    EXPECT_DOUBLE_EQ(ring_us(all_reduce, 4000000, 4, d), 10 + 6 * 2 + 6000 + 500);
    d.ramp_us = 12;
    EXPECT_DOUBLE_EQ(ring_us(all_gather, 4000000, 4, d), 10 + 3 * 2 + 3000 + 500 + 189.73665961010276);
}

TEST(Ring, LongStepsOfTheSimpleProtocolShowInSmallChunks) {
    // From the threshold on: (t^4 + (a + s_simple steps)^4)^(1/4) with t = 3 us and a floor of 4 us
    const DomainConstants d{.ring_gbps = 1, .simple_s_us = 4, .simple_from = Bytes{3000}, .born = {}};
    EXPECT_NEAR(ring_us(all_gather, 6000, 2, d), 4.284572294953817, 1e-9);
    EXPECT_DOUBLE_EQ(ring_us(all_gather, 5998, 2, d), 2.999);
}

// Times n the threshold would not fit in 64 bits, and wrap to one that every chunk exceeds.
TEST(Ring, AThresholdBeyondAllSizesIsNeverReached) {
    DomainConstants d{.ring_gbps = 1, .simple_s_us = 1e6, .born = {}};
    d.simple_from = Bytes{std::numeric_limits<std::int64_t>::max() / 2 + 1};
    EXPECT_DOUBLE_EQ(ring_us(all_gather, 4000, 4, d), 3);
}

TEST(Switch, HalvesWhatARankSends) {
    const DomainConstants d{
        .ring_gbps = 1, .nvls_ranks = 4, .nvls_gbps = 1, .nvls_a_us = 7, .nvls_ramp_us = 0, .born = {}};
    EXPECT_DOUBLE_EQ(switch_all_reduce_us(4000000, 4, d), 7 + 5000);
    EXPECT_DOUBLE_EQ(domain_collective_us(all_reduce, 4000000, 4, d), 5007);
    EXPECT_DOUBLE_EQ(domain_collective_us(all_reduce, 3000000, 3, d), 4000) << "a ring: the switch needs four";
    EXPECT_DOUBLE_EQ(domain_collective_us(all_gather, 4000000, 4, d), 3000) << "only all-reduce is reduced";
    EXPECT_DOUBLE_EQ(domain_collective_us(all_reduce, 400000, 4, d), 600) << "a ring below 1 MiB";
}

TEST(Message, PaysASetUpThatGrowsToItsWindow) {
    const DomainConstants d{
        .pairwise_gbps = 1, .pairwise_a_us = 5, .pairwise_p_us = 8, .pairwise_ramp_us = 0, .born = {}};
    EXPECT_DOUBLE_EQ(domain_message_us(32768, d), 5 + 4 + 32.768);
    EXPECT_DOUBLE_EQ(domain_message_us(655360, d), 5 + 8 + 655.36);
    EXPECT_DOUBLE_EQ(network_message_us(940000, 1, NetworkConstants{}), 12 + 1000);
}

TEST(Network, RingSumsItsSteps) {
    // 16 ranks on 2 nodes, 16 MB: 15 steps, one of them across; x = 15 MB / (0.5 * 2 GB/s)
    NetworkConstants n;
    n.efficiency = 0.5;
    const DomainConstants d{.ring_gbps = 100, .born = {}};
    const GroupPlacement g{.ranks = 16, .nodes = 2, .per_node = 8, .line_gbps = 2};
    EXPECT_DOUBLE_EQ(network_ring_us(16000000, g, d, n), 6.8 + 14 * 3.4 + 17 + 15000);
    // Chunks of 1,000 bytes: the protocol that sends flags with the data, at four times the volume
    EXPECT_DOUBLE_EQ(network_ring_us(16000, g, d, n), std::min(6.8 + 14 * 3.4 + 17 + 15, 6.8 + 14 * 0.85 + 5 + 60));
}

TEST(Network, AllReduceSumsItsTerms) {
    // 4 nodes of one rank: log2 N = 2, x = 1.5 S / (0.92 * 10 GB/s), S = 0.3 MiB halves l1
    NetworkConstants n;
    n.ramp_us = 0;
    n.k_us = 0;
    const double s = 0.3 * MiB;
    const GroupPlacement g{.ranks = 4, .nodes = 4, .per_node = 1, .line_gbps = 10};
    EXPECT_NEAR(network_all_reduce_us(static_cast<std::int64_t>(s), g, {}, n),
                6.8 + 2 * 2 * 5 + 1.5 * s / 9.2e3 + 2 * 25, 1e-3);
}

TEST(Collective, OfOneRankOrNoBytesIsFree) {
    EXPECT_EQ(collective_us(all_reduce, 1000, {}, {}, {}), 0);
    EXPECT_EQ(collective_us(all_reduce, 0, {.ranks = 8, .nodes = 1, .per_node = 8}, {}, {}), 0);
}

// Peaks that NVIDIA's GTC 2024 slides and nccl-tests logs state: A100 232, H100 ring 360 to 370,
// H100 with switch reduction 480, 8 x HDR 192, 8 x NDR 370 to 380, two p5 nodes 487.
TEST(Anchors, BusBandwidths) {
    const ClusterSpec a = read_cluster("dgx-a100"), h = read_cluster("dgx-h100");
    EXPECT_NEAR(bus_in_node(all_reduce, GiB, 8, a.domain), 225, 7);
    EXPECT_NEAR(bus_in_node(all_reduce, 16 * GiB, 8, a.domain), 230, 3);
    EXPECT_NEAR(bus_in_node(all_reduce, GiB, 8, h.domain), 460, 20);
    EXPECT_NEAR(bus_in_node(all_reduce, 16 * GiB, 8, h.domain), 480, 25);
    EXPECT_NEAR(bus_in_node(all_gather, 16 * GiB, 8, h.domain), 361, 18);
    EXPECT_NEAR(bus_across(16 * GiB, 2, h), 487, 10);
    EXPECT_NEAR(bus_across(16 * GiB, 4, h), 370, 10);
    EXPECT_NEAR(bus_across(GiB, 4, h), 351, 10);
    EXPECT_NEAR(bus_across(16 * GiB, 2, a), 190, 10);
}

TEST(Anchors, SmallAllReducesAreLatency) {
    EXPECT_NEAR(domain_collective_us(all_reduce, 8, 8, read_cluster("dgx-h100").domain), 15.6, 1.5);
    EXPECT_NEAR(domain_collective_us(all_reduce, 8, 8, read_cluster("dgx-a100").domain), 19, 3);
}

// Faster links are never slower and more bytes never faster. There is no exception: at each switch of
// algorithm either the minimum is taken, or the new form only adds a term (the Simple floor).
TEST(Collective, IsMonotone) {
    for (const ClusterSpec& c : {read_cluster("dgx-a100"), read_cluster("dgx-h100")}) {
        DomainConstants wide = c.domain;
        for (double* gbps : {&wide.ring_gbps, &wide.nvls_gbps, &wide.pairwise_gbps}) *gbps *= 2;
        NetworkSpec fast = c.network;
        fast.nic.bytes_per_second *= 2;
        for (const std::int64_t ranks : {2, 4, 8, 16, 64})
            for (const Collective kind : {all_reduce, all_gather, reduce_scatter}) {
                const GroupPlacement g = placed(ranks, c.network), f = placed(ranks, fast);
                double last = 0;
                for (std::int64_t bytes = 8; bytes < 32 * GiB; bytes += bytes / 37 + 8) {
                    const double us = collective_us(kind, bytes, g, c.domain, c.network.constants);
                    EXPECT_GE(us, last) << ranks << " ranks, " << bytes << " bytes";
                    EXPECT_LE(collective_us(kind, bytes, f, wide, c.network.constants), us);
                    last = us;
                }
            }
    }
}

}  // namespace
}  // namespace foretrain
