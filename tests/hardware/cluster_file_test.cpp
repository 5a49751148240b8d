#include "hardware/cluster_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "hardware/device_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

Json parsed(std::string_view text) { return Json::parse(text, "cluster.json"); }

ClusterSpec rewritten(const ClusterSpec& c) {
    return cluster_from_json(Json::parse(cluster_to_json(c).dump(), "rewritten"));
}

// A machine as `calibrate` describes it: constants inline, no tiles, kernels that differ.
ClusterSpec local_machine() {
    ClusterSpec c;
    c.name = "local";
    c.device.name = "cpu";
    c.device.peak = {{DType::fp32, FlopRate{1.0 / 3 * 1e11}}, {DType::fp64, FlopRate{7.7e10}}};
    c.device.memory = Bytes{(std::int64_t{1} << 33) + 1};
    c.device.memory_bandwidth = {1e10 / 7};
    c.device.reserved = Bytes{123};
    c.device.sources = {{"peak", "foretrain calibrate"}};
    for (DType t : {DType::fp32, DType::fp64}) {
        GemmConstants g{.dtype = t, .efficiency = 0.7, .intensity = 0.1 + 0.2, .p = 3.3, .launch_us = 1.25};
        g.tiles = {{1, 1}};
        g.splits = {1};
        g.born = {"foretrain calibrate", "this machine", "2026-11-30"};
        c.device.calibration.gemm.push_back(g);
    }
    AttentionConstants& a = c.device.calibration.attention;
    a.kernel = "cpu";
    a.forward = {.efficiency = {{32, 0.3}, {128, 0.4}}, .tile_overhead_us = 0.1, .p = 1.5, .launch_us = 2};
    a.backward = {.efficiency = {{64, 0.25}}, .tile_overhead_us = 0.2, .p = 1.25, .launch_us = 1};
    c.device.calibration.memory_bound = {.launch_us = 0.5, .efficiency = 0.6};
    c.device.calibration.memory_bound.overrides = {{"adamw", 1.5, 0.3}, {"gelu_forward", 0.2, 2.5}};
    c.devices_per_node = 2;
    c.domain.ring_gbps = 10.0 / 3;
    c.domain.pairwise_gbps = 4;
    c.domain.simple_from = Bytes{77};
    c.domain.link = "threads";
    c.host_memory = Bytes{1 << 20};
    c.default_framework = "foretrain";
    c.sources = {{"domain", "foretrain calibrate"}};
    return c;
}

TEST(ClusterFile, PresetsHaveTheirPublishedFigures) {
    const ClusterSpec a = read_cluster("dgx-a100");
    EXPECT_EQ(a.devices_per_node, 8);
    EXPECT_EQ(a.nodes, 1);
    EXPECT_EQ(a.device.peak.at(DType::bf16).tera(), 312);
    EXPECT_EQ(a.device.multiprocessors, 108);
    EXPECT_EQ(a.network.nics_per_node * a.network.nic.gigabytes() * 8, 1600);
    EXPECT_EQ(a.domain.nvls_ranks, 0);
    const ClusterSpec h = read_cluster("dgx-h100");
    EXPECT_EQ(h.device.peak.at(DType::fp16).tera(), 989);
    EXPECT_EQ(h.device.memory.value, std::int64_t{81559} << 20);
    EXPECT_EQ(h.network.nics_per_node * h.network.nic.gigabytes() * 8, 3200);
    EXPECT_EQ(h.domain.nvls_ranks, 5);
    EXPECT_EQ(h.device.calibration.gemm_for(DType::bf16)->sustained, 0.12);
    EXPECT_EQ(h.device.calibration.gemm_for(DType::fp64), nullptr);
}

TEST(ClusterFile, WhatIsWrittenReadsBackEqual) {
    for (const std::string& name : cluster_preset_names()) {
        ClusterSpec c = read_cluster(name);
        c.nodes = 3;
        EXPECT_EQ(rewritten(c), c) << name;
    }
    EXPECT_EQ(rewritten(local_machine()), local_machine());
    ClusterSpec bare = local_machine();  // nothing measured, one device
    bare.devices_per_node = 1;
    bare.domain = {};
    bare.device.calibration = {};
    EXPECT_EQ(rewritten(bare), bare);
}

TEST(ClusterFile, PathsAreRelativeToTheFileTheyStandIn) {
    const auto folder = std::filesystem::temp_directory_path() / "foretrain_cluster_test";
    std::filesystem::create_directories(folder / "inner");
    std::ofstream(folder / "inner" / "gpu.json") << device_to_json(read_cluster("dgx-a100").device).dump();
    std::ofstream(folder / "inner" / "c.json") << R"({"device": "./gpu.json", "devices_per_node": 1})";
    std::ofstream(folder / "plan.json") << R"({"cluster": "inner/c.json"})";
    EXPECT_EQ(cluster_from_json(Json::parse_file((folder / "plan.json").string()).at("cluster")).device.name,
              "a100-sxm-80gb");
    EXPECT_EQ(read_cluster((folder / "inner" / "c.json").string()).devices(), 1);
    std::ofstream(folder / "inner" / "ours.json") << R"({"like": "dgx-h100"})";
    EXPECT_EQ(read_cluster((folder / "inner" / "ours.json").string()).name, "ours") << "not its GPU's name";
    std::filesystem::remove_all(folder);
}

