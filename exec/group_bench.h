// Times the communicators between two ranks as a step meets them: both ranks come from computing,
// not quite at the same time, and what follows waits for the result.
//
//   double us = measure_collective(cpu_kernels(), InstructionKind::all_reduce, Bytes{1 << 20}, 0.03);
#pragma once

#include "exec/calibrate.h"

namespace foretrain {

// From the later rank's arrival until both have the result. `bytes` is the whole array.
double measure_collective(const KernelTable& kernels, InstructionKind kind, Bytes bytes, double seconds);

// From the end of the sender's work until the receiver's can begin, through their message streams.
double measure_message(const KernelTable& kernels, Bytes bytes, double seconds);

}  // namespace foretrain
