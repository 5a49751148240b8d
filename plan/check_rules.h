// What the rules of `check` share: how a divisor is asked for and which ones are offered.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "plan/check.h"

namespace foretrain::check_rules {

// Of numbers of at least 1; nothing where it exceeds 64 bits.
std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors);

// The first divisors of n, what a user would choose from.
std::vector<std::int64_t> small_divisors(std::int64_t n);
// The one nearest to x. There must be one.
std::int64_t nearest_of(std::int64_t x, const std::vector<std::int64_t>& candidates);

// "must divide `of` = n". `also`: what the suggestion must divide besides n.
Rejection must_divide(const char* reason, const char* field, std::int64_t found, const char* of, std::int64_t n,
                      std::int64_t also = 0);

}  // namespace foretrain::check_rules
