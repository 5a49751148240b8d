#include "hardware/device_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file_name.h"
#include "base/kernel_kind.h"
#include "base/preset.h"
#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr const char* device_format = "foretrain.device/1";

DType dtype_of(const Json& at, const std::string& name) {
    if (const auto t = dtype_from_name(name)) return *t;
    at.fail(fmt::format("\"{}\"", name), "an element type", nearest(name, {"fp64", "fp32", "bf16", "fp16", "fp8"}));
}

// [[256, 128], [128, 128]]
std::vector<std::pair<int, int>> tiles_from(const Json& value) {
    std::vector<std::pair<int, int>> tiles;
    for (const Json& tile : value.items()) {
        const std::vector<Json> sides = tile.items();
        if (sides.size() != 2) tile.fail(tile.found(), "two numbers: rows and columns of a tile");
        tiles.emplace_back(static_cast<int>(sides[0].integer(1, 1 << 20)),
                           static_cast<int>(sides[1].integer(1, 1 << 20)));
    }
    if (tiles.empty()) value.fail("no tile", "at least one; [[1, 1]] where there are none");
    return tiles;
}

std::vector<int> splits_from(const Json& value) {
    std::vector<int> splits;
    for (const Json& split : value.items()) splits.push_back(static_cast<int>(split.integer(1, 1 << 16)));
    if (splits.empty()) value.fail("no split", "at least one; [1] where k is never split");
    return splits;
}

GemmConstants gemm_from(const Json& value) {
    GemmConstants g;
    FieldReader in(value);
    in.require("dtype");
    const Json dtype = in.take("dtype");
    g.dtype = dtype_of(dtype, dtype.string());
    visit(in, g);
    if (const Json tiles = in.take("tiles"); !tiles.is_null()) g.tiles = tiles_from(tiles);
    if (const Json splits = in.take("splits"); !splits.is_null()) g.splits = splits_from(splits);
    in.finish();
    return g;
}

Json to_json(GemmConstants g) {
    Json out = Json::object();
    out.set("dtype", name_of(g.dtype));
    FieldWriter w(out);
    visit(w, g);
    Json tiles = Json::array();
    for (const auto& [rows, columns] : g.tiles) tiles.push(Json::array().push(Json(rows)).push(Json(columns)));
    Json splits = Json::array();
    for (int s : g.splits) splits.push(Json(s));
    return out.set("tiles", tiles).set("splits", splits);
}

// {"64": 0.65, "128": 0.703}: by head dimension, ascending
std::vector<std::pair<int, double>> efficiencies_from(const Json& value) {
    std::vector<std::pair<int, double>> out;
    for (const std::string& key : value.keys()) {
        int head_dim = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), head_dim);
        if (error != std::errc{} || end != key.data() + key.size() || head_dim < 1)
            value.at(key).fail("\"" + key + "\"", "a head dimension such as \"128\"");
        out.emplace_back(head_dim, value.at(key).number(1e-6, 10));
    }
    if (out.empty()) value.fail("no head dimension", "at least one, such as {\"128\": 0.7}");
    std::sort(out.begin(), out.end());
    for (std::size_t i = 1; i < out.size(); ++i)
        if (out[i].first == out[i - 1].first)
            value.fail(fmt::format("the head dimension {} twice", out[i].first), "it once");
    return out;
}

AttentionPass pass_from(const Json& value) {
    AttentionPass a;
    FieldReader in(value);
    in.require("efficiency");
    a.efficiency = efficiencies_from(in.take("efficiency"));
    visit(in, a);
    in.finish();
    return a;
}

Json to_json(AttentionPass a) {
    Json efficiency = Json::object();
    for (const auto& [head_dim, e] : a.efficiency) efficiency.set(std::to_string(head_dim), e);
    Json out = Json::object();
    out.set("efficiency", std::move(efficiency));
    FieldWriter w(out);
    visit(w, a);
    return out;
}

AttentionConstants attention_from(const Json& value) {
    AttentionConstants a;
    FieldReader in(value);
    in("kernel", a.kernel);
    in.require("forward");
    in.require("backward");
    a.forward = pass_from(in.take("forward"));
    a.backward = pass_from(in.take("backward"));
    in("born", a.born);
    in.finish();
    return a;
}

Json to_json(const AttentionConstants& a) {
    Json out = Json::object();
    FieldWriter w(out);
    w("kernel", a.kernel);
    out.set("forward", to_json(a.forward)).set("backward", to_json(a.backward));
    w("born", a.born);
    return out;
}

