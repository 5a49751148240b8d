// `foretrain print`: the program of a plan as text, which parses back.
#include <fmt/format.h>

#include <ostream>

#include "cli/plan_options.h"
#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"

namespace foretrain::cli {

int run_print(const Arguments& arguments, Console& console) {
    Syntax syntax{
        .usage = "foretrain print [options]",
        .summary = "Prints the program that a plan becomes: one instruction a line, one list a pipeline stage.",
        .examples = {"foretrain print --plan plan.json --chunks", "foretrain print --plan plan.json --stage 0"},
        .groups = plan_option_groups()};
    syntax.groups.push_back({"Program",
                             {{"chunks", "", "at chunk level: one line a pass, bodies named"},
                              {"stage", "N", "only this stage, from 0"},
                              {"output", "FILE", "write it there instead of standard output"}}});
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    const Plan plan = announced(plan_from_options(*options), console);
    const std::vector<Rejection> rejections = check(plan);
    for (const Rejection& rejection : rejections) console.err << "foretrain: refused: " << text(rejection) << '\n';
    if (!rejections.empty()) return answer_is_no;

    const std::int64_t stage = options->integer_or("stage", -1, 0, plan.parallelism.pipeline - 1);
    const Skeleton skeleton = make_skeleton(plan);
    if (const auto no = options->has("chunks") ? std::nullopt : check_lowerable(skeleton)) {
        console.err << "foretrain: refused: " << text(*no) << '\n';
        return answer_is_no;
    }
    Program program = options->has("chunks") ? unroll(skeleton) : lower(skeleton);
    if (stage >= 0) program.stages = {program.stages[static_cast<std::size_t>(stage)]};
    write_result(*options, console, to_text(program));
    return done;
}

}  // namespace foretrain::cli
