// Reading and writing what a plan trains: the "training" of a plan file.
//
//   Training t = training_from_json(plan.at("training"));
//   t.products                                   // DType::fp8, of "precision": "fp8"
//
// What is not stated is the framework's own choice, and is not written.
#pragma once

#include "base/json.h"
#include "plan/plan.h"

namespace foretrain {

void check_training_keys(const Json& value);  // UserError for a key that training has not
Training training_from_json(const Json& value);
Json training_to_json(const Training& training);

// Fields of the file form that are not supported yet: null and the neutral value are accepted.
void refuse_unless_neutral(const Json& parent, const char* key, const Json& neutral);

}  // namespace foretrain