TEST(ClusterFile, StatesWhatDiffersFromAPreset) {
    const ClusterSpec c = cluster_from_json(parsed(R"({"like": "dgx-h100", "name": "ours", "nodes": 64,
        "network": {"fabric": "roce", "nics_per_node": 4, "oversubscription": 2, "leaf_nodes": 16}})"));
    const ClusterSpec base = read_cluster("dgx-h100");
    EXPECT_EQ(c.name, "ours");
    EXPECT_EQ(c.device, base.device);
    EXPECT_EQ(c.domain, base.domain);
    EXPECT_EQ(c.network.nics_per_node, 4);
    EXPECT_EQ(c.network.nic, base.network.nic);
    EXPECT_EQ(c.network.leaf_nodes, 16);
    EXPECT_GT(c.network.constants.spread, base.network.constants.spread);
    EXPECT_EQ(rewritten(c), c);
    EXPECT_EQ(refusal([] { cluster_from_json(parsed(R"({"like": "dgx-h10"})")); }).suggestion, "dgx-h100");
    EXPECT_EQ(
        refusal([] {
            cluster_from_json(parsed(R"({"device": "h100", "devices_per_node": 8, "domain": {"link": "nvlnk4"}})"));
        }).suggestion,
        "nvlink4");
    EXPECT_EQ(refusal([] { cluster_from_json(parsed(R"({"like": "dgx-h100", "network": {"fabric": "efs"}})")); }).field,
              "network.fabric");
}

TEST(ClusterFile, RefusesUnknownNamesAndKeys) {
    const UserErrorText t = refusal([] { read_cluster("dgx-h10"); });
    EXPECT_EQ(t.suggestion, "dgx-h100");
    EXPECT_NE(t.expected.find("presets (`foretrain clusters` lists them)"), std::string::npos);
    refusal([] { read_cluster(""); });
    refusal([] { read_cluster("a100-sxm-80gb"); });  // a device, not a cluster
    refusal([] { read_cluster(std::string(1 << 20, 'x')); });
    refusal([] { cluster_from_json(parsed("[]")); });
    refusal([] { cluster_from_json(parsed("null")); });
    const auto key = refusal([] { cluster_from_json(parsed(R"({"device": "a100-sxm-80gb", "devices_per_nod": 8})")); });
    EXPECT_EQ(key.field, "devices_per_nod");
    EXPECT_EQ(key.suggestion, "devices_per_node");
    EXPECT_EQ(refusal([] { cluster_from_json(parsed(R"({"device": "a100-sxm-80gb", "domain": {"ring": 1}})")); }).field,
              "domain.ring");
}

// The text of a sound cluster with one member of it replaced by `value`.
Json with(const std::vector<std::string>& path, const Json& value) {
    Json root = parsed(cluster_to_json(read_cluster("dgx-h100")).dump());
    std::vector<Json> levels{root};
    for (std::size_t i = 0; i + 1 < path.size(); ++i) levels.push_back(levels.back().at(path[i]));
    levels.back().set(path.back(), value);
    for (std::size_t i = levels.size() - 1; i > 0; --i) levels[i - 1].set(path[i - 1], levels[i]);
    return parsed(levels.front().dump());
}

