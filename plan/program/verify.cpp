#include "plan/program/verify.h"

#include "plan/program/verify_rules.h"

namespace foretrain {

std::optional<std::string> verify(const Program& program) {
    using namespace verify_rules;
    for (const auto rule : {check_tables, check_instructions, check_matches, check_progress, check_memory})
        if (const Verdict wrong = rule(program)) return report(program, *wrong);
    return std::nullopt;
}

}  // namespace foretrain
