#include "hardware/short_form.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "hardware/links.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

Json parsed(std::string_view text) { return Json::parse(text, "cluster.json"); }
ClusterSpec cluster(std::string_view text) { return cluster_from_json(parsed(text)); }

TEST(ShortForm, TakesTheDevicesOwnSystem) {
    const ClusterSpec c = cluster_from_json(parsed(
        R"({"gpu": "a100-sxm-80gb", "gpus": 64, "gpus_per_node": 8, "intra_node": "nvlink3", "inter_node_gbps_per_node": 800})"));
    EXPECT_EQ(c.nodes, 8);
    EXPECT_EQ(c.network.nics_per_node, 4);
    EXPECT_EQ(c.network.nic.gigabytes(), 25);
    EXPECT_EQ(c.domain, read_cluster("dgx-a100").domain);
    const ClusterSpec slow =
        cluster_from_json(parsed(R"({"gpu": "h100-sxm-80gb", "gpus": 16, "inter_node_gbps_per_node": 100})"));
    EXPECT_EQ(slow.network.nics_per_node * slow.network.nic.gigabytes() * 8, 100);
    EXPECT_EQ(cluster_from_json(parsed(R"({"gpu": "h100-sxm-80gb", "gpus": 4})")).devices(), 4);
    EXPECT_EQ(refusal([] { cluster_from_json(parsed(R"({"gpu": "a100-sxm-80g", "gpus": 8})")); }).suggestion,
              "a100-sxm-80gb");
    EXPECT_EQ(refusal([] { cluster_from_json(parsed(R"({"gpu": "a100-sxm-80gb", "gpus": 12})")); }).suggestion,
              "8 or 16");
    EXPECT_EQ(refusal([] {
                  cluster_from_json(parsed(R"({"gpu": "a100-sxm-80gb", "gpus": 8, "intra_node": "nvlnk3"})"));
              }).suggestion,
              "nvlink3");
}

TEST(ShortForm, LinksGoByName) {
    const auto link = [](const std::string& name) {
        return cluster(R"({"gpu": "h200-sxm-141gb", "gpus": 8, "intra_node": ")" + name + "\"}").domain;
    };
    EXPECT_EQ(link("nvlink"), read_cluster("dgx-h200").domain);
    EXPECT_EQ(link("pcie5"), domain_constants(Json("pcie5")));
    EXPECT_EQ(cluster(R"({"gpu": "a100-pcie-80gb", "gpus": 8, "intra_node": "pcie"})").domain.link, "pcie4");
}

TEST(ShortForm, NodesOfARackAreItsTrays) {
    const ClusterSpec c = cluster(R"({"gpu": "gb200-186gb", "gpus": 256, "gpus_per_node": 4, "intra_node": "nvl72",
                                      "inter_node_gbps_per_node": 1600})");
    EXPECT_EQ(c.devices_per_node, 64);
    EXPECT_EQ(c.nodes, 4);
    EXPECT_EQ(c.network.nics_per_node, 64);
    EXPECT_EQ(c.network.nic.gigabytes(), 50);
    const ClusterSpec trays = cluster(R"({"gpu": "gb200", "gpus": 16, "gpus_per_node": 4, "intra_node": "nvlink5",
                                          "inter_node_gbps_per_node": 1600})");
    EXPECT_EQ(trays.devices_per_node, 4);
    EXPECT_EQ(trays.nodes, 4);
    EXPECT_EQ(trays.network.nics_per_node, 4);
}

TEST(ShortForm, IsCalledAsItsFile) {
    constexpr std::string_view form = R"({"gpu": "h100-sxm-80gb", "gpus": 8})";
    EXPECT_EQ(cluster_from_json(Json::parse(form, "clusters/lab.json")).name, "lab");
    EXPECT_EQ(cluster_from_json(Json::parse(form, "<inline>")).name, "h100-sxm-80gb");
    EXPECT_EQ(cluster(R"({"gpu": "h100-sxm-80gb", "gpus": 8, "name": "mine"})").name, "mine");
    const Json plan = Json::parse(R"({"cluster": {"gpu": "h100-sxm-80gb", "gpus": 8}})", "plan.json");
    EXPECT_EQ(cluster_from_json(plan.at("cluster")).name, "h100-sxm-80gb") << "the file is the plan's";
}

TEST(ShortForm, SeveralNodesNeedTheirRate) {
    const auto missing = refusal([] { cluster(R"({"gpu": "h100-sxm-80gb", "gpus": 16})"); });
    EXPECT_EQ(missing.field, "inter_node_gbps_per_node");
    EXPECT_EQ(missing.file, "cluster.json");
    EXPECT_EQ(refusal([] { cluster(R"({"gpu": "h100", "gpus": 16, "inter_node_gbps": 3200})"); }).suggestion,
              "inter_node_gbps_per_node");
}

TEST(ShortForm, TakesFabricAndTree) {
    const ClusterSpec c = cluster(R"({"gpu": "h100", "gpus": 64, "inter_node_gbps_per_node": 1600, "fabric": "roce",
                                      "oversubscription": 2, "leaf_nodes": 4})");
    EXPECT_EQ(c.network.fabric, "roce");
    EXPECT_EQ(c.network.oversubscription, 2);
    EXPECT_EQ(c.network.leaf_nodes, 4);
    EXPECT_EQ(c.network.constants.two_node_tree_gbps, 490);
    EXPECT_EQ(cluster_from_json(Json::parse(cluster_to_json(c).dump(), "rewritten")), c);
}

}  // namespace
}  // namespace foretrain
