// The one plan to train with, each of its choices beside the best plan that chooses otherwise, and what
// the rule of thumb by the model's size would have taken.
//
//   Recommendation r = recommend(base, options);
//   r.sweep.best.front()                           // recommended; nothing where no plan is feasible
//   r.reasons[0].axis, .value, .other, .alternative     // "tensor", "8", "4", a plan 3 % slower
//
// The alternative on an axis is the best of all plans with another value of it, whatever else they
// choose. The rule of thumb: models under 10 B parameters data-parallel only; under 100 B tensor ranks
// inside a node, the rest data; above, tensor ranks fill a node, and pipeline and data share the rest. What it
// leaves open (micro-batch, ZeRO, recompute) is chosen as well as can be.
#pragma once

#include "plan/program/result.h"
#include "sim/sweep.h"

namespace foretrain {

Recommendation recommend(const Plan& base, const SweepOptions& options);

std::vector<AxisReason> axis_reasons(const Prediction& best, const SweepOptions& options);
RuleOfThumb rule_of_thumb(const Plan& base, const SweepOptions& options);

}  // namespace foretrain
