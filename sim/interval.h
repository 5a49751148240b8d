// The interval of a predicted step, from the spreads of the constants that it was made of.
//
// The time of the slowest stage is laid to the constants that it came from: GEMM (the head is mostly
// that), attention, memory-bound kernels (all others, and the optimizer), the links inside a node, the
// network (whatever exchanges over an axis that leaves nodes), and the framework's profile (the host,
// stalls). The bubble waits for other stages' passes and grows with them, so it is shared out over what
// passes are made of; recompute runs forward kernels again and is shared out over kernels, or is attention
// if that alone is recomputed.
//
//   half-width^2 = sum over parts of (time spread)^2 + (step step_spread)^2
//
// Within a part one set of constants is off for all its time, so times add up: fully correlated. Parts are
// constants that were measured apart, one by one, so their errors are independent and add in squares. The
// profile's step_spread (plan/framework.h) is of the whole step: it holds what a framework does that no
// constant says, seen as what is left over in measured runs.
//
// Assumptions where nothing is stated (a spread of 0): 15 % of what was measured, as wide as the presets'
// widest GEMM constants that were, and 25 % of what was not, as the presets have it for fp32. Not in it: an exposed
// exchange is what is left after hiding, so it errs by more than its own share if the whole is off; links
// that others use, thermal limits and allocators that retry near full memory.
//
// Units: picoseconds, rounded once. Costs about a microsecond.
//
//   prediction.interval = step_interval(prediction);       // needs plan, step and times; empty without a step
#pragma once

#include "plan/program/result.h"

namespace foretrain {

StepInterval step_interval(const Prediction& prediction);

}  // namespace foretrain
