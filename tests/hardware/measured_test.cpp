#include "hardware/measured.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

ClusterSpec cluster(std::string_view text) { return cluster_from_json(Json::parse(text, "cluster.json")); }

TEST(Measured, OverridesWhatALinkReachesElsewhere) {
    const ClusterSpec c = cluster(R"({"like": "dgx-a100", "domain": {"measured_bus_gbps":
        {"all_reduce": 200, "pairwise": 190, "source": "our nccl-tests"}}})");
    EXPECT_EQ(c.domain.ring_gbps, 200);
    EXPECT_EQ(c.domain.pairwise_gbps, 190);
    EXPECT_EQ(c.domain.spread, 0.05);
    EXPECT_TRUE(c.domain.born.source.starts_with("bus bandwidth measured: our nccl-tests"));
    EXPECT_EQ(cluster_from_json(Json::parse(cluster_to_json(c).dump(), "rewritten")), c);
}

// 8 ranks through the switch: t = S (1 + 1/8) / nvls, and bus = 2 (7/8) S / t.
TEST(Measured, TellsTheSwitchFromTheRing) {
    const ClusterSpec c = cluster(R"({"like": "dgx-h100", "domain": {"measured_bus_gbps":
        {"all_reduce": 490, "all_gather": 350, "source": "s", "spread": 0.02}}})");
    EXPECT_EQ(c.domain.ring_gbps, 350);
    EXPECT_DOUBLE_EQ(c.domain.nvls_gbps, 490 * 1.125 / 1.75);
    EXPECT_EQ(c.domain.spread, 0.02);
    const ClusterSpec mesh =
        cluster(R"({"like": "dgx-1v", "domain": {"measured_bus_gbps": {"all_reduce": 100, "source": "s"}}})");
    EXPECT_EQ(mesh.domain.ring_of(2), 100);
    EXPECT_EQ(cluster_from_json(Json::parse(cluster_to_json(mesh).dump(), "rewritten")), mesh);
}

TEST(Measured, IsAShareOfTheNetworksLineRate) {
    const ClusterSpec c = cluster(R"({"like": "dgx-h100", "network": {"nics_per_node": 4, "measured_bus_gbps":
        {"all_reduce": 150, "source": "s"}}})");
    EXPECT_DOUBLE_EQ(c.network.constants.efficiency, 0.75);
    const auto field = [](std::string_view text) { return refusal([&] { cluster(text); }).field; };
    EXPECT_EQ(field(R"({"like": "dgx-h100", "network": {"measured_bus_gbps": {"all_reduce": 480, "source": "s"}}})"),
              "network.measured_bus_gbps.all_reduce");
    EXPECT_EQ(field(R"({"like": "dgx-h100", "network": {"measured_bus_gbps": {"all_reduce": 48}}})"),
              "network.measured_bus_gbps");  // has no source
    EXPECT_EQ(field(R"({"like": "dgx-h100", "domain": {"measured_bus_gbps": {"allreduce": 48, "source": "s"}}})"),
              "domain.measured_bus_gbps.allreduce");
}

}  // namespace
}  // namespace foretrain
