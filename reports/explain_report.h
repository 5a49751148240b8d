// Explanations in words and as JSON: what limits a plan, what would move it, what is nearest to a wish
// that does not fit, on how few GPUs a model trains.
//
//   std::cout << limits_text(prediction);            // sentences, set in lines
//   std::cout << explanation_table(explanation, &prediction);
//   std::cout << nearest_table(wish);
#pragma once

#include <string>

#include "base/json.h"
#include "plan/program/result.h"

namespace foretrain {

// "Of 17.83 s, 63.2 % computes: gemm 53.9 %, ... What it waits for: tensor exposed 28.6 %, ...".
std::string limits_text(const Prediction& prediction);

// `best`: what is explained; nullptr where no plan is feasible.
std::string explanation_table(const Explanation& explanation, const Prediction* best);
Json explanation_json(const Explanation& explanation, const Prediction* best);

std::string nearest_table(const Prediction& wish);  // precondition: it was looked for
Json nearest_json(const Prediction& wish);

Json alternative_json(const Alternative& alternative);

// "3.2 % longer", "3.2 % shorter", "as long".
std::string longer(Time step, Time than);

}  // namespace foretrain
