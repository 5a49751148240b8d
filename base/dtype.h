// Element types of tensors, with their size and their name in files and on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace foretrain {

enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, fp8, int32 };

constexpr std::int64_t size_of(DType t) {
    switch (t) {
        case DType::fp64: return 8;
        case DType::fp32: return 4;
        case DType::bf16: return 2;
        case DType::fp16: return 2;
        case DType::fp8: return 1;
        case DType::int32: return 4;
    }
    return 0;
}

constexpr std::string_view name_of(DType t) {
    switch (t) {
        case DType::fp64: return "fp64";
        case DType::fp32: return "fp32";
        case DType::bf16: return "bf16";
        case DType::fp16: return "fp16";
        case DType::fp8: return "fp8";
        case DType::int32: return "int32";
    }
    return "?";
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
    for (DType t : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::fp8, DType::int32})
        if (name == name_of(t)) return t;
    return std::nullopt;
}

}  // namespace foretrain
