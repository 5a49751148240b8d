// From the skeleton to instructions: the chunk-level program, and the full one in which every body
// is unrolled into kernels and collectives. The full program is all that the simulator and the
// engine ever see.
//
//   Program chunks = unroll(skeleton);     // a few lines a microbatch: what a person reads first
//   Program program = lower(skeleton);     // every kernel of every rank class
#pragma once

#include "plan/program/program.h"
#include "plan/program/skeleton.h"

namespace foretrain {

Program unroll(const Skeleton& skeleton);
Program lower(const Skeleton& skeleton);

}  // namespace foretrain
