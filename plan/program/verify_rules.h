// The rules of verify, by topic. Each looks at a program of which those before it hold (so that later
// ones need not check indices), and answers with the first place where it does not hold.
#pragma once

#include <optional>
#include <string>

#include "plan/program/program.h"

namespace foretrain::verify_rules {

struct Failure {
    std::int32_t stage = -1;        // -1: of the whole program
    std::int32_t instruction = -1;  // -1: of the stage's tables
    std::string rule;               // one word: "index", "size", "match", "deadlock", "life", "race", ...
    std::string text;               // what was found there and what was expected
};
using Verdict = std::optional<Failure>;

Verdict check_tables(const Program& program);        // index, region
Verdict check_instructions(const Program& program);  // index, size, end
Verdict check_matches(const Program& program);       // match
Verdict check_progress(const Program& program);      // deadlock
Verdict check_memory(const Program& program);        // life, overlap, race, unwritten, end

// "%12 send ..." as verify quotes an instruction.
std::string quote(const StageProgram& stage, std::int32_t instruction);
std::string report(const Program& program, const Failure& failure);

// Streams that an instruction occupies: a chunk pass has kernels on compute, gather and reduce.
bool occupies(const Instruction& instruction, Stream stream);

}  // namespace foretrain::verify_rules
