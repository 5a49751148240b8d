// The one recommended plan with its reasons in sentences, beside the rule of thumb.
//
//   std::cout << recommendation_table(recommendation);
//   std::cout << recommendation_json(recommendation).dump() << '\n';
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

std::string recommendation_table(const Recommendation& recommendation);
Json recommendation_json(const Recommendation& recommendation);

// "Tensor 8: inside a node of 8 GPUs, ... The best plan with tensor 4 (...) takes 3.1 % longer."
std::string reason_text(const AxisReason& reason, const Prediction& best);

}  // namespace foretrain
