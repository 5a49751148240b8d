// `foretrain run`, `validate` and `calibrate`: they start foretrain-exec, which runs and measures;
// predicting and joining happen here.
#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "cli/launch.h"
#include "cli/plan_options.h"
#include "cli/processor_load.h"
#include "cli/table_calibration.h"
#include "plan/check.h"
#include "plan/plan_file.h"
#include "plan/program/lower.h"
#include "reports/prediction_report.h"
#include "reports/validate.h"
#include "reports/validation_report.h"
#include "sim/predict.h"

namespace foretrain::cli {

namespace {

constexpr std::int64_t most_steps = 1'000'000'000;

OptionGroup running_options(std::vector<Option> further) {
    OptionGroup group{"Running",
                      {{"steps", "N", "training steps (10)"},
                       {"seed", "N", "of initial weights and data (0)"},
                       {"force", "", "run although the plan does not fit in memory"}}};
    for (Option& option : further) group.options.push_back(std::move(option));
    return group;
}

// Says why the plan cannot be run, if so. Whether it fits is asked last, and can be overruled.
bool refused(const Plan& plan, bool forced, Console& console) {
    std::vector<Rejection> rejections = check(plan);
    const std::vector<Rejection> unrunnable = check_runnable(plan);
    rejections.insert(rejections.end(), unrunnable.begin(), unrunnable.end());
    if (rejections.empty())
        if (std::optional<Rejection> no = check_lowerable(make_skeleton(plan))) rejections.push_back(std::move(*no));
    for (const Rejection& r : rejections) console.err << "foretrain: refused: " << text(r) << '\n';
    if (!rejections.empty()) return true;
    for (const Rejection& r : estimate(plan).rejections) {
        console.err << fmt::format("foretrain: {}: {}{}\n", forced ? "warning" : "refused", text(r),
                                   forced ? "" : " (--force runs it all the same)");
        if (!forced) return true;
    }
    return false;
}

// foretrain-exec run of this plan; what follows `--` is passed on.
int execute(const Plan& plan, const TemporaryFolder& folder, const Options& options, std::int64_t steps,
            const std::string& trace, Output output, Console& console) {
    const std::string plan_file = folder.file("plan.json");
    write_file("plan", plan_file, plan_to_json(plan).dump() + "\n");
    Arguments arguments{"run", "--plan", plan_file, "--steps", fmt::format("{}", steps)};
    if (!trace.empty()) arguments.insert(arguments.end(), {"--trace", trace});
    if (options.has("seed"))
        arguments.insert(arguments.end(), {"--seed", fmt::format("{}", options.integer("seed", 0, INT64_MAX))});
    const Arguments& passed_on = options.after_dashes();
    arguments.insert(arguments.end(), passed_on.begin(), passed_on.end());
    return launch_exec(console, arguments, output);
}

Syntax validate_syntax() {
    Syntax syntax{.usage = "foretrain validate [options] [-- options of foretrain-exec run]",
                  .summary =
                      "Runs a plan, simulates the same program, and compares the two: step time, every kind of\n"
                      "instruction, bytes of memory and on the wire. With --measured the run is left out and its\n"
                      "trace read, e.g. one that `foretrain-exec run --plan F --trace T` wrote.",
                  .examples = {"foretrain validate --plan plan.json --steps 10",
                               "foretrain validate --model gpt-mini --cluster this-machine.json --tensor 2 \\",
                               "    --global-batch-size 8 --sequence-length 128 --precision fp32"},
                  .groups = plan_option_groups()};
    OptionGroup output = output_options();
    output.options.push_back({"trace", "FILE", "keep the measured trace there"});
    output.options.push_back({"measured", "FILE", "compare with this trace instead of running"});
    syntax.groups.push_back(
        running_options({{"warm-up", "N", "first steps that are left out (2, fewer if there are no more)"}}));
    syntax.groups.push_back(std::move(output));
    return syntax;
}

std::string report(const Validation& validation, const std::string& format) {
    if (format == "json") return validation_json(validation).dump() + "\n";
    if (format == "csv") return validation_csv(validation);
    return validation_table(validation);
}

std::size_t steps_of(const Trace& trace) { return trace.ranks.empty() ? 0 : trace.ranks.front().steps.size(); }

}  // namespace

int run_run(const Arguments& arguments, Console& console) {
    Syntax syntax{.usage = "foretrain run [options] [-- options of foretrain-exec run]",
                  .summary =
                      "Executes a plan on this machine. A plan that does not check, that another framework is\n"
                      "meant to run, or that does not fit is refused with exit code 1.",
                  .examples = {"foretrain run --plan plan.json --steps 20",
                               "foretrain run --plan plan.json --steps 20 --trace trace.json --seed 7"},
                  .groups = plan_option_groups()};
    syntax.groups.push_back(running_options({{"trace", "FILE", "write what was measured there"}}));
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    const std::int64_t steps = options->integer_or("steps", 10, 1, most_steps);
    const Plan plan = announced(plan_from_options(*options), console);
    if (refused(plan, options->has("force"), console)) return answer_is_no;
    const TemporaryFolder folder;
    const int code = execute(plan, folder, *options, steps, options->text_or("trace", ""), Output::inherit, console);
    if (code == done && options->has("trace")) say_written(console, options->text("trace"));
    return code;
}

int run_validate(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(validate_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    const std::int64_t steps = options->integer_or("steps", 10, 1, most_steps);
    const std::int64_t asked_warm_up = options->integer_or("warm-up", 0, 0, most_steps);
    for (const char* name : {"steps", "seed", "force", "trace"})
        if (options->has("measured") && options->has(name))
            option_error(name, "it beside --measured", "one of the two: with --measured nothing is run");
    if (!options->has("measured") && asked_warm_up >= steps)
        option_error("warm-up", fmt::format("{}", asked_warm_up),
                     fmt::format("fewer than the {} steps, so that one is left to compare", steps));
    const Plan plan = announced(plan_from_options(*options), console);
    if (refused(plan, options->has("force") || options->has("measured"), console)) return answer_is_no;
    check_output(*options);

    const TemporaryFolder folder;
    std::string trace_file = options->text_or("measured", "");
    if (trace_file.empty()) {
        trace_file = options->text_or("trace", folder.file("trace.json"));
        const ProcessorTimes before = processor_times();
        const int code = execute(plan, folder, *options, steps, trace_file, Output::to_error, console);
        if (code != done) return code;
        const double taken = taken_by_others(before, processor_times(), plan.world());
        if (taken > 0)
            console.err << fmt::format(
                "foretrain: warning: other programs had {:.1f} of the processors that the run needed; "
                "the error of its step is then not the prediction's alone\n",
                taken);
        if (options->has("trace")) say_written(console, trace_file);
    }
    const Trace measured = trace_from_json(Json::parse_file(trace_file));
    Trace simulated;
    const Prediction prediction = simulate(plan, &simulated);
    const auto taken = static_cast<std::int64_t>(steps_of(measured));
    const std::int64_t warm_up = options->has("warm-up") ? asked_warm_up : std::clamp<std::int64_t>(taken - 1, 0, 2);
    const Validation validation =
        join(prediction, lower(make_skeleton(plan)), simulated, measured, static_cast<std::size_t>(warm_up));
    write_result(*options, console, report(validation, format));
    return done;
}

int run_calibrate(const Arguments& arguments, Console& console) {
    const Syntax syntax{
        .usage = "foretrain calibrate --output FILE [-- options of foretrain-exec calibrate]",
        .summary =
            "Measures this machine's kernels and communication and writes a cluster file, which --cluster then\n"
            "takes. With --from-table nothing is measured: constants of a cluster are fitted to half of a table\n"
            "that was measured elsewhere, and judged on the other half.",
        .examples = {"foretrain calibrate --output this-machine.json",
                     "foretrain calibrate --from-table gemms.csv --rows H100-SXM --cluster dgx-h100 --output ours.json",
                     "foretrain calibrate --from-table nccl.jsonl --rows our-nodes --cluster ours.json"},
        .groups = {{"Output", {{"output", "FILE", "the cluster file to write"}}}, table_options()}};
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    if (options->has("from-table")) return calibrate_from_table(*options, console);
    for (const Option& option : table_options().options)
        if (options->has(option.name)) option_error(option.name, "it without --from-table", "both, or neither");
    if (!options->has("output")) option_error("output", "nothing", "the name of the cluster file to write");
    Arguments passed{"calibrate", "--output", options->text("output")};
    passed.insert(passed.end(), options->after_dashes().begin(), options->after_dashes().end());
    const int code = launch_exec(console, passed, Output::inherit);
    if (code == done) say_written(console, options->text("output"));
    return code;
}

}  // namespace foretrain::cli
