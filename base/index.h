// Counts are signed everywhere, as in Quantity; containers take std::size_t. `at` turns one into the other, and
// an enum into its place in an array of one entry for each.
//
//   times[at(stage)]                // stage: std::int64_t or std::int32_t, at least 0
//   busy[at(Stream::gather)]
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace foretrain {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class Enum>
requires std::is_enum_v<Enum>
constexpr std::size_t at(Enum e) { return static_cast<std::size_t>(e); }

}  // namespace foretrain
