// A plan's prediction: what `foretrain estimate` and `foretrain simulate` print.
//
//   Prediction p = estimate(plan);          // rung 2
//   Prediction q = simulate(plan);          // rung 3; q.step == p.step where nothing contends
//
// A plan that does not check comes back with its rejections and nothing else, and so does one whose
// program is too long to simulate; one that is only too large for the device has them too
// ("out_of_memory"), and all its numbers.
#pragma once

#include "plan/program/program.h"
#include "plan/program/result.h"

namespace foretrain {

class PlanCosts;

Prediction estimate(const Plan& plan);
// Its step alone, the same. Precondition: the plan checks.
Time estimated_step(const Plan& plan);
// The same, faster: with what is shared by the plans of a sweep (sim/plan_costs.h).
Prediction estimate(const Plan& plan, PlanCosts& shared);
Prediction simulate(const Plan& plan, Trace* trace = nullptr);

// Memory of each stage against the device's; the rejection if the largest does not fit.
std::vector<StageMemory> with_reserved(const Plan& plan, std::vector<StageMemory> stages);
std::vector<Rejection> check_memory(const Plan& plan, const std::vector<StageMemory>& stages, Bytes capacity);

}  // namespace foretrain