MemoryBoundConstants memory_bound_from(const Json& value) {
    MemoryBoundConstants m;
    FieldReader in(value);
    visit(in, m);
    const Json overrides = in.take("overrides");
    in.finish();
    if (overrides.is_null()) return m;
    for (const Json& item : overrides.items()) {
        MemoryBoundConstants::Override o{.kind = "", .launch_us = m.launch_us, .efficiency = m.efficiency};
        FieldReader inner(item);
        inner.require("kind");
        item.at("kind").one_of({kernel_kind_names.begin(), kernel_kind_names.end()});
        visit(inner, o);
        inner.finish();
        m.overrides.push_back(o);
    }
    return m;
}

Json to_json(MemoryBoundConstants m) {
    Json out = Json::object();
    FieldWriter w(out);
    visit(w, m);
    if (m.overrides.empty()) return out;
    Json overrides = Json::array();
    for (MemoryBoundConstants::Override& o : m.overrides) {
        Json item = Json::object();
        FieldWriter inner(item);
        visit(inner, o);
        overrides.push(std::move(item));
    }
    return out.set("overrides", std::move(overrides));
}

Calibration calibration_from(const Json& value) {
    Calibration c;
    FieldReader in(value);
    if (const Json gemm = in.take("gemm"); !gemm.is_null())
        for (const Json& item : gemm.items()) {
            const GemmConstants g = gemm_from(item);
            if (c.gemm_for(g.dtype) != nullptr)
                item.fail(fmt::format("{} a second time", name_of(g.dtype)), "each element type once");
            c.gemm.push_back(g);
        }
    if (const Json a = in.take("attention"); !a.is_null()) c.attention = attention_from(a);
    if (const Json m = in.take("memory_bound"); !m.is_null()) c.memory_bound = memory_bound_from(m);
    in.finish();
    return c;
}

Json to_json(const Calibration& c) {
    Json gemm = Json::array();
    for (const GemmConstants& g : c.gemm) gemm.push(to_json(g));
    Json out = Json::object();
    out.set("gemm", std::move(gemm));
    // Without efficiencies attention was not measured: absent, as reading requires them.
    if (!c.attention.forward.efficiency.empty()) out.set("attention", to_json(c.attention));
    return out.set("memory_bound", to_json(c.memory_bound));
}

DeviceSpec device_from_object(const Json& value) {
    DeviceSpec d;
    FieldReader in(value);
    if (const Json format = in.take("format"); !format.is_null()) format.one_of({device_format});
    visit(in, d);
    for (const char* name : {"name", "memory_bytes", "memory_bandwidth_bytes_per_second"}) in.require(name);
    in.require("peak_flops_per_second");
    const Json peak = in.take("peak_flops_per_second");
    for (const std::string& key : peak.keys())
        d.peak[dtype_of(peak.at(key), key)] = FlopRate{peak.at(key).number(1e6, 1e18)};
    if (const Json c = in.take("calibration"); !c.is_null()) d.calibration = calibration_from(c);
    in.finish();
    if (d.reserved >= d.memory)
        value.at("reserved_bytes").fail(std::to_string(d.reserved.value), "less than memory_bytes");
    return d;
}

}  // namespace

DeviceSpec device_from_json(const Json& value) {
    if (!value.is_string()) return device_from_object(value);
    const std::string name = value.string();
    if (names_a_file(name)) return device_from_object(Json::parse_file(beside(value.file(), name)));
    return device_from_object(hardware_preset(name, device_format, value));
}

Json device_to_json(const DeviceSpec& device) {
    DeviceSpec d = device;
    Json out = Json::object();
    out.set("format", device_format);
    FieldWriter w(out);
    visit(w, d);
    Json peak = Json::object();
    for (const auto& [dtype, rate] : d.peak) peak.set(name_of(dtype), rate.per_second);
    return out.set("peak_flops_per_second", std::move(peak)).set("calibration", to_json(d.calibration));
}

std::vector<std::string> device_preset_names() { return hardware_preset_names(device_format); }

Json hardware_preset(const std::string& name, const std::string& format, const Json& where) {
    for (const Preset& p : hardware_presets()) {
        if (p.name != name) continue;
        Json preset = Json::parse(p.text, fmt::format("preset {}", name));
        if (preset.at("format").string() == format) return preset;
    }
    const std::vector<std::string> names = hardware_preset_names(format);
    where.fail(where.found(), fmt::format("a preset ({}), an object or a file name", fmt::join(names, ", ")),
               nearest(name.substr(0, 100), names));
}

std::vector<std::string> hardware_preset_names(const std::string& format) {
    std::vector<std::string> names;
    for (const Preset& p : hardware_presets())
        if (Json::parse(p.text, p.name).at("format").string() == format) names.emplace_back(p.name);
    return names;
}

}  // namespace foretrain
