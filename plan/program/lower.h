// From the skeleton to instructions: the chunk-level program, and the full one in which every body
// is unrolled into kernels and collectives. The full program is all that the simulator and the
// engine ever see.
//
//   Program chunks = unroll(skeleton);     // a few lines a microbatch: what a person reads first
//   Program program = lower(skeleton);     // every kernel of every rank class
#pragma once

#include <optional>

#include "plan/check.h"
#include "plan/program/program.h"
#include "plan/program/skeleton.h"

namespace foretrain {

Program unroll(const Skeleton& skeleton);
Program lower(const Skeleton& skeleton);

// Instructions of the full program, all stages together, without making it.
std::int64_t instruction_count(const Skeleton& skeleton);
// Why the full program is more than a machine should hold, if it is. `estimate` folds it all the same.
std::optional<Rejection> check_lowerable(const Skeleton& skeleton);

}  // namespace foretrain
