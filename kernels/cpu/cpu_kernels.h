// The kernels on one CPU core, in fp32 and fp64; other element types are refused by name.
//
// A call runs on the thread that makes it. The same inputs give the same bits wherever the tensors
// lie in memory: sums are taken in an order that the shape alone decides.
//
//   launch(cpu_kernels(), GemmArgs{.m = 64, .n = 64, .k = 64}, {.operand = addresses});
#pragma once

#include "kernels/kernel_table.h"

namespace foretrain {

const KernelTable& cpu_kernels();

}  // namespace foretrain
