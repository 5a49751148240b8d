// `foretrain fit`: constants of frameworks, devices and links, fitted to steps that were measured.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>

#include "base/error.h"
#include "cli/options.h"
#include "cli/run_files.h"
#include "cli/sweep_options.h"
#include "hardware/cluster_file.h"
#include "hardware/nccl_tests.h"
#include "plan/check.h"
#include "plan/corrections.h"
#include "plan/plan_file.h"
#include "plan/training_log.h"
#include "reports/fit_report.h"
#include "sim/fit_files.h"
#include "sim/fit_study.h"

namespace foretrain::cli {

namespace {

namespace fs = std::filesystem;

Syntax fit_syntax() {
    std::vector<OptionGroup> groups{
        {"What was measured",
         {{"records", "FILE,...", "files of run records, as the FILEs"},
          {"plan", "FILE", "the plan that ran, beside --log"},
          {"log", "FILE", "what its training printed: Megatron-LM, torchtitan or DeepSpeed"},
          {"nccl", "FILE,...", "outputs of nccl-tests on --cluster: its links take what they reached"},
          {"cluster", "NAME|FILE", "the cluster of --nccl"},
          {"nodes", "N", "nodes of that cluster"}}}};
    for (OptionGroup& group : run_option_groups()) groups.push_back(std::move(group));
    groups.push_back({"Fit",
                      {{"constants", "PATTERN", "only those whose name or path matches, \"*.costs.host.*\" (all)"},
                       {"folds", "N", "fit again without a part of the runs, N times, and judge each on its part"},
                       {"leave-one-source-out", "", "fit again without each source, and judge each on it"},
                       {"given", "N", "beside that: correct the fit by N runs of the source, and judge on the rest"},
                       {"seed", "N", "of the folds and of the runs given (1)"},
                       {"threads", "N", "to predict with (all cores); the answer is the same"}}});
    groups.push_back({"Output",
                      {{"format", "table|json|csv", "of the result (table); csv: the constants"},
                       {"output", "FOLDER", "write the corrected profiles and clusters there"}}});
    return {.usage = "foretrain fit FILE... [options]",
            .summary =
                "Fits the free constants of frameworks, devices and links to steps that were measured, and prints\n"
                "for each what it was, what it became and which runs it rests on. A constant moves no further from\n"
                "what was believed than the runs demand: hundreds of runs decide, one run corrects what it rests on.\n"
                "With --output it writes profiles and clusters that estimate, sweep and backtest accept.\n"
                "Exits with 1 if no run can be predicted.",
            .examples = {"foretrain fit published.jsonl --folds 5 --leave-one-source-out --given 1",
                         "foretrain fit ours.jsonl --output fitted",
                         "foretrain fit --plan ours.json --log train.log --output fitted",
                         "foretrain fit --nccl all_reduce.txt,all_gather.txt --cluster dgx-h100 --output fitted",
                         "foretrain estimate --plan ours.json --framework fitted/megatron-lm.json"},
            .groups = std::move(groups),
            .positional = most_run_files};
}

std::string contents(const std::string& option, const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file || fs::is_directory(path)) option_error(option, path, "a file that can be read");
    return text;
}

// A run of its own: the plan and what its log tells.
RunRecord logged_run(const Options& options) {
    if (!options.has("plan"))
        option_error("log", "it without --plan", "the plan that ran, which the log does not tell");
    RunRecord run;
    run.plan = plan_from_json(Json::parse_file(options.text("plan")));
    const std::string path = options.text("log");
    const TrainingLog log = read_training_log(contents("log", path), path,
                                              {.global_batch_size = run.plan->training.global_batch_size,
                                               .sequence_length = run.plan->training.sequence_length,
                                               .devices = run.plan->world()});
    run.id = fs::path(path).filename().string();
    run.source = run.group = log.software + " log";
    run.place = path;
    run.measured.step_time_s = log.step_time_s();
    return run;
}

std::vector<RunRecord> measured_runs(const Options& options) {
    std::vector<std::string> paths = options.positional();
    if (options.has("records"))
        for (const std::string& path : options.list("records")) paths.push_back(path);
    std::vector<RunRecord> records;
    if (!paths.empty() || !(options.has("log") || options.has("nccl"))) records = read_run_files(paths);
    if (options.has("log")) records.push_back(logged_run(options));
    if (options.has("plan") && !options.has("log")) option_error("plan", "it without --log", "the log of its run");
    return records;
}

// The cluster of --nccl with the links as they were measured.
ClusterSpec measured_cluster(const Options& options) {
    if (!options.has("cluster")) option_error("nccl", "it without --cluster", "the cluster that the tests ran on");
    ClusterSpec cluster = for_option("cluster", [&] { return read_cluster(options.text("cluster")); });
    if (options.has("nodes"))
        for_option("nodes", [&] { scale_to_nodes(cluster, options.integer("nodes", 1, std::int64_t{1} << 24)); });
    for (const std::string& path : options.list("nccl"))
        set_measured(cluster, read_nccl_test(contents("nccl", path), path), path);
    return cluster;
}

// Those that a fit can use; of the others the reasons are counted.
std::vector<FitRun> fit_runs(std::vector<RunRecord> records, std::map<std::string, std::size_t>& left_out) {
    std::vector<FitRun> runs;
    for (RunRecord& r : records) {
        std::string reason = r.refused;
        if (reason.empty() && !r.measured.step_time_s) reason = "no step time";
        if (reason.empty())
            if (const std::vector<Rejection> no = check(*r.plan); !no.empty()) reason = no.front().reason;
        if (!reason.empty()) {
            ++left_out[reason];
            continue;
        }
        runs.push_back({r.id, r.group, std::move(*r.plan), *r.measured.step_time_s});
    }
    return runs;
}

StudySettings study_from(const Options& options, const FitModel& model, Console& console) {
    constexpr std::int64_t most_folds = 1000;
    StudySettings s;
    const auto runs = static_cast<std::int64_t>(model.runs().size());
    if (options.has("folds")) {
        s.folds = static_cast<int>(options.integer("folds", 2, most_folds));
        if (s.folds > runs) option_error("folds", options.text("folds"), fmt::format("at most the {} runs", runs));
    }
    s.without_source = options.has("leave-one-source-out");
    if (s.without_source)
        if (const auto& all = model.runs();
            std::all_of(all.begin(), all.end(), [&](const FitRun& r) { return r.source == all.front().source; }))
            option_error("leave-one-source-out", "runs of one source alone", "runs of two sources or more");
    if (options.has("given") && !s.without_source)
        option_error("given", "it alone", "it beside --leave-one-source-out");
    s.given = static_cast<std::size_t>(options.integer_or("given", 0, 0, 1000));
    s.seed = static_cast<std::uint64_t>(options.integer_or("seed", 1, 0, INT64_MAX));
    if (console.interactive)
        s.progress = [&console](const std::string& what, double part) {
            console.err << fmt::format("\rfit: {:<32} {:3.0f} %", what.substr(0, 32), 100 * part) << std::flush;
        };
    return s;
}

void write_files(const Options& options, Console& console, const std::vector<FitFile>& files) {
    if (!options.has("output")) return;
    const std::string folder = options.text("output");
    for (const FitFile& file : files) {
        const std::string path = (fs::path(folder) / file.name).string();
        write_file("output", path, file.text);
        std::string use = file.used;
        use.replace(use.find("NAME"), 4, path);
        console.err << "foretrain: wrote " << path << ": " << use << '\n';
    }
}

// Before long work.
void check_folder(const Options& options) {
    if (!options.has("output")) return;
    std::error_code error;
    fs::create_directories(options.text("output"), error);
    if (error) option_error("output", options.text("output"), "a folder that can be made: " + error.message());
}

std::string text_of(const FitReport& report, const std::string& format) {
    if (format == "json") return fit_json(report).dump() + "\n";
    return format == "csv" ? fit_csv(report) : fit_table(report);
}

}  // namespace

