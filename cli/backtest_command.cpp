// `foretrain backtest`: runs that were measured, predicted, and how far off that is.
#include <fmt/format.h>

#include <ostream>

#include "cli/options.h"
#include "cli/run_files.h"
#include "cli/sweep_options.h"
#include "reports/backtest_report.h"
#include "reports/scatter.h"
#include "sim/backtest.h"

namespace foretrain::cli {

namespace {

Syntax backtest_syntax() {
    OptionGroup output = output_options();
    output.options.push_back({"summary", "", "leave out the line for each run"});
    output.options.push_back({"scatter", "FILE", "write a picture there: predicted against measured (SVG)"});
    output.options.push_back({"threads", "N", "to predict with (all cores); the answer is the same"});
    std::vector<OptionGroup> groups = run_option_groups();
    groups.push_back(std::move(output));
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
                     "foretrain backtest runs.jsonl --framework megatron-lm@2024 --format csv --output errors.csv",
                     "foretrain backtest runs.jsonl --framework-file fitted/megatron-lm.json --summary"},
        .groups = std::move(groups),
        .positional = most_run_files};
}

}  // namespace

int run_backtest(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(backtest_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    BacktestOptions how{.threads = static_cast<int>(options->integer_or("threads", 0, 1, 4096)), .progress = {}};
    std::vector<RunRecord> records = read_run_files(options->positional());
    choose_runs(*options, records);
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
