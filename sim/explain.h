// What explains the best plan of a sweep: what would move it most, how fast its links would have to be,
// the largest micro-batch that fits, and the fewest devices on which the model trains.
//
//   Explanation e = explain(result.best.front(), options);
//
// It searches again: once with twice the memory, and on each smaller number of devices that could hold
// the model until one does.
#pragma once

#include "plan/program/result.h"
#include "sim/sweep.h"

namespace foretrain {

Explanation explain(const Prediction& best, const SweepOptions& options);

// Of a sweep that found nothing: on how many devices would there be a plan.
Explanation explain_none(const Plan& base, const SweepOptions& options);

}  // namespace foretrain
