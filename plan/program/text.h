// A program as text, and back: golden files, bug reports and people read the same lines. A line
// states one thing and names its fields; fields at their default are left out.
//
//   std::cout << to_text(program);
//   program_from_text(to_text(program)) == program
//
// Errors: UserError with the line number, what was found and what was expected.
#pragma once

#include <string>
#include <string_view>

#include "plan/program/program.h"

namespace foretrain {

std::string to_text(const Program& program);
std::string to_text(const Instruction& instruction, const StageProgram& stage);  // without its id
Program program_from_text(std::string_view text);

// 16 hex digits that tell programs apart: equal texts have equal ones.
std::string fingerprint(const Program& program);

}  // namespace foretrain
