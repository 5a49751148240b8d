// What to change of a wished plan that does not fit: one field at a time, and where no single one
// suffices, two.
//
//   std::vector<NearestChange> c = nearest_changes(wish);     // precondition: check(wish) is empty
//   c.front().changes      // {"recompute none -> selective"}
//   c.front().cost         // how much longer a step takes than the wish's would
//
// Nearest are the fewest fields, then the shortest step, then the order of the fields: micro-batch,
// recompute, ZeRO stage, sequence parallelism, tensor, context, virtual pipeline, pipeline, expert, expert_tensor. A
// field takes the values of a sweep (sim/sweep.h); data follows from tensor, context and pipeline and counts with them,
// and newly split tensors are sequence-parallel as the framework has it. There is one entry for each field, or pair of
// fields, by whose change the plan fits: its fastest value. Empty where even two do not suffice.
#pragma once

#include <vector>

#include "plan/program/result.h"

namespace foretrain {

std::vector<NearestChange> nearest_changes(const Prediction& wish);

// What differs between two plans of the same devices, field by field: "tensor 4 -> 8".
std::vector<std::string> changes_between(const Parallelism& from, const Parallelism& to);

}  // namespace foretrain
