// `foretrain frameworks`: the profiles of software that plans are predicted for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

#include "base/error.h"
#include "cli/preset_show.h"
#include "plan/framework.h"
#include "reports/figures.h"
#include "reports/text_table.h"

namespace foretrain::cli {

namespace {

constexpr std::size_t columns = 100;

std::vector<std::string> references() {
    std::vector<std::string> all;
    for (const std::string& name : framework_names())
        for (const std::string& version : framework_versions(name)) all.push_back(name + "@" + version);
    return all;
}

Framework read_framework(const std::string& reference) { return framework_named(reference); }

template <class T, class Name>
std::vector<std::string> names_of(const std::vector<T>& values, Name name) {
    std::vector<std::string> names;
    for (const T& v : values) names.emplace_back(name(v));
    return names;
}

std::vector<std::string> stages(const std::vector<int>& zero) {
    return names_of(zero, [](int z) { return std::to_string(z); });
}
std::vector<std::string> recompute_forms(const Framework& f) {
    return names_of(f.recompute, [](Recompute::Kind k) { return name_of(k); });
}
std::vector<std::string> context_methods(const Framework& f) {
    return names_of(f.context_methods, [](ContextMethod c) { return name_of(c); });
}
std::vector<std::string> schedules(const Framework& f) {
    return names_of(f.schedules, [](Schedule s) { return name_of(s); });
}
std::vector<std::string> precisions(const Framework& f) {
    return names_of(f.precisions, [](DType t) { return name_of(t); });
}

std::string joined(const std::vector<std::string>& names) {
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// In a table's cell: the first letters of a form, and "a2a".
std::string short_forms(const std::vector<std::string>& names) {
    std::vector<std::string> parts;
    for (const std::string& name : names)
        if (name != "none")
            parts.push_back(name == "all-to-all" ? "a2a" : name.substr(0, std::min<std::size_t>(4, name.find(' '))));
    return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, " "));
}

std::string by_name_only() {
    std::vector<std::string> names;
    for (const std::string& reference : references())
        if (framework_named(reference).by_name_only) names.push_back(reference);
    return joined(names);
}

std::string frameworks_table() {
    TextTable t({"framework", "version", "ZeRO", "schedules", "recompute", "context"}, 6);
    for (const std::string& reference : references()) {
        const Framework& f = framework_named(reference);
        t.row({f.name, f.version, fmt::format("{}", fmt::join(f.zero_stages, " ")),
               f.has_pipeline ? fmt::format("{}{}", fmt::join(schedules(f), " "), f.interleaves ? " v" : "") : "-",
               short_forms(recompute_forms(f)), short_forms(context_methods(f))});
    }
    return t.text() +
           wrapped(
               "Of a framework the newest version is meant where none is named: its last, but for versions of one way "
               "to use it (" +
                   by_name_only() +
                   "). schedules: v also "
                   "interleaved, - no pipeline; recompute: sele selective, bloc N layers of a stage, segm in groups, "
                   "ever each Nth layer; context: ring, a2a all-to-all. `foretrain frameworks show NAME[@VERSION]` has "
                   "the "
                   "rest and the sources.",
               0, columns);
}

std::string framework_text(const Framework& f) {
    TextTable t({"", ""}, 2);
    t.row({"versions",
           joined(framework_versions(f.name)) + "; " + framework_named(f.name).version + " where none is named"});
    t.row({"ZeRO", joined(stages(f.zero_stages)) +
                       (f.zero_stages_in_part.empty()
                            ? ""
                            : "; over a part of the replicas: " + joined(stages(f.zero_stages_in_part)))});
    t.row({"tensor ranks", f.has_tensor_ranks ? "yes" : "no"});
    t.row({"schedules", f.has_pipeline ? joined(schedules(f)) + (f.interleaves ? ", also interleaved" : "")
                                       : std::string("no pipeline")});
    t.row({"recompute", joined(recompute_forms(f))});
    t.row({"context", joined(context_methods(f))});
    t.row({"precisions", joined(precisions(f))});
    if (f.step_spread > 0)
        t.row({"interval", fmt::format("+-{:.0f} % of a step, four times of five", 100 * f.step_spread)});
    t.row({"executed", f.runnable ? "by foretrain run" : "no, predicted alone"});
    std::string s = fmt::format("{} ({})\n{}  sources\n", f.name, f.version, t.text(2));
    for (const auto& [field, source] : f.sources) s += wrapped(field + ": " + source, 4, columns);
    return s;
}

Json texts(const std::vector<std::string>& names) {
    Json array = Json::array();
    for (const std::string& name : names) array.push(Json(name));
    return array;
}

Json numbers(const std::vector<int>& values) {
    Json array = Json::array();
    for (const int v : values) array.push(Json(std::int64_t{v}));
    return array;
}

Json framework_json(const Framework& f) {
    Json sources = Json::object();
    for (const auto& [field, source] : f.sources) sources.set(field, source);
    Json out = Json::object();
    out.set("name", f.name).set("version", f.version).set("versions", texts(framework_versions(f.name)));
    out.set("runnable", f.runnable).set("zero_stages", numbers(f.zero_stages));
    out.set("zero_stages_in_part", numbers(f.zero_stages_in_part));
    out.set("has_tensor_ranks", f.has_tensor_ranks).set("has_pipeline", f.has_pipeline);
    out.set("schedules", texts(schedules(f))).set("interleaves", f.interleaves);
    out.set("recompute", texts(recompute_forms(f))).set("context_methods", texts(context_methods(f)));
    out.set("precisions", texts(precisions(f)));
    out.set("step_spread", f.step_spread > 0 ? Json(f.step_spread) : Json());
    return out.set("sources", std::move(sources));
}

}  // namespace

int run_frameworks(const Arguments& arguments, Console& console) {
    return show(Presets<Framework>{"frameworks", "framework", "NAME[@VERSION]", references, read_framework,
                                   frameworks_table, framework_text, framework_json},
                arguments, console);
}

}  // namespace foretrain::cli
