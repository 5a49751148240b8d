// What a validation says, as a table and as JSON: how far the step, the memory, the communication
// and each kind of instruction were off.
//
//   std::cout << validation_table(validation);
//   std::cout << validation_json(validation).dump() << '\n';
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string validation_table(const Validation& validation);
Json validation_json(const Validation& validation);
std::string validation_csv(const Validation& validation);  // one line a kind of instruction

}  // namespace foretrain
