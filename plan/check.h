// Rung 0 of the ladder: can this plan be, and if not, why. No allocation happens for a plan that
// checks; tens of nanoseconds.
//
//   for (const Rejection& no : check(plan)) std::cerr << text(no) << '\n';
//   // tensor = 3: must divide attention_heads = 32 (allowed: 1, 2, 4, 8, 16, 32; try 2)
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace foretrain {

// Why a plan is refused, as a value with the numbers in it.
struct Rejection {
    std::string reason;      // stable key for counting: "tensor_divides_heads"
    std::string field;       // "parallelism.tensor"
    std::string found;       // "3"
    std::string rule;        // "must divide attention_heads = 32"
    std::string allowed;     // "1, 2, 4, 8, 16, 32"; may be empty
    std::string suggestion;  // "2"; may be empty
};

std::string text(const Rejection& rejection);

// Every rule that the plan breaks; empty means feasible but for memory.
std::vector<Rejection> check(const Plan& plan);

// The further rules of executing it by this engine (framework, precision, number of ranks).
std::vector<Rejection> check_runnable(const Plan& plan);

}  // namespace foretrain
