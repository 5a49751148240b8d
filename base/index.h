// Counts are signed everywhere, as in Quantity; containers take std::size_t. `at` turns one into the other.
//
//   times[at(stage)]                // stage: std::int64_t or std::int32_t, at least 0
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretrain {

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace foretrain
