// `foretrain backtest`: runs that were measured, predicted, and how far off that is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "cli/options.h"
#include "cli/sweep_options.h"
#include "plan/framework.h"
#include "reports/backtest_report.h"
#include "reports/scatter.h"
#include "sim/backtest.h"

namespace foretrain::cli {

namespace {

constexpr std::size_t most_files = 1000;

Syntax backtest_syntax() {
    OptionGroup output = output_options();
    output.options.push_back({"summary", "", "leave out the line for each run"});
    output.options.push_back({"scatter", "FILE", "write a picture there: predicted against measured (SVG)"});
    output.options.push_back({"threads", "N", "to predict with (all cores); the answer is the same"});
    return {
        .usage = "foretrain backtest FILE... [options]",
        .summary =
            "Predicts runs that were measured and prints how far off the predictions are: by source, framework,\n"
            "GPU and scale; whether faster plans are told from slower ones; memory where it was measured.\n"
            "A file holds one run record a line: a plan with an id, the software that ran it, and what was\n"
            "measured (README.md, \"File forms\"). What cannot be predicted is refused with the reason and counted.\n"
            "Exits with 1 if no run can be predicted.",
        .examples = {"foretrain backtest runs.jsonl",
                     "foretrain backtest published.jsonl ours.jsonl --summary --scatter errors.svg",
                     "foretrain backtest runs.jsonl --framework megatron-lm@2024 --format csv --output errors.csv"},
        .groups = {{"Which runs",
                    {{"source", "NAME,...", "of these sources: ids without their last part, \"sc21-t1\""},
                     {"framework", "NAME,...", "of these frameworks, or versions of them: \"fsdp@composer\""}}},
                   std::move(output)},
        .positional = most_files};
}

std::vector<RunRecord> read_files(const Options& options) {
    if (options.positional().empty())
        throw UserError({.file = "command line",
                         .field = "FILE",
                         .found = "none",
                         .expected = "one or more files of run records, one record a line"});
    std::vector<RunRecord> records;
    for (const std::string& path : options.positional()) {
        const std::size_t before = records.size();
        read_run_records(Json::parse_lines_of(path), records);
        if (records.size() == before)
            throw UserError({.file = path, .found = "no run record", .expected = "one or more, one a line"});
    }
    return records;
}

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

}  // namespace

int run_backtest(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(backtest_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    BacktestOptions how{.threads = static_cast<int>(options->integer_or("threads", 0, 1, 4096)), .progress = {}};
    std::vector<RunRecord> records = read_files(*options);
    keep(*options, "source", records, [](const RunRecord& r) { return std::set<std::string>{r.group}; });
    keep(*options, "framework", records, frameworks_of);
    check_output(*options);
    if (console.interactive)
        how.progress = [&console](std::int64_t finished, std::int64_t of) {
            console.err << fmt::format("\rbacktest: {} of {}", finished, of) << std::flush;
        };
    const std::vector<BacktestRow> rows = backtest(std::move(records), how);
    clear_progress(console);
    if (options->has("scatter")) {
        write_file("scatter", options->text("scatter"), scatter_svg(rows));
        say_written(console, options->text("scatter"));
    }
    const BacktestSummary summary = summary_of(rows);
    if (format == "json")
        write_result(*options, console, backtest_json(rows).dump() + "\n");
    else if (format == "csv")
        write_result(*options, console, backtest_csv(rows));
    else
        write_result(*options, console,
                     (options->has("summary") ? "" : backtest_rows_table(rows)) + backtest_summary_table(summary));
    return summary.predicted > 0 ? done : answer_is_no;
}

}  // namespace foretrain::cli
