#include "plan/framework_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "plan/framework_fields.h"

namespace foretrain {

namespace {

constexpr const char* framework_format = "foretrain.framework/1";

const std::vector<std::string> schedule_names{"gpipe", "1f1b"};
const std::vector<std::string> recompute_names{"none",    "selective", "full",         "block",
                                               "segment", "every",     "selective_op", "offload"};
const std::vector<std::string> context_method_names{"ring", "all-to-all"};
const std::vector<std::string> precision_names{"fp32", "fp64", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"};
const std::vector<std::string> attention_names{"unfused", "flash1", "flash2", "flash3", "cudnn"};
const std::vector<std::string> half_gradient_names{"fp32", "bf16", "fp16"};

// Element i of an enum whose values these are the names of.
template <class Enum>
void list_of(FieldReader& in, const char* key, const std::vector<std::string>& names, std::vector<Enum>& out) {
    const Json value = in.take(key);
    if (value.is_null()) return;
    out.clear();
    for (const Json& item : value.items()) out.push_back(static_cast<Enum>(item.one_of(names)));
}

template <class Enum>
Json list_of(const std::vector<Enum>& values, const std::vector<std::string>& names) {
    Json out = Json::array();
    for (const Enum v : values) out.push(Json(names[static_cast<std::size_t>(v)]));
    return out;
}

void stages_of(FieldReader& in, const char* key, int least, std::vector<int>& out) {
    const Json value = in.take(key);
    if (value.is_null()) return;
    out.clear();
    for (const Json& z : value.items()) out.push_back(static_cast<int>(z.integer(least, 3)));
}

Json stages_of(const std::vector<int>& stages) {
    Json out = Json::array();
    for (const int z : stages) out.push(Json(z));
    return out;
}

void read_abilities(FieldReader& in, const Json& value, Framework& f) {
    stages_of(in, "zero_stages", 0, f.zero_stages);
    stages_of(in, "zero_stages_in_part", 1, f.zero_stages_in_part);
    list_of(in, "schedules", schedule_names, f.schedules);
    list_of(in, "recompute", recompute_names, f.recompute);
    list_of(in, "context_methods", context_method_names, f.context_methods);
    if (const Json precisions = in.take("precisions"); !precisions.is_null()) {
        f.precisions.clear();
        for (const Json& p : precisions.items())
            f.precisions.push_back(*dtype_from_name(precision_names[p.one_of(precision_names)]));
    }
    if (const Json type = in.take("half_gradient"); !type.is_null())
        f.half_gradient = *dtype_from_name(half_gradient_names[type.one_of(half_gradient_names)]);
    f.by_name_only = false;                                       // each version's own
    if (value.has("step_spread")) f.step_spread_assumed = false;  // that of the version that it is like
    visit(in, f);
}

Json abilities_of(Framework f) {
    Json out = Json::object(), precisions = Json::array();
    for (const DType t : f.precisions) precisions.push(Json(name_of(t)));
    out.set("zero_stages", stages_of(f.zero_stages))
        .set("zero_stages_in_part", stages_of(f.zero_stages_in_part))
        .set("schedules", list_of(f.schedules, schedule_names))
        .set("recompute", list_of(f.recompute, recompute_names))
        .set("context_methods", list_of(f.context_methods, context_method_names))
        .set("precisions", std::move(precisions))
        .set("half_gradient", name_of(f.half_gradient));
    FieldWriter w(out);
    visit(w, f);
    return out;
}

template <class Costs>
void read_group(FieldReader& costs, const char* key, Costs& out) {
    const Json value = costs.take(key);
    if (value.is_null()) return;
    FieldReader in(value);
    visit(in, out);
    in.finish();
}

template <class Costs>
Json group_of(Costs costs) {
    Json out = Json::object();
    FieldWriter w(out);
    visit(w, costs);
    return out;
}

// {"layer": 10, "each": 2}, both or none.
void read_operations(FieldReader& experts, const char* key, ExpertCosts::Operations& out) {
    const Json value = experts.take(key);
    if (value.is_null()) return;
    FieldReader in(value);
    for (const char* part : {"layer", "each"}) in.require(part);
    visit(in, out);
    in.finish();
}

void read_experts(const Json& value, ExpertCosts& e) {
    FieldReader in(value);
    read_operations(in, "forward_operations", e.forward_operations);
    read_operations(in, "backward_operations", e.backward_operations);
    visit(in, e);
    in.finish();
}

Json experts_of(const ExpertCosts& e) {
    Json out = group_of(e);
    return out.set("forward_operations", group_of(e.forward_operations))
        .set("backward_operations", group_of(e.backward_operations));
}

UnfusedAttention unfused_from(const Json& value) {
    UnfusedAttention u;
    FieldReader in(value);
    for (const char* key : {"product_efficiency", "forward_bytes", "backward_bytes"}) in.require(key);
    visit(in, u);
    in.finish();
    return u;
}

// By the device's dense bf16 peak in TFLOP/s.
void read_kinds(const Json& value, std::vector<std::pair<int, AttentionKind>>& out) {
    out.clear();
    for (const std::string& from : value.keys()) {
        int peak = 0;
        const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), peak);
        if (error != std::errc{} || end != from.data() + from.size() || peak < 1)
            value.at(from).fail("\"" + from + "\"", "TFLOP/s as key");
        out.emplace_back(peak, static_cast<AttentionKind>(value.at(from).one_of(attention_names)));
    }
    std::sort(out.begin(), out.end());
}

void read_memory(const Json& value, MemoryCosts& m) {
    FieldReader in(value);
    if (const Json kinds = in.take("attention"); !kinds.is_null()) read_kinds(kinds, m.attention);
    visit(in, m);
    in.finish();
}

Json memory_of(const MemoryCosts& m) {
    Json out = group_of(m), kinds = Json::object();
    for (const auto& [from, kind] : m.attention)
        kinds.set(std::to_string(from), attention_names[static_cast<std::size_t>(kind)]);
    return out.set("attention", std::move(kinds));
}

// Unfused, or factors on what was measured, never both.
void read_attention(const Json& value, SoftwareCosts& c) {
    c.attention.clear();
    c.unfused = {};
    if (value.is_object()) {
        c.unfused = unfused_from(value);
        return;
    }
    for (const Json& item : value.items()) {
        FieldReader in(item);
        for (const char* key : {"measured", "forward", "backward"}) in.require(key);
        visit(in, c.attention.emplace_back());
        in.finish();
    }
}

Json attention_of(const SoftwareCosts& c) {
    if (c.unfused.product_efficiency > 0) return group_of(c.unfused);
    Json out = Json::array();
    for (const AttentionFactor& factor : c.attention) out.push(group_of(factor));
    return out;
}

void read_costs(const Json& value, SoftwareCosts& c) {
    FieldReader in(value);
    read_group(in, "host", c.host);
    read_group(in, "stall", c.stall);
    read_group(in, "messages", c.messages);
    read_group(in, "overlap", c.overlap);
    read_group(in, "traffic", c.traffic);
    if (const Json experts = in.take("experts"); !experts.is_null()) read_experts(experts, c.experts);
    if (const Json attention = in.take("attention"); !attention.is_null()) read_attention(attention, c);
    if (const Json asked = in.take("unfused_attention"); !asked.is_null()) c.unfused_if_asked = unfused_from(asked);
    visit(in, c);
    in.finish();
}

// Those that need no source: what is no figure, and what the source of another figure says.
bool needs_source(const std::string& key) {
    for (const char* none : {"version", "like", "costs", "sources", "runnable", "by_name_only", "step_spread_assumed"})
        if (key == none) return false;
    return true;
}

// "2022-05", which sorts as texts do.
void check_month(const Json& value, const char* key, const std::string& month) {
    const auto digits = [&](std::size_t from, std::size_t n) {
        return std::all_of(month.begin() + static_cast<std::ptrdiff_t>(from),
                           month.begin() + static_cast<std::ptrdiff_t>(from + n),
                           [](char c) { return '0' <= c && c <= '9'; });
    };
    if (!month.empty() && (month.size() != 7 || month[4] != '-' || !digits(0, 4) || !digits(5, 2)))
        value.at(key).fail(value.at(key).found(), "a month, as in 2022-05");
}

VersionRuns runs_from(const Json& value) {
    VersionRuns runs;
    FieldReader in(value);
    visit(in, runs);
    if (const Json details = in.take("details"); !details.is_null())
        for (const Json& word : details.items()) runs.details.push_back(word.string());
    in.finish();
    check_month(value, "from_month", runs.from_month);
    check_month(value, "until_month", runs.until_month);
    return runs;
}

Json runs_of(VersionRuns runs) {
    Json out = Json::object(), details = Json::array();
    FieldWriter w(out);
    visit(w, runs);
    for (const std::string& word : runs.details) details.push(Json(word));
    return out.set("details", std::move(details));
}

// Each figure has a source, in its version or in that which it is like; else `otherwise`, unless empty.
void read_sources(const Json& version, const std::string& otherwise, Framework& f) {
    const Json stated = version.get("sources");
    if (!stated.is_null())
        for (const std::string& key : stated.keys()) f.sources[key] = stated.at(key).string();
    const auto check_source = [&](const Json& group, const std::string& key) {
        if (!otherwise.empty() && !stated.has(key)) f.sources[key] = otherwise;
        if (f.sources.count(key) == 0) group.at(key).fail("no source", "one in \"sources\" for each figure");
    };
    for (const std::string& key : version.keys())
        if (needs_source(key)) check_source(version, key);
    if (!version.has("costs")) return;
    for (const std::string& key : version.at("costs").keys()) check_source(version.at("costs"), key);
}

// What a version says, on top of what it is like.
void read_version(FieldReader& in, const Json& version, Framework& f) {
    read_abilities(in, version, f);
    if (const Json costs = in.take("costs"); !costs.is_null()) read_costs(costs, f.costs);
    if (const Json memory = in.take("memory"); !memory.is_null()) read_memory(memory, f.memory);
    if (const Json runs = in.take("stands_for"); !runs.is_null()) f.runs = runs_from(runs);
    in.take("sources");
    in.finish();
}

using Find = const Framework* (*)(std::string_view reference);

// The version that another begins as a copy of: one before it in its file, or of another framework one read before
// or that `find` knows.
Framework begun_as(const Json& like, const std::vector<Framework>& all, std::size_t first, Find find) {
    const std::string name = like.string();
    const std::size_t at = name.find('@');
    for (const Framework& f : all)
        if (at != std::string::npos && f.name == name.substr(0, at) && f.version == name.substr(at + 1)) return f;
    if (find != nullptr && at != std::string::npos) {
        if (const Framework* f = find(name)) return *f;
        UnknownFramework unknown = unknown_framework(name);
        like.fail(like.found(), "one of " + unknown.allowed, std::move(unknown.suggestion));
    }
    std::vector<std::string> before;
    for (std::size_t i = first; i < all.size(); ++i) before.push_back(all[i].version);
    return all[first + like.one_of(before)];
}

void read_file(const Json& file, Find find, std::vector<Framework>& out) {
    file.only_keys({"format", "name", "versions"});
    file.at("format").one_of({framework_format});
    const std::size_t first = out.size();
    for (const Json& version : file.at("versions").items()) {
        FieldReader in(version);
        Framework f;
        if (const Json like = in.take("like"); !like.is_null()) f = begun_as(like, out, first, find);
        // Whose runs it stands for is each version's own.
        f.runs = {};
        f.sources.erase("stands_for");
        f.name = file.at("name").name();
        in.require("version");
        f.version = in.take("version").name();
        read_version(in, version, f);
        read_sources(version, "", f);
        out.push_back(std::move(f));
    }
}

// Whether a reader takes the same for it as for a profile that says nothing.
Json without_defaults(const Json& value, const Json& defaults) {
    Json out = Json::object();
    for (const std::string& key : value.keys())
        if (value.at(key).dump(-1) != defaults.get(key).dump(-1)) out.set(key, value.at(key));
    return out;
}

Json version_of(const Framework& f) {
    const Framework nothing;
    Json out = Json::object();
    out.set("version", f.version);
    const Json abilities = without_defaults(abilities_of(f), abilities_of(nothing));
    for (const std::string& key : abilities.keys()) out.set(key, abilities.at(key));
    if (f.memory != nothing.memory) out.set("memory", memory_of(f.memory));
    const Json costs = without_defaults(costs_to_json(f.costs), costs_to_json(nothing.costs));
    if (!costs.keys().empty()) out.set("costs", costs);
    if (f.runs != nothing.runs) out.set("stands_for", runs_of(f.runs));
    Json sources = Json::object();
    for (const auto& [key, source] : f.sources) sources.set(key, source);
    return out.set("sources", std::move(sources));
}

}  // namespace