TEST(ClusterFile, RefusesFiguresThatCannotBe) {
    const std::vector<std::pair<std::vector<std::string>, Json>> wrong{
        {{"devices_per_node"}, Json(0)},
        {{"devices_per_node"}, Json(-8)},
        {{"devices_per_node"}, Json(1.5)},
        {{"nodes"}, Json(0)},
        {{"nodes"}, Json(std::int64_t{1} << 60)},
        {{"device", "memory_bytes"}, Json(0)},
        {{"device", "memory_bytes"}, Json(std::int64_t{1} << 62)},
        {{"device", "memory_bandwidth_bytes_per_second"}, Json(0)},
        {{"device", "memory_bandwidth_bytes_per_second"}, Json(-1.0)},
        {{"device", "memory_bandwidth_bytes_per_second"}, Json(1e300)},
        {{"device", "multiprocessors"}, Json(0)},
        {{"device", "reserved_bytes"}, Json(std::int64_t{1} << 40)},
        {{"device", "peak_flops_per_second", "bf16"}, Json(0)},
        {{"device", "peak_flops_per_second", "bf17"}, Json(1e12)},
        {{"device", "calibration", "memory_bound", "efficiency"}, Json(0)},
        {{"device", "calibration", "memory_bound", "launch_us"}, Json(-1)},
        {{"device", "calibration", "attention", "forward", "efficiency"}, Json::object()},
        {{"device", "calibration", "attention", "forward", "efficiency", "x"}, Json(0.5)},
        {{"device", "name"}, Json(7)},
        {{"domain", "ring_gbps"}, Json(0)},
        {{"domain", "pairwise_gbps"}, Json(1e-300)},
        {{"domain", "ring_gbps"}, Json(-3)},
        {{"domain", "nvls_gbps"}, Json(0)},
        {{"network", "efficiency"}, Json(1.5)},
        {{"network", "oversubscription"}, Json(0.5)},
        {{"network", "nics_per_node"}, Json(-1)},
        {{"default_framework"}, Json(true)},
        {{"format"}, Json("foretrain.device/1")},
    };
    for (const auto& [path, value] : wrong) {
        const Json json = with(path, value);
        const UserErrorText t = refusal([&] { cluster_from_json(json); });
        EXPECT_EQ(t.file, "cluster.json");
        EXPECT_NE(t.field.find(path.back() == "x" ? "efficiency.x" : path.back()), std::string::npos) << t.field;
    }
    EXPECT_NO_THROW(cluster_from_json(with({"nodes"}, Json(4))));
}

TEST(ClusterFile, RefusesBrokenCalibration) {
    const auto gemm = [](const char* text) { return with({"device", "calibration", "gemm"}, parsed(text)); };
    EXPECT_NO_THROW(cluster_from_json(gemm(R"([{"dtype": "fp32", "tiles": [[1, 1]], "splits": [1]}])")));
    for (const char* text :
         {R"([{"efficiency": 1}])", R"([{"dtype": "bf16"}, {"dtype": "bf16"}])", R"([{"dtype": "bf16", "tiles": []}])",
          R"([{"dtype": "bf16", "tiles": [[1]]}])", R"([{"dtype": "bf16", "tiles": [[0, 1]]}])",
          R"([{"dtype": "bf16", "splits": []}])", R"([{"dtype": "bf16", "splits": [0]}])",
          R"([{"dtype": "bf16", "efficency": 1}])", R"({})"})
        refusal([&] { cluster_from_json(gemm(text)); });
    refusal([] {
        cluster_from_json(
            with({"device", "calibration", "memory_bound", "overrides"}, parsed(R"([{"kind": "gelu"}])")));
    });
}

TEST(ClusterFile, Scales) {
    ClusterSpec c = read_cluster("dgx-h100");
    scale_to_nodes(c, 2);
    EXPECT_EQ(c.devices(), 16);
    scale_to_devices(c, 64);
    EXPECT_EQ(c.nodes, 8);
    EXPECT_EQ(refusal([&] { scale_to_devices(c, 20); }).suggestion, "16 or 24");
    for (std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 62}) {
        refusal([&] { scale_to_nodes(c, n); });
        refusal([&] { scale_to_devices(c, n); });
    }
    EXPECT_EQ(c.nodes, 8);
    scale_to_devices(c, 3);
    EXPECT_EQ(c.devices_per_node, 3);
    EXPECT_EQ(c.nodes, 1);
    EXPECT_EQ(c.devices_of_node(), 8);
    EXPECT_EQ(cluster_from_json(cluster_to_json(c)), c);
    scale_to_devices(c, 16);
    EXPECT_EQ(c.devices_per_node, 8) << "a node is whole again";
    EXPECT_EQ(c.nodes, 2);
    ClusterSpec rack = read_cluster("gb200-nvl72");
    scale_to_nodes(rack, 2);
    EXPECT_EQ(rack.devices(), 144);
    scale_to_devices(rack, 256);  // 64 of each of four racks, with their NICs
    EXPECT_EQ(rack.nodes, 4);
    EXPECT_EQ(rack.devices_per_node, 64);
    EXPECT_EQ(rack.network.nics_per_node, 64);
    rack = read_cluster("gb200-nvl72");
    scale_to_devices(rack, 8);
    EXPECT_EQ(rack.devices_per_node, 8);
    scale_to_devices(rack, 144);
    EXPECT_EQ(rack.network, read_cluster("gb200-nvl72").network) << "with all NICs of its trays";
    refusal([&] {
        ClusterSpec r = read_cluster("gb200-nvl72");
        scale_to_devices(r, 148);
    });
    ClusterSpec local = local_machine();
    refusal([&] { scale_to_nodes(local, 2); });  // no network described
    const UserErrorText too_many = refusal([&] { scale_to_devices(local, 2 * local.devices_per_node); });
    EXPECT_EQ(too_many.field, "gpus");
    EXPECT_EQ(too_many.found, std::to_string(2 * local.devices_per_node)) << "what was given, not the nodes it makes";
}

}  // namespace
}  // namespace foretrain
