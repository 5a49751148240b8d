// Figures beyond these are slips: they keep products of sizes within 64 bits.
//
//   json.at("layers").integer(1, largest_layers);
#pragma once

#include <cstdint>

#include "base/json.h"
#include "models/model_spec.h"

namespace foretrain {

constexpr std::int64_t largest_size = std::int64_t{1} << 26;    // of a dimension, the vocabulary, positions
constexpr std::int64_t largest_layers = std::int64_t{1} << 12;  // of published models a few hundred
constexpr std::int64_t largest_heads = std::int64_t{1} << 16;
constexpr std::int64_t largest_experts = std::int64_t{1} << 16;  // of a layer
constexpr double largest_capacity = 1e6;
constexpr std::int64_t largest_count = std::int64_t{1} << 56;  // parameters; their bytes still fit
constexpr double smallest_epsilon = 1e-30;
constexpr double largest_epsilon = 1;
constexpr double largest_theta = 1e15;

// The rules between fields, for every way of reading: UserError at `where`.
void require_sound(const ModelSpec& model, const Json& where);

}  // namespace foretrain
