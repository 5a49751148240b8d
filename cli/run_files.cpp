#include "cli/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "hardware/cluster_file.h"
#include "plan/corrections.h"
#include "plan/framework.h"
#include "plan/framework_file.h"

namespace foretrain::cli {

namespace {

// Names by which a run's framework may be asked for.
std::set<std::string> frameworks_of(const RunRecord& record) {
    std::set<std::string> names{record.framework};
    if (record.plan) {
        const Framework& f = framework_named(record.plan->framework);
        names.insert({f.name, f.name + "@" + f.version});
    }
    return names;
}

template <class Names>
void keep(const Options& options, const char* option, std::vector<RunRecord>& records, Names names_of) {
    if (!options.has(option)) return;
    std::set<std::string> known;
    for (const RunRecord& record : records)
        for (const std::string& name : names_of(record))
            if (!name.empty()) known.insert(name);
    const std::vector<std::string> wanted = options.list(option);
    for (const std::string& name : wanted)
        if (known.count(name) == 0)
            option_error(option, fmt::format("\"{}\"", name.substr(0, 80)),
                         fmt::format("of those in the files: {}", fmt::join(known, ", ")),
                         nearest(name.substr(0, 80), {known.begin(), known.end()}));
    std::erase_if(records, [&](const RunRecord& record) {
        const std::set<std::string> names = names_of(record);
        return std::none_of(wanted.begin(), wanted.end(),
                            [&](const std::string& name) { return names.count(name) > 0; });
    });
}

Corrections corrections_from(const Options& options) {
    Corrections out;
    if (options.has("framework-file"))
        for (const std::string& path : options.list("framework-file"))
            for (Framework& f : frameworks_from_json(Json::parse_file(path))) out.frameworks.push_back(std::move(f));
    if (options.has("cluster-file"))
        for (const std::string& path : options.list("cluster-file")) out.clusters.push_back(read_cluster(path));
    return out;
}

}  // namespace

std::vector<OptionGroup> run_option_groups() {
    return {
        {"Which runs",
         {{"source", "NAME,...", "of these sources: ids without their last part, \"sc21-t1\""},
          {"framework", "NAME,...", "of these frameworks, or versions of them: \"fsdp@composer\""}}},
        {"Corrected by",
         {{"framework-file", "FILE,...", "profiles in place of those of the same name and version"},
          {"cluster-file", "FILE,...", "clusters: their devices' calibration and links in place of those so named"}}}};
}

std::vector<RunRecord> read_run_files(const std::vector<std::string>& paths) {
    if (paths.empty())
        throw UserError({.file = "command line",
                         .field = "FILE",
                         .found = "none",
                         .expected = "one or more files of run records, one record a line"});
    std::vector<RunRecord> records;
    for (const std::string& path : paths) {
        const std::size_t before = records.size();
        read_run_records(Json::parse_lines_of(path), records);
        if (records.size() == before)
            throw UserError({.file = path, .found = "no run record", .expected = "one or more, one a line"});
    }
    return records;
}

void choose_runs(const Options& options, std::vector<RunRecord>& records) {
    keep(options, "source", records, [](const RunRecord& r) { return std::set<std::string>{r.group}; });
    keep(options, "framework", records, frameworks_of);
    const Corrections corrections = corrections_from(options);
    for (RunRecord& record : records)
        if (record.plan) correct(*record.plan, corrections);
}

}  // namespace foretrain::cli
