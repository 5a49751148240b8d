// A kernel back end: one function for each kind of kernel, chosen at run time as a whole.
//
// Operands are the addresses of the tensors in the order that kernel_args.h names. A kernel is pure
// arithmetic: it allocates nothing that outlives it, knows no model and no rank but the tensor and
// context rank that some arguments ask for, and gives the same bits for the same inputs.
//
//   const KernelTable& cpu = cpu_kernels();           // kernels/cpu/cpu_kernels.h
//   launch(cpu, args, {.operand = addresses, .tensor_rank = 0, .step = 1});
#pragma once

#include <cstdint>
#include <span>

#include "plan/program/kernel_args.h"

namespace foretrain {

struct KernelContext {
    std::span<void* const> operand;
    std::int64_t tensor_rank = 0;
    std::int64_t context_rank = 0;
    std::int64_t step = 1;  // counts from 1: AdamW's bias correction
};

template <class Args>
using KernelFunction = void (*)(const Args&, const KernelContext&);

struct KernelTable {
    KernelFunction<GemmArgs> gemm;
    KernelFunction<BiasGradientArgs> bias_gradient;
    KernelFunction<NormForwardArgs> norm_forward;
    KernelFunction<NormBackwardArgs> norm_backward;
    KernelFunction<GeluArgs> gelu;
    KernelFunction<SwigluArgs> swiglu;
    KernelFunction<RopeArgs> rope;
    KernelFunction<QkNormArgs> qk_norm;
    KernelFunction<AttentionForwardArgs> attention_forward;
    KernelFunction<AttentionBackwardArgs> attention_backward;
    KernelFunction<RingAttentionArgs> ring_attention;
    KernelFunction<KeyValueArgs> key_value;
    KernelFunction<RelayoutArgs> relayout;
    KernelFunction<EmbeddingArgs> embedding;
    KernelFunction<PositionsArgs> positions;
    KernelFunction<ResidualAddArgs> residual_add;
    KernelFunction<AccumulateArgs> accumulate;
    KernelFunction<CastArgs> cast;
    KernelFunction<LossArgs> loss;
    KernelFunction<AdamwArgs> adamw;
};

// Throws RunError for an element type that the back end does not have.
void launch(const KernelTable& table, const KernelArgs& args, const KernelContext& context);

}  // namespace foretrain
