// Every preset, whatever it describes: it reads, it writes, and no figure stands without its source.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/preset.h"
#include "hardware/calibration_file.h"
#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "hardware/links.h"

namespace foretrain {
namespace {

bool has_text(const Json& object, const char* key) {
    const Json value = object.get(key);
    return value.is_string() && !value.string().empty();
}

// Calls visit(path, enclosing objects) for every number in `value`.
template <class Visit>
void for_each_number(const Json& value, std::vector<Json>& enclosing, const Visit& visit) {
    if (value.is_number()) visit(value.path(), enclosing);
    if (value.is_array())
        for (const Json& item : value.items()) for_each_number(item, enclosing, visit);
    if (!value.is_object()) return;
    enclosing.push_back(value);
    for (const std::string& key : value.keys()) for_each_number(value.at(key), enclosing, visit);
    enclosing.pop_back();
}

// A number is sourced by the certificate of the part that it stands in, by the reason that a part gives
// for being like another, or by the "sources" of its file or device under the member's name.
bool is_sourced(const std::string& path, const std::vector<Json>& enclosing) {
    for (const Json& object : enclosing) {
        if (has_text(object, "reason") || (object.has("born") && has_text(object.at("born"), "source"))) return true;
        if (!object.has("sources")) continue;
        std::string member = path.substr(object.path().empty() ? 0 : object.path().size() + 1);
        member = member.substr(0, member.find_first_of(".["));
        if (has_text(object.at("sources"), member.c_str())) return true;
    }
    return false;
}

void expect_sourced(const Json& json) {
    std::vector<Json> enclosing;
    for_each_number(json, enclosing, [&](const std::string& path, const std::vector<Json>& objects) {
        EXPECT_TRUE(path == "nodes" || is_sourced(path, objects)) << json.file() << ": " << path;
    });
}

TEST(Presets, NoFigureOfAFileWithoutSource) {
    for (const Preset& p : hardware_presets()) expect_sourced(Json::parse(p.text, p.name));
}

TEST(Presets, NoFigureOfAClusterWithoutSource) {
    for (const std::string& name : cluster_preset_names()) {
        const ClusterSpec c = read_cluster(name);
        expect_sourced(Json::parse(cluster_to_json(c).dump(), name));
        for (const char* figure : {"devices_per_node", "network", "host_memory_bytes"})
            EXPECT_TRUE(c.sources.count(figure)) << name << ' ' << figure;
    }
}

TEST(Presets, AUnsourcedFigureIsFound) {
    std::vector<Json> enclosing;
    int unsourced = 0;
    const Json json =
        Json::parse(R"({"sources": {"a": "x"}, "a": [1], "b": 2, "c": {"d": 3, "born": {"source": "y"}}})", "t");
    for_each_number(json, enclosing, [&](const std::string& path, const std::vector<Json>& objects) {
        if (is_sourced(path, objects)) return;
        EXPECT_EQ(path, "b");
        ++unsourced;
    });
    EXPECT_EQ(unsourced, 1);
}

TEST(Presets, CoverTheDevicesThatPeopleTrainOn) {
    const std::vector<std::string> names = device_preset_names();
    for (const char* device :
         {"v100-sxm2-16gb", "v100-sxm2-32gb",  "a100-sxm-40gb",  "a100-sxm-80gb",  "a100-pcie-40gb", "a100-pcie-80gb",
          "a800-sxm-80gb",  "h100-sxm-80gb",   "h100-pcie-80gb", "h100-nvl-94gb",  "h800-sxm-80gb",  "h20-sxm-96gb",
          "h200-sxm-141gb", "b200-sxm-180gb",  "gb200-186gb",    "b300-sxm-288gb", "gb300-288gb",    "l40s-48gb",
          "rtx4090-24gb",   "mi250x-gcd-64gb", "mi300x-192gb"})
        EXPECT_EQ(std::count(names.begin(), names.end(), device), 1) << device;
}

TEST(Presets, EveryDeviceCanBePlannedFor) {
    for (const std::string& name : device_preset_names()) {
        const DeviceSpec d = device_from_json(Json(name));
        EXPECT_EQ(d.name, name);
        EXPECT_EQ(device_from_json(Json::parse(device_to_json(d).dump(), "rewritten")), d);
        EXPECT_GT(d.power_watts, 0) << name;
        ASSERT_NO_THROW(read_cluster(d.system)) << name;
        for (const auto& [type, peak] : d.peak) {
            const GemmConstants* g = d.calibration.gemm_for(type);
            ASSERT_NE(g, nullptr) << name << ' ' << name_of(type);
            EXPECT_GT(g->spread, 0) << name;
        }
        EXPECT_TRUE(d.peak.count(DType::fp16) && d.peak.count(DType::fp32)) << name;
        EXPECT_FALSE(d.calibration.attention.backward.efficiency.empty()) << name;
        EXPECT_GT(d.calibration.attention.spread, 0) << name;
        EXPECT_GT(d.calibration.memory_bound.spread, 0) << name;
    }
}

TEST(Presets, EveryClusterScales) {
    for (const std::string& name : cluster_preset_names()) {
        ClusterSpec c = read_cluster(name);
        EXPECT_EQ(c.name, name);
        EXPECT_EQ(c.nodes, 1) << name;
        EXPECT_EQ(c.default_framework, "megatron-lm");
        EXPECT_GT(c.domain.spread, 0) << name;
        EXPECT_GT(c.network.constants.spread, 0) << name;
        scale_to_nodes(c, 4);
        EXPECT_EQ(c.devices(), 4 * c.devices_per_node);
        EXPECT_EQ(cluster_from_json(Json::parse(cluster_to_json(c).dump(), "rewritten")), c) << name;
        scale_to_devices(c, 2);
        EXPECT_EQ(c.devices(), 2);
    }
}

// No trust is gained on the way: what is carried over is at least as uncertain as where it comes from.
TEST(Presets, CarryingOverWidens) {
    for (const Preset& p : hardware_presets()) {
        const Json json = Json::parse(p.text, p.name);
        if (json.at("format").string() != "foretrain.device/1") continue;
        const Json calibration = json.at("calibration");
        if (!calibration.has("like")) continue;
        const Calibration here = calibration_from_json(calibration);
        const Calibration there = device_from_json(calibration.at("like")).calibration;
        for (const GemmConstants& g : here.gemm) {
            EXPECT_TRUE(g.born.source.starts_with("carried over from ")) << p.name;
            const GemmConstants* from = there.gemm_for(g.dtype);
            EXPECT_GE(g.spread, from == nullptr ? 0 : from->spread) << p.name;
        }
        EXPECT_GE(here.attention.spread, there.attention.spread) << p.name;
        EXPECT_GE(here.memory_bound.spread, there.memory_bound.spread) << p.name;
    }
    const Json links = hardware_preset("links", "foretrain.links/1", Json("links"));
    for (const char* section : {"domain", "network"}) {
        const Json all = links.at(section);
        for (const std::string& name : all.keys()) {
            const Json entry = all.at(name);
            const Json from = entry.has("like") ? all.at(entry.at("like").string()) : entry;
            EXPECT_GE(entry.at("spread").number(0, 1), from.at("spread").number(0, 1)) << name;
        }
    }
}

// An alias finds its preset, and no name finds two.
TEST(Presets, GoByTheirAliases) {
    EXPECT_EQ(device_from_json(Json("h100")).name, "h100-sxm-80gb");
    EXPECT_EQ(device_from_json(Json("H100_SXM5-80GB")).name, "h100-sxm-80gb");
    EXPECT_EQ(device_from_json(Json("b200-180gb")).name, "b200-sxm-180gb");
    EXPECT_EQ(read_cluster("p4de.24xlarge").name, "aws-p4de");
    std::vector<std::string> all;
    for (const Preset& p : hardware_presets()) {
        all.emplace_back(p.name);
        const Json aliases = Json::parse(p.text, p.name).get("aliases");
        if (!aliases.is_null())
            for (const Json& a : aliases.items()) all.push_back(a.string());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

}  // namespace
}  // namespace foretrain
