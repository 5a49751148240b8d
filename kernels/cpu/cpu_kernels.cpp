#include "kernels/cpu/cpu_kernels.h"

#include "kernels/cpu/functions.h"

namespace foretrain {

const KernelTable& cpu_kernels() {
    static constexpr KernelTable table{
        .gemm = cpu::gemm,
        .bias_gradient = cpu::bias_gradient,
        .norm_forward = cpu::norm_forward,
        .norm_backward = cpu::norm_backward,
        .gelu = cpu::gelu,
        .swiglu = cpu::swiglu,
        .rope = cpu::rope,
        .qk_norm = cpu::qk_norm,
        .attention_forward = cpu::attention_forward,
        .attention_backward = cpu::attention_backward,
        .ring_attention = cpu::ring_attention,
        .key_value = cpu::key_value,
        .relayout = cpu::relayout,
        .embedding = cpu::embedding,
        .positions = cpu::positions,
        .residual_add = cpu::residual_add,
        .accumulate = cpu::accumulate,
        .cast = cpu::cast,
        .loss = cpu::loss,
        .adamw = cpu::adamw,
    };
    return table;
}

}  // namespace foretrain
