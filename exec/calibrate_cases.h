// What `calibrate` measures of the kernels: shapes typical of small transformers, in every role that
// a training step calls them in, with the operands that they need.
//
//   for (const KernelCase& c : gemm_cases(DType::fp32)) bench.measure(c);
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/kernel_args.h"

namespace foretrain {

struct CaseOperand {
    std::int64_t elements = 0;
    DType type = DType::fp32;
    std::int64_t below = 0;  // of int32: values are drawn from [0, below)
    std::int64_t bytes() const { return elements * size_of(type); }
};

struct KernelCase {
    KernelArgs args;
    std::vector<CaseOperand> operands;
    int hot = 0;  // the operand that the kernel before has just written, and is still in the caches; -1: none
};

std::vector<KernelCase> gemm_cases(DType type);  // fp32 or fp64
std::vector<KernelCase> other_cases(DType type);

}  // namespace foretrain
