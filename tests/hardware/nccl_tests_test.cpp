#include "hardware/nccl_tests.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

// As nccl-tests 2.13 print it, shortened.
std::string printed(int nodes, int per_node, const std::string& collective, const std::string& last_bus) {
    std::string s = "# Collective test starting: " + collective +
                    "_perf\n# nThread 1 nGpus 8 minBytes 8 maxBytes 268435456\n#\n"
                    "# Using devices\n";
    for (int r = 0; r < nodes * per_node; ++r)
        s += "#  Rank  " + std::to_string(r) + " Group  0 Pid  1234 on   node-" + std::to_string(r / per_node) +
             " device  " + std::to_string(r % per_node) + " [0x07] NVIDIA H100 80GB HBM3\n";
    s +=
        "#\n#                                                              out-of-place                       "
        "in-place\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
        "#wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  "
        "(GB/s)\n"
        "           8             2     float     sum      -1    21.07    0.00    0.00      0    20.50    0.00    0.00 "
        "     0\n"
        "     1048576        262144     float     sum      -1    45.10   23.25   40.69      0    44.90   23.35   40.87 "
        "     0\n"
        "   268435456      67108864     float     sum      -1  1010.00  265.78  " +
        last_bus +
        "      0  1009.00  266.04  465.57      0\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 168.6\n#\n";
    return s;
}

TEST(NcclTests, ReadsSizesRanksAndNodes) {
    const NcclTest t = read_nccl_test(printed(2, 8, "all_reduce", "350.5"), "out.txt");
    EXPECT_EQ(t.collective, "all_reduce");
    EXPECT_EQ(t.ranks, 16);
    EXPECT_EQ(t.nodes, 2);
    ASSERT_EQ(t.sizes.size(), 3U);
    EXPECT_EQ(t.sizes[1].bytes, 1048576);
    EXPECT_EQ(t.sizes[1].bus_gbps, 40.69);
    EXPECT_EQ(t.plateau_gbps(), 350.5);
}

TEST(NcclTests, SetsTheLinksThatItRanOn) {
    ClusterSpec c = read_cluster("dgx-h100");
    scale_to_nodes(c, 2);
    set_measured(c, read_nccl_test(printed(1, 8, "all_gather", "352"), "gather.txt"), "gather.txt");
    EXPECT_EQ(c.domain.ring_gbps, 352);
    set_measured(c, read_nccl_test(printed(1, 8, "sendrecv", "300"), "p2p.txt"), "p2p.txt");
    EXPECT_EQ(c.domain.pairwise_gbps, 300);
    EXPECT_EQ(c.domain.ring_gbps, 352);
    set_measured(c, read_nccl_test(printed(2, 8, "all_reduce", "360"), "reduce.txt"), "reduce.txt");
    EXPECT_DOUBLE_EQ(c.network.constants.efficiency, 0.9) << "of 8 x 50 GB/s";
    EXPECT_NE(c.network.constants.born.source.find("reduce.txt"), std::string::npos);
}

TEST(NcclTests, RefusesByLineOrByWhatItCannotTell) {
    const auto place = [](const std::string& text, const char* origin) {
        return refusal([&] { read_nccl_test(text, origin); }).file;
    };
    EXPECT_EQ(place("", "all_reduce.txt"), "all_reduce.txt");
    EXPECT_EQ(place("# x\n 8 2 float sum\n", "all_reduce.txt"), "all_reduce.txt:2");
    EXPECT_EQ(place(" 8 2 float sum -1 2.0 0.1 nan 0\n", "all_reduce.txt"), "all_reduce.txt:1");
    EXPECT_EQ(place(" 8 2 float sum -1 2.0 0.1 0.1 0\n", "out.txt"), "out.txt") << "of which collective?";
    ClusterSpec c = read_cluster("dgx-h100");
    const auto set = [&](const std::string& text) {
        return refusal([&] { set_measured(c, read_nccl_test(text, "out.txt"), "out.txt"); }).found;
    };
    EXPECT_EQ(set(printed(1, 4, "all_reduce", "350")), "4 ranks on a node");
    EXPECT_EQ(set(printed(2, 8, "all_gather", "350")), "all_gather across nodes");
    EXPECT_EQ(set(printed(1, 8, "broadcast", "350")), "broadcast");
    EXPECT_EQ(set(printed(2, 8, "all_reduce", "500")), "500.0") << "above the line rate";
    EXPECT_EQ(set("# Collective test starting: all_reduce_perf\n 8 2 float sum -1 2.0 0.1 0.1 0\n"),
              "sizes up to 8 bytes");
}

}  // namespace
}  // namespace foretrain
