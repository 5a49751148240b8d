// `foretrain estimate` and `foretrain simulate`: one plan, predicted.
#include <ostream>

#include "cli/plan_options.h"
#include "cli/training_options.h"
#include "plan/check.h"
#include "plan/program/lower.h"
#include "reports/chrome_trace.h"
#include "reports/prediction_report.h"
#include "sim/nearest_change.h"
#include "sim/predict.h"

namespace foretrain::cli {

namespace {

Syntax syntax_of(const std::string& name, const std::string& summary, std::vector<Option> further) {
    Syntax syntax{.usage = "foretrain " + name + " [options]",
                  .summary = summary,
                  .examples = {"foretrain " + name +
                                   " --model gpt2 --cluster dgx-h100 --global-batch-size 64 --sequence-length 1024",
                               "foretrain " + name + " --plan plan.json --tensor 4 --recompute full --format json",
                               "foretrain " + name + " --plan plan.json --tokens 15T --price 2.5 --power 1000"},
                  .groups = plan_option_groups()};
    syntax.groups.push_back(training_option_group());
    OptionGroup output = output_options();
    output.options.push_back(save_plan_option());
    for (Option& option : further) output.options.push_back(std::move(option));
    syntax.groups.push_back(std::move(output));
    return syntax;
}

std::string report(const Prediction& prediction, const std::string& format) {
    if (format == "json") return prediction_json(prediction).dump() + "\n";
    if (format == "csv") return prediction_csv_heading() + prediction_csv_line(prediction);
    return prediction_table(prediction);
}

int finish(const Options& options, Console& console, Prediction prediction, const std::string& format) {
    set_training(prediction, training_wish(options));
    const bool only_lacks_memory = !prediction.feasible() && !prediction.memory.empty();
    if (only_lacks_memory) prediction.nearest = nearest_changes(prediction);
    save_plan(options, console, prediction.plan);
    write_result(options, console, report(prediction, format));
    return prediction.feasible() ? done : answer_is_no;
}

}  // namespace

int run_estimate(const Arguments& arguments, Console& console) {
    const Syntax syntax = syntax_of("estimate",
                                    "Predicts one plan: step time and what limits it, communication, and the memory\n"
                                    "of every stage by role. Exits with 1 if the plan is infeasible.",
                                    {});
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    training_wish(*options);  // refused before long work
    const Plan plan = announced(plan_from_options(*options), console);
    check_tokens(*options, plan);
    return finish(*options, console, estimate(plan), format);
}

int run_simulate(const Arguments& arguments, Console& console) {
    const Syntax syntax =
        syntax_of("simulate",
                  "Predicts one plan by event simulation of its program, instruction by instruction.\n"
                  "Exits with 1 if the plan is infeasible.",
                  {{"trace", "FILE", "write a timeline for ui.perfetto.dev or chrome://tracing"}});
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    training_wish(*options);  // refused before long work
    const Plan plan = announced(plan_from_options(*options), console);
    check_tokens(*options, plan);
    Trace trace;
    const Prediction prediction = simulate(plan, &trace);
    if (options->has("trace")) {
        if (!trace.ranks.empty()) {
            write_file("trace", options->text("trace"), chrome_trace(lower(make_skeleton(plan)), trace));
            say_written(console, options->text("trace"));
        } else {
            console.err << "foretrain: no timeline: the plan is refused\n";
        }
    }
    return finish(*options, console, prediction, format);
}

}  // namespace foretrain::cli
