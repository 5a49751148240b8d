// Element types of tensors, with their size and their name in files and on the command line.
//
// The last two are formats that matrix products compute in, blocks of small numbers with a scale each
// (OCP Microscaling, NVIDIA's NVFP4). Their inputs are quantised on the way in: no tensor of a program is
// stored in them.
//
//   size_of(DType::bf16) == 2;  operand_bytes(DType::nvfp4) == 0.5625
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace foretrain {

enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, fp8, int32, mxfp8, nvfp4 };
constexpr std::size_t dtype_count = static_cast<std::size_t>(DType::nvfp4) + 1;

constexpr std::int64_t size_of(DType t) {
    switch (t) {
        case DType::fp64: return 8;
        case DType::fp32: return 4;
        case DType::bf16: return 2;
        case DType::fp16: return 2;
        case DType::fp8: return 1;
        case DType::int32: return 4;
        case DType::mxfp8: return 1;
        case DType::nvfp4: return 1;  // two elements in truth
    }
    return 0;
}

// What a product reads of an element: of nvfp4 half a byte, and of each 16 the byte of their scale. mxfp8's
// scales (one byte of 32) are left out, as the constants of products in fp8 serve for it.
constexpr double operand_bytes(DType t) { return t == DType::nvfp4 ? 0.5625 : static_cast<double>(size_of(t)); }

// Whether a plan whose precision this is computes only the products of its layers in it, and stores nothing so.
constexpr bool is_quantised(DType t) { return t == DType::fp8 || t == DType::mxfp8 || t == DType::nvfp4; }

constexpr std::string_view name_of(DType t) {
    switch (t) {
        case DType::fp64: return "fp64";
        case DType::fp32: return "fp32";
        case DType::bf16: return "bf16";
        case DType::fp16: return "fp16";
        case DType::fp8: return "fp8";
        case DType::int32: return "int32";
        case DType::mxfp8: return "mxfp8";
        case DType::nvfp4: return "nvfp4";
    }
    return "?";
}

// bf16 of fp16 and the reverse; every other type is its own.
constexpr DType other_half(DType type) {
    if (type == DType::fp16) return DType::bf16;
    return type == DType::bf16 ? DType::fp16 : type;
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
    for (DType t :
         {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::fp8, DType::int32, DType::mxfp8, DType::nvfp4})
        if (name == name_of(t)) return t;
    return std::nullopt;
}

}  // namespace foretrain
