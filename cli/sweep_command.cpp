// `foretrain sweep`: every combination of the axes, or of those values that options allow; on one cluster,
// or on each size of a range.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ostream>

#include "cli/plan_options.h"
#include "cli/sweep_options.h"
#include "cli/training_options.h"
#include "reports/figures.h"
#include "reports/sizes_report.h"
#include "reports/sweep_report.h"
#include "sim/explain.h"
#include "sim/sizes.h"

namespace foretrain::cli {

namespace {

Syntax sweep_syntax() {
    Syntax syntax{
        .usage = "foretrain sweep [options]",
        .summary =
            "Tries every parallel plan of a model on a cluster; prints the fastest ones, what limits the best,\n"
            "what less memory would cost (the Pareto front), and why the rest fell. An axis that is given takes\n"
            "only the values listed. With several sizes of the cluster, each is swept: prints the best plan of\n"
            "each, and which sizes nothing beats. Exits with 1 if no plan is feasible.",
        .examples =
            {"foretrain sweep --model llama-3-8b --cluster dgx-h100 --nodes 2 --global-batch-size 256 \\",
             "    --sequence-length 4096 --explain",
             "foretrain sweep --plan plan.json --tensor 4,8 --recompute none,full --top 5 --save-plan best.json",
             "foretrain sweep --model llama-3-8b --cluster dgx-h100 --nodes 8,16,32 --global-batch-size 512 \\",
             "    --sequence-length 8192 --tokens 15T --price 2.5"},
        .groups = sweep_option_groups()};
    for (OptionGroup& group : syntax.groups)
        for (Option& option : group.options)
            if (option.name == "nodes" || option.name == "gpus")
                option = {option.name, "N,...|A..B",
                          option.help + "; of several, each is swept; A..B doubles from A to B"};
    OptionGroup output = output_options();
    output.options.push_back({"explain", "",
                              "what would move the best plan most (links, latency, memory, micro-\n"
                              "batch), the bandwidth that hides its communication, the largest\n"
                              "micro-batch, the fewest GPUs; searches several times more"});
    output.options.push_back({"top", "N", "plans to list (10)"});
    output.options.push_back({"exhaustive", "", "estimate every feasible plan, and skip none by its bound"});
    output.options.push_back({"save-plan", "FILE", "write the best plan there, model and cluster inlined"});
    output.options.push_back(threads_option());
    syntax.groups.push_back(training_option_group());
    syntax.groups.push_back(std::move(output));
    return syntax;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

SweepResult swept(const Options& options, const Plan& base, const SweepOptions& search, Console& console) {
    const auto start = std::chrono::steady_clock::now();
    SweepResult result = sweep(base, search);
    result.elapsed_s = seconds_since(start);
    clear_progress(console);
    console.err << fmt::format("sweep: {} plans in {:.3f} s\n", grouped(static_cast<double>(result.enumerated)),
                               result.elapsed_s);
    const std::optional<TrainingWish> wish = training_wish(options);
    for (std::vector<Prediction>* plans : {&result.best, &result.pareto})
        for (Prediction& p : *plans) set_training(p, wish);
    if (!options.has("explain")) return result;
    show_stage(console, "explaining");
    result.explanation = result.best.empty() ? explain_none(base, search) : explain(result.best.front(), search);
    clear_progress(console);
    return result;
}

int sweep_one(const Options& options, Console& console, const std::string& format) {
    SweepOptions search = sweep_options_from(options);
    show_progress(search, console);
    const Plan base = announced(sweep_base_from_options(options), console);
    check_tokens(options, base);
    check_output(options);
    const SweepResult result = swept(options, base, search, console);
    if (!result.best.empty())
        save_plan(options, console, result.best.front().plan);
    else if (options.has("save-plan"))
        console.err << fmt::format("foretrain: {} was not written: no plan is feasible\n", options.text("save-plan"));
    if (format == "json")
        write_result(options, console, sweep_json(result).dump() + "\n");
    else if (format == "csv")
        write_result(options, console, sweep_csv(result));
    else
        write_result(options, console, sweep_table(result, static_cast<std::size_t>(search.top)));
    return result.best.empty() ? answer_is_no : done;
}

// The option that names several sizes, if one does.
std::string range_option(const Options& options) {
    for (const char* name : {"nodes", "gpus"})
        if (options.has(name) && options.text(name).find_first_not_of("0123456789") != std::string::npos) return name;
    return "";
}

int sweep_range(const Options& options, Console& console, const std::string& format, const std::string& range) {
    for (const char* name : {"save-plan", "explain", "top"})
        if (options.has(name)) option_error(name, fmt::format("it beside several sizes (--{})", range), "one size");
    SweepOptions search = sweep_options_from(options);
    search.top = 1;
    show_progress(search, console);
    const std::optional<TrainingWish> wish = training_wish(options);
    std::vector<Plan> bases;
    for (const std::int64_t size : sizes_in(range, options.text(range)))
        bases.push_back(sweep_base_from_options(options.with(range, std::to_string(size))));
    announced(bases.front(), console);
    check_tokens(options, bases.front());
    check_output(options);
    const auto start = std::chrono::steady_clock::now();
    RangeResult result{.base = bases.front()};
    std::int64_t enumerated = 0;
    for (const Plan& base : bases) {
        result.sizes.push_back(sweep_size(base, search));
        enumerated += result.sizes.back().enumerated;
        if (result.sizes.back().best) set_training(*result.sizes.back().best, wish);
    }
    mark_fronts(result.sizes);
    result.elapsed_s = seconds_since(start);
    clear_progress(console);
    console.err << fmt::format("sweep: {} sizes, {} plans in {:.3f} s\n", bases.size(),
                               grouped(static_cast<double>(enumerated)), result.elapsed_s);
    write_result(options, console,
                 format == "json"  ? sizes_json(result).dump() + "\n"
                 : format == "csv" ? sizes_csv(result)
                                   : sizes_table(result));
    return std::any_of(result.sizes.begin(), result.sizes.end(), [](const SizeResult& s) { return s.best.has_value(); })
               ? done
               : answer_is_no;
}

}  // namespace

int run_sweep(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(sweep_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    training_wish(*options);  // refused before long work
    const std::string range = range_option(*options);
    return range.empty() ? sweep_one(*options, console, format) : sweep_range(*options, console, format, range);
}

}  // namespace foretrain::cli
