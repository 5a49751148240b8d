// The kernels that a program may call: one name for the cost model, the kernel tables, reports and
// calibration files.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace foretrain {

enum class KernelKind : std::uint8_t {
    gemm,
    bias_gradient,
    norm_forward,
    norm_backward,
    gelu_forward,
    gelu_backward,
    swiglu_forward,
    swiglu_backward,
    rope,
    qk_norm_forward,
    qk_norm_backward,
    attention_forward,
    attention_backward,
    ring_attention_forward,
    ring_attention_backward,
    key_value_pack,
    key_value_unpack,
    relayout,
    embedding_forward,
    embedding_backward,
    positions_forward,
    positions_backward,
    residual_add,
    accumulate,
    cast,
    loss_max,
    loss_sum,
    loss_forward,
    loss_backward,
    adamw,
    router_forward,
    router_backward,
    permute,
    latent_pack,
    latent_unpack,
};

constexpr std::array kernel_kind_names{
    std::string_view("gemm"),
    std::string_view("bias_gradient"),
    std::string_view("norm_forward"),
    std::string_view("norm_backward"),
    std::string_view("gelu_forward"),
    std::string_view("gelu_backward"),
    std::string_view("swiglu_forward"),
    std::string_view("swiglu_backward"),
    std::string_view("rope"),
    std::string_view("qk_norm_forward"),
    std::string_view("qk_norm_backward"),
    std::string_view("attention_forward"),
    std::string_view("attention_backward"),
    std::string_view("ring_attention_forward"),
    std::string_view("ring_attention_backward"),
    std::string_view("key_value_pack"),
    std::string_view("key_value_unpack"),
    std::string_view("relayout"),
    std::string_view("embedding_forward"),
    std::string_view("embedding_backward"),
    std::string_view("positions_forward"),
    std::string_view("positions_backward"),
    std::string_view("residual_add"),
    std::string_view("accumulate"),
    std::string_view("cast"),
    std::string_view("loss_max"),
    std::string_view("loss_sum"),
    std::string_view("loss_forward"),
    std::string_view("loss_backward"),
    std::string_view("adamw"),
    std::string_view("router_forward"),
    std::string_view("router_backward"),
    std::string_view("permute"),
    std::string_view("latent_pack"),
    std::string_view("latent_unpack"),
};

constexpr std::string_view name_of(KernelKind kind) { return kernel_kind_names[static_cast<std::size_t>(kind)]; }

constexpr std::optional<KernelKind> kernel_kind_from_name(std::string_view name) {
    for (std::size_t i = 0; i < kernel_kind_names.size(); ++i)
        if (kernel_kind_names[i] == name) return static_cast<KernelKind>(i);
    return std::nullopt;
}

}  // namespace foretrain
