#include "sim/fit_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "hardware/cluster_file.h"
#include "plan/framework_file.h"

namespace foretrain {

namespace {

std::string fitted_to(const FitModel& model) {
    constexpr std::size_t most_named = 3;
    std::set<std::string> sources;
    for (const FitRun& run : model.runs()) sources.insert(run.source);
    const std::size_t n = model.runs().size();
    std::string of = sources.size() <= most_named ? fmt::format("{}", fmt::join(sources, ", "))
                                                  : fmt::format("{} sources", sources.size());
    return fmt::format("corrected by foretrain fit to {} run{} of {}", n, n == 1 ? "" : "s", of);
}

// Of a group of costs, what differs. A list, and what is read as a whole, is given whole.
Json differing(const std::string& group, const Json& before, const Json& after) {
    if (group == "attention" || group == "unfused_attention" || group == "gemm" || !after.is_object()) return after;
    Json out = Json::object();
    for (const std::string& key : after.keys())
        if (after.at(key).dump(-1) != before.at(key).dump(-1)) out.set(key, after.at(key));
    return out;
}

// {"version", "like", "costs", "sources"}
Json version_json(const Framework& before, const Framework& after, const std::string& why) {
    const Json was = costs_to_json(before.costs), is = costs_to_json(after.costs);
    Json costs = Json::object(), sources = Json::object();
    for (const std::string& group : is.keys()) {
        if (is.at(group).dump(-1) == was.get(group).dump(-1)) continue;
        costs.set(group, differing(group, was.get(group), is.at(group)));
        const auto old = before.sources.find(group);
        sources.set(group, old == before.sources.end() ? why : why + "; before: " + old->second);
    }
    Json out = Json::object();
    return out.set("version", before.version)
        .set("like", before.name + "@" + before.version)
        .set("costs", std::move(costs))
        .set("sources", std::move(sources));
}

// The user's own profile is like no embedded one: it is written whole.
Json own_version_json(Framework after, const std::string& why) {
    const auto of = [](const Framework& f) { return framework_file_json({f}).at("versions").items().front(); };
    for (const std::string& group : costs_to_json(after.costs).keys()) after.sources[group] = why;
    return of(after);
}

void add_frameworks(const FitModel& model, const LogFactors& factors, std::vector<FitFile>& out) {
    const std::string why = fitted_to(model);
    std::map<std::string, std::map<std::string, Json>> versions;  // by name and version
    for (const FitRun& run : model.runs()) {
        const Framework& before = framework_named(run.plan.framework);
        if (versions[before.name].count(before.version) > 0) continue;
        Framework after = before;
        model.correct(after, factors);
        if (after.costs == before.costs) continue;
        versions[before.name].emplace(before.version, run.plan.framework.own() == nullptr
                                                          ? version_json(before, after, why)
                                                          : own_version_json(after, why));
    }
    for (const auto& [name, of_name] : versions) {
        if (of_name.empty()) continue;
        Json list = Json::array();
        for (const auto& [version, json] : of_name) list.push(json);
        Json file = Json::object();
        file.set("format", "foretrain.framework/1").set("name", name).set("versions", std::move(list));
        out.push_back({name + ".json", file.dump() + "\n", "--framework NAME@" + of_name.rbegin()->first});
    }
}

template <class Constants>
void note(const Constants& before, Constants& after, const std::string& why) {
    if (after == before) return;
    after.born.source = after.born.source.empty() ? why : after.born.source + "; " + why;
}

void note(const ClusterSpec& before, ClusterSpec& after, const std::string& why) {
    Calibration& c = after.device.calibration;
    const Calibration& was = before.device.calibration;
    for (std::size_t i = 0; i < c.gemm.size(); ++i) note(was.gemm[i], c.gemm[i], why);
    note(was.attention, c.attention, why);
    note(was.memory_bound, c.memory_bound, why);
    note(before.domain, after.domain, why);
    note(before.network.constants, after.network.constants, why);
}

// One for each device, its largest run's.
void add_clusters(const FitModel& model, const LogFactors& factors, std::vector<FitFile>& out) {
    std::map<std::string, ClusterSpec> by_device;
    for (const FitRun& run : model.runs()) {
        const auto [place, is_new] = by_device.emplace(run.plan.cluster.device.name, run.plan.cluster);
        if (!is_new && run.plan.cluster.devices() > place->second.devices()) place->second = run.plan.cluster;
    }
    const std::string why = fitted_to(model);
    for (const auto& [device, before] : by_device) {
        ClusterSpec after = before;
        model.correct(after, factors);
        if (after == before) continue;
        note(before, after, why);
        out.push_back({device + ".json", cluster_to_json(after).dump() + "\n", "--cluster NAME --gpus N"});
    }
}

}  // namespace

std::vector<FitFile> fit_files(const FitModel& model, const LogFactors& factors) {
    std::vector<FitFile> out;
    add_frameworks(model, factors, out);
    add_clusters(model, factors, out);
    return out;
}

}  // namespace foretrain
