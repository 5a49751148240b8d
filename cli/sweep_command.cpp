// `foretrain sweep`: every combination of the axes, or of those values that options allow.
#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "cli/plan_options.h"
#include "plan/plan_file.h"
#include "reports/sweep_report.h"
#include "sim/sweep.h"

namespace foretrain::cli {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 40;

Syntax sweep_syntax() {
    Syntax syntax{
        .usage = "foretrain sweep [options]",
        .summary =
            "Tries every parallel plan of a model on a cluster; prints the fastest ones, what less memory\n"
            "would cost (the Pareto front), and why the rest fell. An axis that is given takes only the\n"
            "values listed. Exits with 1 if no plan is feasible.",
        .examples =
            {"foretrain sweep --model llama-3-8b --cluster dgx-h100 --nodes 2 --global-batch-size 256 \\",
             "    --sequence-length 4096",
             "foretrain sweep --plan plan.json --tensor 4,8 --recompute none,full --top 5 --save-plan best.json"},
        .groups = sweep_base_option_groups()};
    OptionGroup axes{"Axes (values with commas between them; left out: all that are worth trying)",
                     {{"tensor", "N,...", "tensor-parallel ranks"},
                      {"context", "N,...", "ranks that share a sequence (1; up to 16 from 16k tokens on)"},
                      {"context-method", "HOW,...", "ring, all-to-all (the plan file's, else ring)"},
                      {"pipeline", "N,...", "pipeline stages"},
                      {"virtual-pipeline", "N,...", "chunks a stage"},
                      {"data", "N,...", "data-parallel ranks"},
                      {"zero-stage", "N,...", "0 to 3"},
                      {"zero-shard-size", "N,...", "replicas that share out what ZeRO shards; 0: all (0)"},
                      {"micro-batch-size", "N,...", "samples a microbatch"},
                      {"schedule", "NAME,...", "gpipe, 1f1b (the plan file's, else 1f1b)"},
                      {"recompute", "HOW,...", recompute_help},
                      {"max-memory", "GIB", "of each GPU, less than it has"}}};
    OptionGroup output = output_options();
    output.options.push_back({"top", "N", "plans to list (10)"});
    output.options.push_back({"save-plan", "FILE", "write the best plan there, model and cluster inlined"});
    output.options.push_back({"threads", "N", "to search with (all cores); the answer is the same"});
    syntax.groups.push_back(std::move(axes));
    syntax.groups.push_back(std::move(output));
    return syntax;
}

SweepSpace space_from(const Options& options) {
    SweepSpace space;
    const auto sizes = [&](const char* name, std::vector<std::int64_t>& axis) {
        if (options.has(name)) axis = options.integers(name, 1, largest);
    };
    sizes("tensor", space.tensor);
    sizes("context", space.context);
    sizes("pipeline", space.pipeline);
    sizes("virtual-pipeline", space.virtual_pipeline);
    sizes("data", space.data);
    sizes("micro-batch-size", space.micro_batch_size);
    if (options.has("zero-stage"))
        for (std::int64_t stage : options.integers("zero-stage", 0, 3))
            space.zero_stage.push_back(static_cast<int>(stage));
    if (options.has("zero-shard-size")) space.zero_shard_size = options.integers("zero-shard-size", 0, largest);
    if (options.has("context-method"))
        for (const std::string& how : options.list("context-method"))
            space.context_method.push_back(for_option("context-method", [&] { return context_method_from_text(how); }));
    if (options.has("schedule"))
        for (const std::string& name : options.list("schedule"))
            space.schedule.push_back(for_option("schedule", [&] { return schedule_from_text(name); }));
    if (options.has("recompute"))
        for (const std::string& how : options.list("recompute"))
            space.recompute.push_back(for_option("recompute", [&] { return recompute_from_text(how); }));
    if (options.has("sequence-parallel"))
        space.sequence_parallel = options.choice("sequence-parallel", {"on", "off"}) == "on";
    return space;
}

SweepOptions sweep_options_from(const Options& options) {
    SweepOptions sweep;
    sweep.space = space_from(options);
    sweep.top = static_cast<int>(options.integer_or("top", 10, 1, 1'000'000));
    sweep.threads = static_cast<int>(options.integer_or("threads", 0, 1, 4096));
    if (options.has("max-memory")) {
        const double bytes = options.number("max-memory", 0) * static_cast<double>(GiB);
        if (bytes < 1 || bytes > 1e18)
            option_error("max-memory", options.text("max-memory"), "GiB, more than 0 and less than 900 million");
        sweep.max_memory = Bytes{static_cast<std::int64_t>(bytes)};
    }
    return sweep;
}

}  // namespace

int run_sweep(const Arguments& arguments, Console& console) {
    const std::optional<Options> options = parse(sweep_syntax(), arguments, console);
    if (!options) return done;
    const std::string format = options->choice("format", {"table", "json", "csv"});
    SweepOptions search = sweep_options_from(*options);
    const Plan base = announced(sweep_base_from_options(*options), console);
    check_output(*options);
    if (console.interactive)
        search.progress = [&](std::int64_t done_so_far, std::int64_t of) {
            console.err << fmt::format("\rsweep: {} of {}", done_so_far, of) << std::flush;
        };
    const auto start = std::chrono::steady_clock::now();
    SweepResult result = sweep(base, search);
    result.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    console.err << fmt::format("{}sweep: {} plans in {:.3f} s\n", console.interactive ? "\r\033[K" : "",
                               result.enumerated, result.elapsed_s);
    if (!result.best.empty())
        save_plan(*options, console, result.best.front().plan);
    else if (options->has("save-plan"))
        console.err << fmt::format("foretrain: {} was not written: no plan is feasible\n", options->text("save-plan"));
    if (format == "json")
        write_result(*options, console, sweep_json(result).dump() + "\n");
    else if (format == "csv")
        write_result(*options, console, sweep_csv(result));
    else
        write_result(*options, console, sweep_table(result, static_cast<std::size_t>(search.top)));
    return result.best.empty() ? answer_is_no : done;
}

}  // namespace foretrain::cli
