// Every cluster that somebody published a run of can be described and planned for. The runs live
// outside the repository (FORETRAIN_REFERENCE).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "hardware/cluster_file.h"
#include "plan/check.h"
#include "plan/plan_file.h"

namespace foretrain {
namespace {

// A small model on one device a data rank.
Plan plan_on(const ClusterSpec& cluster) {
    Plan plan = plan_from_json(Json::parse(
        R"({"model": "gpt2", "cluster": "dgx-h100", "training": {"global_batch_size": 8, "sequence_length": 512}})",
        "plan.json"));
    plan.cluster = cluster;
    plan.parallelism.data = cluster.devices();
    plan.training.global_batch_size = cluster.devices();
    plan.training.precision = cluster.device.peak.count(DType::bf16) != 0 ? DType::bf16 : DType::fp16;
    return plan;
}

TEST(Clusters, EveryPresetCanBePlannedFor) {
    for (const std::string& name : cluster_preset_names())
        EXPECT_TRUE(check(plan_on(read_cluster(name))).empty()) << name;
}

TEST(Clusters, EveryPublishedOneCanBePlannedFor) {
    const char* folder = std::getenv("FORETRAIN_REFERENCE");
    std::ifstream in(folder == nullptr ? "" : std::string(folder) + "/published_runs.jsonl");
    if (!in) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with published_runs.jsonl: clusters NOT checked";
    std::set<std::string> seen;
    for (std::string line; std::getline(in, line);) {
        const Json cluster = Json::parse(line, "published_runs.jsonl").at("cluster");
        if (!seen.insert(cluster.dump()).second) continue;
        const ClusterSpec c = cluster_from_json(cluster);
        EXPECT_EQ(c.devices(), cluster.at("gpus").integer(1, 1 << 24)) << cluster.dump();
        EXPECT_TRUE(check(plan_on(c)).empty()) << cluster.dump();
        if (const Json rate = cluster.get("inter_node_gbps_per_node"); !rate.is_null() && c.nodes > 1) {
            const double devices = static_cast<double>(cluster.at("gpus_per_node").integer(1, 1 << 20));
            EXPECT_NEAR(c.network.nics_per_node * c.network.nic.gigabytes() * 8 / c.devices_per_node,
                        rate.number(0, 1e9) / devices, 1e-9)
                << cluster.dump();
        }
    }
    EXPECT_GT(seen.size(), 20U);
}

}  // namespace
}  // namespace foretrain
