// `foretrain plan`: the one plan to train with, and why.
#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "cli/plan_options.h"
#include "cli/sweep_options.h"
#include "cli/training_options.h"
#include "reports/figures.h"
#include "reports/recommendation_report.h"
#include "sim/recommend.h"

namespace foretrain::cli {

namespace {

Syntax plan_syntax() {
    Syntax syntax{
        .usage = "foretrain plan [options]",
        .summary =
            "Recommends one plan and says why: each of its choices beside the best plan that chooses otherwise,\n"
            "the rule of thumb by the model's size, what limits it, what would move it most, and how few GPUs\n"
            "would do. Searches as `foretrain sweep` does, several times. Exits with 1 if no plan is feasible.",
        .examples = {"foretrain plan --model llama-3.1-70b --cluster dgx-h100 --nodes 8 --global-batch-size 512 \\",
                     "    --sequence-length 8192 --save-plan best.json",
                     "foretrain plan --model gpt2 --cluster dgx-a100 --global-batch-size 64 --sequence-length 1024 \\",
                     "    --tensor 1,2 --format json"},
        .groups = sweep_option_groups()};
    OptionGroup output = output_options("table|json");
    output.options.push_back({"save-plan", "FILE", "write the plan there, model and cluster inlined"});
    output.options.push_back(threads_option());
    syntax.groups.push_back(training_option_group());
    syntax.groups.push_back(std::move(output));
    return syntax;
}

}  // namespace

int run_plan(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(plan_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json"});
    for (const char* name : {"nodes", "gpus"})
        if (options->has(name) && options->text(name).find_first_of(",.") != std::string::npos)
            option_error(name, fmt::format("\"{}\"", options->text(name).substr(0, 80)),
                         "one size; `foretrain sweep` takes several and compares them",
                         fmt::format("foretrain sweep --{} {}", name, options->text(name).substr(0, 80)));
    SweepOptions search = sweep_options_from(*options);
    search.top = 1;
    show_progress(search, console);
    const std::optional<TrainingWish> wish = training_wish(*options);
    const Plan base = announced(sweep_base_from_options(*options), console);
    check_tokens(*options, base);
    check_output(*options);
    const auto start = std::chrono::steady_clock::now();
    Recommendation r = recommend(base, search);
    r.sweep.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    clear_progress(console);
    console.err << fmt::format("plan: {} plans, and those beside the best, in {:.3f} s\n",
                               grouped(static_cast<double>(r.sweep.enumerated)), r.sweep.elapsed_s);
    for (Prediction& p : r.sweep.best) set_training(p, wish);
    if (!r.sweep.best.empty())
        save_plan(*options, console, r.sweep.best.front().plan);
    else if (options->has("save-plan"))
        console.err << fmt::format("foretrain: {} was not written: no plan is feasible\n", options->text("save-plan"));
    write_result(*options, console, format == "json" ? recommendation_json(r).dump() + "\n" : recommendation_table(r));
    return r.sweep.best.empty() ? answer_is_no : done;
}

}  // namespace foretrain::cli
