// The functions behind cpu_kernels(), and what they share: element types chosen at run time, typed
// operands, scratch memory.
//
//   void gelu(const GeluArgs& a, const KernelContext& c) {
//       with_type("gelu", a.type, [&]<class T>(T) { run<T>(a, in<T>(c, 0), out<T>(c, 1)); });
//   }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/kernel_table.h"

namespace foretrain::cpu {

void gemm(const GemmArgs&, const KernelContext&);
void bias_gradient(const BiasGradientArgs&, const KernelContext&);
void norm_forward(const NormForwardArgs&, const KernelContext&);
void norm_backward(const NormBackwardArgs&, const KernelContext&);
void gelu(const GeluArgs&, const KernelContext&);
void swiglu(const SwigluArgs&, const KernelContext&);
void rope(const RopeArgs&, const KernelContext&);
void qk_norm(const QkNormArgs&, const KernelContext&);
void attention_forward(const AttentionForwardArgs&, const KernelContext&);
void attention_backward(const AttentionBackwardArgs&, const KernelContext&);
void ring_attention(const RingAttentionArgs&, const KernelContext&);
void key_value(const KeyValueArgs&, const KernelContext&);
void relayout(const RelayoutArgs&, const KernelContext&);
void embedding(const EmbeddingArgs&, const KernelContext&);
void positions(const PositionsArgs&, const KernelContext&);
void residual_add(const ResidualAddArgs&, const KernelContext&);
void accumulate(const AccumulateArgs&, const KernelContext&);
void cast(const CastArgs&, const KernelContext&);
void loss(const LossArgs&, const KernelContext&);
void adamw(const AdamwArgs&, const KernelContext&);

// Calls run(float{}) or run(double{}).
template <class Run>
void with_type(std::string_view kernel, DType type, Run&& run) {
    if (type == DType::fp32) return run(float{});
    if (type == DType::fp64) return run(double{});
    throw RunError("the CPU kernel " + std::string(kernel) + " has no " + std::string(name_of(type)) +
                   "; it has fp32 and fp64");
}

// For kernels that hold everything in one type.
inline void require_same(std::string_view kernel, DType type, DType other) {
    if (type != other)
        throw RunError("the CPU kernel " + std::string(kernel) + " does not mix " + std::string(name_of(type)) +
                       " with " + std::string(name_of(other)));
}

template <class T>
const T* in(const KernelContext& context, std::size_t index) {
    return static_cast<const T*>(context.operand[index]);
}
template <class T>
T* out(const KernelContext& context, std::size_t index) {
    return static_cast<T*>(context.operand[index]);
}

// At least `elements` of uninitialised memory that lasts until the next call with the same T and Slot
// on this thread. Kernels of one call use different slots.
template <class T, int Slot>
T* scratch(std::int64_t elements) {
    thread_local std::vector<T> memory;
    if (memory.size() < static_cast<std::size_t>(elements)) memory.resize(static_cast<std::size_t>(elements));
    return memory.data();
}

}  // namespace foretrain::cpu
