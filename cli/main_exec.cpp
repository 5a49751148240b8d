// foretrain-exec: runs plans and measures this machine. `foretrain run`, `validate` and `calibrate`
// start it.
//
//   foretrain-exec run --plan plan.json --steps 20 --trace trace.json
//   foretrain-exec calibrate --output this-machine.json
//
// Exit codes: 0 done, 1 the plan is refused, 2 bad input or usage, 3 the run failed. Results go to
// standard output, everything else to standard error.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/standard_streams.h"
#include "exec/calibrate.h"
#include "exec/runtime.h"
#include "hardware/cluster_file.h"
#include "kernels/cpu/cpu_kernels.h"
#include "plan/check.h"
#include "plan/plan_file.h"
#include "plan/program/lower.h"
#include "plan/program/skeleton.h"
#include "plan/program/verify.h"

namespace foretrain {

namespace {

namespace po = boost::program_options;
using Arguments = std::vector<std::string>;

constexpr int done = 0, refused = 1, bad_input = 2, run_failed = 3;

constexpr const char* usage =
    "Usage: foretrain-exec run --plan FILE [--steps N] [--trace FILE] [--seed N]\n"
    "       foretrain-exec calibrate --output FILE\n";

// Nothing but options: a word that belongs to none is an error.
po::variables_map parse(const po::options_description& options, const Arguments& arguments) {
    po::variables_map values;
    po::store(po::command_line_parser(arguments)
                  .options(options)
                  .positional(po::positional_options_description{})
                  .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
                  .run(),
              values);
    po::notify(values);
    return values;
}

std::int64_t in_range(const po::variables_map& values, const char* name, std::int64_t least, std::int64_t most) {
    const auto x = values[name].as<std::int64_t>();
    if (x < least || x > most)
        throw UserError({.file = "command line",
                         .field = fmt::format("--{}", name),
                         .found = std::to_string(x),
                         .expected = fmt::format("a number from {} to {}", least, most)});
    return x;
}

// Opened before hours of work, not after.
std::ofstream open_output(const char* option, const std::string& path) {
    std::ofstream file(path);
    if (!file)
        throw UserError({.file = "command line",
                         .field = fmt::format("--{}", option),
                         .found = path,
                         .expected = "a file that can be written"});
    return file;
}

void close_output(std::ofstream& file, const std::string& path) {
    file.close();
    if (!file) throw RunError(fmt::format("{} could not be written", path));
}

bool refuses(const Plan& plan) {
    std::vector<Rejection> rejections = check(plan);
    if (rejections.empty()) rejections = check_runnable(plan);
    if (rejections.empty())
        if (std::optional<Rejection> no = check_lowerable(make_skeleton(plan))) rejections.push_back(std::move(*no));
    for (const Rejection& r : rejections) std::cerr << "foretrain-exec: refused: " << text(r) << '\n';
    return !rejections.empty();
}

// The first steps, which find caches and memory cold, are left out, as many as `validate` leaves out.
std::string summary(std::vector<Time> steps, double tokens) {
    const std::size_t warm_up = std::min<std::size_t>(2, steps.empty() ? 0 : steps.size() - 1);
    steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(warm_up));
    if (steps.empty()) return "";
    std::sort(steps.begin(), steps.end());
    const double median = (seconds(steps[(steps.size() - 1) / 2]) + seconds(steps[steps.size() / 2])) / 2;
    return fmt::format("median of {} step{}{}, each by its slowest rank: {:.3f} ms, {:.0f} tokens/s\n", steps.size(),
                       steps.size() == 1 ? "" : "s", warm_up > 0 ? fmt::format(" after {} of warm-up", warm_up) : "",
                       1e3 * median, tokens / median);
}

int run(const Arguments& arguments) {
    po::options_description options("foretrain-exec run");
    options.add_options()("plan", po::value<std::string>()->required())(
        "steps", po::value<std::int64_t>()->default_value(10))("trace", po::value<std::string>())(
        "seed", po::value<std::int64_t>()->default_value(0));
    const po::variables_map values = parse(options, arguments);
    // Long runs hold no spans that nobody will read.
    RunOptions how{.kernels = &cpu_kernels(), .keep_spans = values.count("trace") != 0, .bind_ranks = true};
    how.steps = in_range(values, "steps", 1, 1'000'000'000);
    how.seed = static_cast<std::uint64_t>(in_range(values, "seed", 0, INT64_MAX));

    const Plan plan = plan_from_json(Json::parse_file(values["plan"].as<std::string>()));
    if (refuses(plan)) return refused;
    const Program program = lower(make_skeleton(plan));
    if (const auto wrong = verify(program)) throw InternalError(*wrong);
    std::ofstream trace;
    if (values.count("trace") != 0) trace = open_output("trace", values["trace"].as<std::string>());

    const double tokens = static_cast<double>(plan.training.global_batch_size * plan.training.sequence_length);
    std::vector<Time> steps;
    how.on_step = [&steps, tokens](const StepReport& s) {
        const double took = seconds(s.duration);
        steps.push_back(s.duration);
        std::cout << fmt::format("step {:4}  loss {:.6f}  {:.3f} ms  {:.0f} tokens/s\n", s.step + 1, s.loss, 1e3 * took,
                                 tokens / took)
                  << std::flush;
    };
    const RunResult result = run_program(program, how);
    std::cout << summary(steps, tokens);
    if (trace.is_open()) {
        trace << trace_to_json(result.trace).dump(-1) << '\n';
        close_output(trace, values["trace"].as<std::string>());
    }
    return done;
}

// "model name : AMD EPYC" of Linux.
std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const auto colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown CPU";
}

int calibrate(const Arguments& arguments) {
    po::options_description options("foretrain-exec calibrate");
    options.add_options()("output", po::value<std::string>()->required())(
        "format", po::value<std::string>()->default_value("json"));
    const po::variables_map values = parse(options, arguments);
    if (const auto format = values["format"].as<std::string>(); format != "json")
        throw UserError({.file = "command line",
                         .field = "--format",
                         .found = format,
                         .expected = "json, the form of cluster files"});
    const auto path = values["output"].as<std::string>();
    std::ofstream file = open_output("output", path);

    const Measurements measured =
        measure_machine(cpu_kernels(), {.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                                        .progress = [](const std::string& line) { std::cerr << line << '\n'; }});
    const ClusterSpec machine =
        fit_machine(measured, {.command = "foretrain-exec calibrate",
                               .cpu = cpu_name(),
                               .date = fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)))});
    file << cluster_to_json(machine).dump() << '\n';
    close_output(file, path);
    return done;
}