bool begins_as_another(const Preset& preset) {
    const Json file = Json::parse(preset.text, preset.name);
    for (const Json& version : file.at("versions").items())
        if (version.has("like") && version.at("like").string().find('@') != std::string::npos) return true;
    return false;
}

void read_frameworks(const Preset& preset, std::vector<Framework>& out) {
    read_file(Json::parse(preset.text, "framework " + std::string(preset.name)), nullptr, out);
}

std::vector<Framework> frameworks_from_json(const Json& file) {
    std::vector<Framework> out;
    read_file(file, find_framework, out);
    return out;
}

Json framework_file_json(const std::vector<Framework>& versions) {
    Json list = Json::array();
    for (const Framework& f : versions) list.push(version_of(f));
    Json out = Json::object();
    return out.set("format", framework_format).set("name", versions.front().name).set("versions", std::move(list));
}

Json costs_to_json(const SoftwareCosts& c) {
    Json out = Json::object();
    out.set("host", group_of(c.host))
        .set("stall", group_of(c.stall))
        .set("messages", group_of(c.messages))
        .set("overlap", group_of(c.overlap))
        .set("traffic", group_of(c.traffic))
        .set("experts", experts_of(c.experts))
        .set("attention", attention_of(c));
    if (c.unfused_if_asked.product_efficiency > 0) out.set("unfused_attention", group_of(c.unfused_if_asked));
    SoftwareCosts rest = c;
    FieldWriter w(out);
    visit(w, rest);
    return out;
}

SoftwareCosts costs_from_json(const Json& costs) {
    SoftwareCosts out;
    read_costs(costs, out);
    return out;
}

void override_framework(Framework& f, const Json& overrides) {
    FieldReader in(overrides);
    read_version(in, overrides, f);
    read_sources(overrides, "stated in the plan", f);
}

}  // namespace foretrain
