// The front door: `foretrain SUBCOMMAND options`, each subcommand one function.
//
// A subcommand writes its result to `out`, messages and progress to `err`, and returns the exit
// code. It throws for bad input (UserError) and failed runs (RunError); front_door() turns those
// into one line on `err` and their codes. So tests call everything in process.
//
//   Console console{.out = std::cout, .err = std::cerr, .folder = "/opt/foretrain/bin"};
//   int code = front_door({"estimate", "--model", "gpt2", ...}, console);
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain::cli {

enum ExitCode : int {
    done = 0,
    answer_is_no = 1,  // an infeasible or refused plan
    bad_input = 2,
    run_failed = 3,
};

struct Console {
    std::ostream& out;
    std::ostream& err;
    std::string folder;        // of this program: foretrain-exec is looked for there first
    bool interactive = false;  // `err` is a terminal: progress may be shown
};

using Arguments = std::vector<std::string>;

int front_door(const Arguments& arguments, Console& console);

struct Command {
    std::string_view name;
    std::string_view summary;
    int (*run)(const Arguments&, Console&);
};
std::span<const Command> commands();

int run_models(const Arguments& arguments, Console& console);
int run_clusters(const Arguments& arguments, Console& console);
int run_frameworks(const Arguments& arguments, Console& console);
int run_estimate(const Arguments& arguments, Console& console);
int run_simulate(const Arguments& arguments, Console& console);
int run_plan(const Arguments& arguments, Console& console);
int run_sweep(const Arguments& arguments, Console& console);
int run_run(const Arguments& arguments, Console& console);
int run_validate(const Arguments& arguments, Console& console);
int run_calibrate(const Arguments& arguments, Console& console);
int run_backtest(const Arguments& arguments, Console& console);
int run_fit(const Arguments& arguments, Console& console);
int run_print(const Arguments& arguments, Console& console);

}  // namespace foretrain::cli
