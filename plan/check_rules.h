// What the rules of `check` share: how a divisor is asked for and which ones are offered; and the rules that
// have a file of their own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "plan/check.h"
#include "plan/framework.h"

namespace foretrain::check_rules {

// No size of a plan is larger; two of them multiply without overflow only where that is shown.
constexpr std::int64_t largest = std::int64_t{1} << 40;

// Of numbers of at least 1; nothing where it exceeds 64 bits.
std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors);

std::string text_of(std::optional<std::int64_t> x);

// The devices that tensor, pipeline and data share, if context divides them.
std::int64_t devices_beside_context(const Plan& plan);

// The first divisors of n, what a user would choose from.
std::vector<std::int64_t> small_divisors(std::int64_t n);
// The one nearest to x. There must be one.
std::int64_t nearest_of(std::int64_t x, const std::vector<std::int64_t>& candidates);
// The candidates around x, "2 or 4"; one where x lies beyond them. They are ascending, and not none.
std::string neighbours_of(std::int64_t x, const std::vector<std::int64_t>& candidates);

// "must divide `of` = n". `also`: what the suggestion must divide besides n.
Rejection must_divide(const char* reason, const char* field, std::int64_t found, const char* of, std::int64_t n,
                      std::int64_t also = 0);

// Whether the framework does what the plan asks of it (plan/check_framework.cpp).
void check_framework(const Plan& plan, const Framework& framework, std::vector<Rejection>& out);

// Whether the context ranks can share each sequence, by the method that they use (plan/check_context.cpp).
void check_context(const Plan& plan, std::vector<Rejection>& out);

// That what the framework adds fits clocks of picoseconds: it grows with layers and scores and not with work, so
// that a bound on the work says nothing of it (plan/check_added.cpp).
void check_added_magnitude(const Plan& plan, const Framework& framework, std::vector<Rejection>& out);

// Whether ZeRO can shard over a part of the replicas, and messages hold up computing
// (plan/check_communication.cpp).
void check_shard(const Plan& plan, std::vector<Rejection>& out);
void check_overlap(const Plan& plan, std::vector<Rejection>& out);

// Whether a layer's experts can be shared out as the plan says (plan/check_experts.cpp).
void check_experts(const Plan& plan, std::vector<Rejection>& out);

}  // namespace foretrain::check_rules