int dispatch(const Arguments& arguments) {
    if (arguments.empty()) {
        std::cerr << usage;
        return bad_input;
    }
    const Arguments rest(arguments.begin() + 1, arguments.end());
    if (arguments[0] == "run") return run(rest);
    if (arguments[0] == "calibrate") return calibrate(rest);
    if (arguments[0] == "--help" || arguments[0] == "-h") {
        std::cout << usage;
        return done;
    }
    throw UserError({.file = "command line",
                     .field = "subcommand",
                     .found = fmt::format("\"{}\"", arguments[0]),
                     .expected = "run or calibrate",
                     .suggestion = nearest(arguments[0], {"run", "calibrate"})});
}

}  // namespace

}  // namespace foretrain

int main(int argc, char** argv) {
    foretrain::open_standard_streams();
    const auto complain = [](const std::string& what, int code) {
        std::cerr << "foretrain-exec: " << what << '\n';
        return code;
    };
    try {
        const int code = foretrain::dispatch({argv + 1, argv + argc});
        std::cout.flush();
        if (!std::cout && code == foretrain::done)
            return complain("standard output: a write failed; what should stand there is lost", foretrain::run_failed);
        return code;
    } catch (const foretrain::UserError& e) {
        return complain(e.what(), foretrain::bad_input);
    } catch (const boost::program_options::error& e) {
        return complain(std::string("command line: ") + e.what(), foretrain::bad_input);
    } catch (const foretrain::RunError& e) {
        return complain(e.what(), foretrain::run_failed);
    } catch (const std::bad_alloc&) {
        return complain("this machine's memory does not suffice for it", foretrain::run_failed);
    } catch (const std::exception& e) {
        return complain(std::string("a defect of foretrain itself: ") + e.what(), foretrain::run_failed);
    }
}