int run_fit(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(fit_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    std::vector<RunRecord> records = measured_runs(*options);
    if (!records.empty()) choose_runs(*options, records);
    check_folder(*options);
    if (options->has("nccl")) {
        const ClusterSpec cluster = measured_cluster(*options);
        write_files(*options, console,
                    {{cluster.name + ".json", cluster_to_json(cluster).dump() + "\n", "--cluster NAME"}});
        if (!options->has("output")) console.out << cluster_to_json(cluster).dump() << '\n';
        if (records.empty()) return done;
        for (RunRecord& r : records)
            if (r.plan) correct(*r.plan, {.frameworks = {}, .clusters = {cluster}});
    }
    const std::vector<ConstantRule> rules =
        for_option("constants", [&] { return constant_rules(options->text_or("constants", "*")); });
    std::map<std::string, std::size_t> left_out;
    const FitModel model(fit_runs(std::move(records), left_out), rules,
                         static_cast<int>(options->integer_or("threads", 0, 1, 4096)));
    if (model.runs().empty()) {
        console.err << "foretrain: no run that can be predicted has a step time\n";
        return answer_is_no;
    }
    if (model.constants().empty())
        option_error("constants", options->text_or("constants", "*"), "constants that act on these runs");
    LogFactors factors;
    FitReport report = fit_study(model, study_from(*options, model, console), factors);
    report.left_out = std::move(left_out);
    clear_progress(console);
    console.out << text_of(report, format);
    write_files(*options, console, fit_files(model, factors));
    return done;
}

}  // namespace foretrain::cli
