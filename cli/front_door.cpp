#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <ostream>

#include "base/error.h"
#include "cli/command.h"

namespace foretrain::cli {

namespace {

constexpr Command all_commands[] = {
    {"models", "list model presets, or show one model", run_models},
    {"clusters", "list cluster presets, or show one cluster", run_clusters},
    {"frameworks", "list profiles of frameworks, or show one", run_frameworks},
    {"estimate", "predict one plan: time, communication, memory", run_estimate},
    {"simulate", "the same by event simulation; --trace FILE for Perfetto", run_simulate},
    {"sweep", "try every parallel plan; print the best and why the rest fell", run_sweep},
    {"plan", "recommend one plan, with its reasons in sentences", run_plan},
    {"run", "execute a plan", run_run},
    {"validate", "execute a plan and compare it with its prediction", run_validate},
    {"calibrate", "measure this machine and write a cluster file", run_calibrate},
    {"backtest", "predict runs that were measured; print the errors", run_backtest},
    {"fit", "fit constants to runs that were measured; print what each rests on", run_fit},
    {"print", "print a plan's program as text", run_print},
};

std::string help() {
    std::string s =
        "foretrain predicts, sweeps, executes and validates parallel plans for training transformers.\n\n"
        "Usage: foretrain SUBCOMMAND [options]\n\n";
    for (const Command& c : all_commands) s += fmt::format("  {:<11}{}\n", c.name, c.summary);
    return s +
           "\n"
           "  --help     after a subcommand: its options, with examples\n"
           "  --version  the version\n\n"
           "Start with:\n"
           "  foretrain estimate --model gpt2 --cluster dgx-h100 --global-batch-size 64 --sequence-length 1024\n"
           "  foretrain sweep --model llama-3-8b --cluster dgx-h100 --nodes 2 --global-batch-size 256 \\\n"
           "      --sequence-length 4096 --save-plan best.json\n\n"
           "Exit codes: 0 done, 1 the answer is no (infeasible or refused), 2 bad input, 3 a run failed.\n";
}

const Command& command_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Command& c : all_commands) {
        if (c.name == name) return c;
        names.emplace_back(c.name);
    }
    throw UserError({.file = "command line",
                     .field = "subcommand",
                     .found = fmt::format("\"{}\"", name),
                     .expected = fmt::format("one of {}", fmt::join(names, ", ")),
                     .suggestion = nearest(name, names)});
}

int dispatch(const Arguments& arguments, Console& console) {
    if (arguments.empty()) {
        console.err << help();
        return bad_input;
    }
    const std::string& first = arguments.front();
    if (first == "--version") {
        console.out << "foretrain " FORETRAIN_VERSION "\n";
        return done;
    }
    const bool asks_help = first == "--help" || first == "-h" || first == "help";
    if (asks_help && arguments.size() == 1) {
        console.out << help();
        return done;
    }
    if (asks_help) return command_named(arguments[1]).run({"--help"}, console);
    return command_named(first).run({arguments.begin() + 1, arguments.end()}, console);
}

}  // namespace

std::span<const Command> commands() { return all_commands; }

int front_door(const Arguments& arguments, Console& console) {
    try {
        const int code = dispatch(arguments, console);
        console.out.flush();
        if (!console.out) throw UserError({.field = "standard output", .found = "a failed write", .expected = "space"});
        return code;
    } catch (const UserError& e) {
        console.err << "foretrain: " << e.what() << '\n';
        return bad_input;
    } catch (const RunError& e) {
        console.err << "foretrain: " << e.what() << '\n';
        return run_failed;
    } catch (const std::bad_alloc&) {
        console.err << "foretrain: this machine's memory does not suffice for it\n";
        return run_failed;
    } catch (const std::exception& e) {
        console.err << "foretrain: a defect of foretrain itself: " << e.what() << '\n';
        return run_failed;
    }
}

}  // namespace foretrain::cli
