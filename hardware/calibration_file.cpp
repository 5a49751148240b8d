#include "hardware/calibration_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/kernel_kind.h"
#include "hardware/device_file.h"

namespace foretrain {

DType dtype_of(const Json& at, const std::string& name) {
    if (const auto t = dtype_from_name(name)) return *t;
    at.fail(fmt::format("\"{}\"", name), "an element type",
            nearest(name, {"fp64", "fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"}));
}

std::optional<Carried> carried_over(FieldReader& in) {
    const Json like = in.take("like");
    if (like.is_null()) return std::nullopt;
    in.require("spread");
    in.require("reason");
    return Carried{like.string(), like, in.take("spread").number(0, widest_spread), in.take("reason").string()};
}

std::vector<std::pair<int, double>> by_count(const Json& value, const char* key, double least, double most) {
    std::vector<std::pair<int, double>> out;
    for (const std::string& text : value.keys()) {
        int count = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
        if (error != std::errc{} || end != text.data() + text.size() || count < 1)
            value.at(text).fail("\"" + text + "\"", key);
        out.emplace_back(count, value.at(text).number(least, most));
    }
    std::sort(out.begin(), out.end());
    for (std::size_t i = 1; i < out.size(); ++i)
        if (out[i].first == out[i - 1].first) value.fail(fmt::format("{} twice", out[i].first), "it once");
    return out;
}

Json by_count(const std::vector<std::pair<int, double>>& figures) {
    Json out = Json::object();
    for (const auto& [count, figure] : figures) out.set(std::to_string(count), figure);
    return out;
}

namespace {

// The calibration of the device that `like` names.
Calibration calibration_like(const Carried& c) { return device_from_json(c.where).calibration; }

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

// The constants that `c` names, for inputs of this type: of another type here, or of another device.
GemmConstants gemm_like(const Carried& c, DType type, const Calibration& here) {
    const std::optional<DType> other = dtype_from_name(c.like);
    const Calibration there = other ? here : calibration_like(c);
    const GemmConstants* found = there.gemm_for(other.value_or(type));
    if (found == nullptr)
        c.where.fail(c.where.found(), fmt::format("what has constants for {}", name_of(other.value_or(type))));
    GemmConstants g = *found;
    g.dtype = type;
    carry_over(g, c);
    return g;
}

GemmConstants gemm_from(const Json& value, const Calibration& here) {
    GemmConstants g;
    FieldReader in(value);
    in.require("dtype");
    const Json dtype = in.take("dtype");
    g.dtype = dtype_of(dtype, dtype.string());
    if (const auto carried = carried_over(in)) g = gemm_like(*carried, g.dtype, here);
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

AttentionPass pass_from(const Json& value) {
    AttentionPass a;
    FieldReader in(value);
    in.require("efficiency");
    const Json efficiency = in.take("efficiency");
    a.efficiency = by_count(efficiency, "a head dimension such as \"128\"", 1e-6, 10);
    if (a.efficiency.empty()) efficiency.fail("no head dimension", "at least one, such as {\"128\": 0.7}");
    visit(in, a);
    in.finish();
    return a;
}

Json to_json(AttentionPass a) {
    Json out = Json::object();
    out.set("efficiency", by_count(a.efficiency));
    FieldWriter w(out);
    visit(w, a);
    return out;
}

AttentionConstants attention_from(const Json& value) {
    AttentionConstants a;
    FieldReader in(value);
    if (const auto carried = carried_over(in)) {
        a = calibration_like(*carried).attention;
        carry_over(a, *carried);
    } else {
        in.require("forward");
        in.require("backward");
    }
    visit(in, a);
    if (const Json pass = in.take("forward"); !pass.is_null()) a.forward = pass_from(pass);
    if (const Json pass = in.take("backward"); !pass.is_null()) a.backward = pass_from(pass);
    in.finish();
    return a;
}

Json to_json(AttentionConstants a) {
    Json out = Json::object();
    FieldWriter w(out);
    visit(w, a);
    return out.set("forward", to_json(a.forward)).set("backward", to_json(a.backward));
}

MemoryBoundConstants memory_bound_from(const Json& value) {
    MemoryBoundConstants m;
    FieldReader in(value);
    if (const auto carried = carried_over(in)) {
        m = calibration_like(*carried).memory_bound;
        carry_over(m, *carried);
    }
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

// The parts of a device that this one is like in everything.
Calibration everything_like(const Carried& c) {
    Calibration out = calibration_like(c);
    for (GemmConstants& g : out.gemm) carry_over(g, c);
    if (!out.attention.forward.efficiency.empty()) carry_over(out.attention, c);
    carry_over(out.memory_bound, c);
    return out;
}

}  // namespace

Calibration calibration_from_json(const Json& value) {
    Calibration c;
    FieldReader in(value);
    if (const auto carried = carried_over(in)) c = everything_like(*carried);
    if (const Json gemm = in.take("gemm"); !gemm.is_null()) {
        std::vector<DType> seen;
        for (const Json& item : gemm.items()) {
            GemmConstants g = gemm_from(item, c);
            if (std::find(seen.begin(), seen.end(), g.dtype) != seen.end())
                item.fail(fmt::format("{} a second time", name_of(g.dtype)), "each element type once");
            seen.push_back(g.dtype);
            const auto same = [&](const GemmConstants& other) { return other.dtype == g.dtype; };
            const auto place = std::find_if(c.gemm.begin(), c.gemm.end(), same);
            if (place == c.gemm.end())
                c.gemm.push_back(std::move(g));
            else
                *place = std::move(g);
        }
    }
    if (const Json a = in.take("attention"); !a.is_null()) c.attention = attention_from(a);
    if (const Json m = in.take("memory_bound"); !m.is_null()) c.memory_bound = memory_bound_from(m);
    in.finish();
    return c;
}

Json calibration_to_json(const Calibration& c) {
    Json gemm = Json::array();
    for (const GemmConstants& g : c.gemm) gemm.push(to_json(g));
    Json out = Json::object();
    out.set("gemm", std::move(gemm));
    // Without efficiencies attention was not measured: absent, as reading requires them.
    if (!c.attention.forward.efficiency.empty()) out.set("attention", to_json(c.attention));
    return out.set("memory_bound", to_json(c.memory_bound));
}

}  // namespace foretrain
