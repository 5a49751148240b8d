// How many devices: each size of a range swept by itself, and the fewest on which a model trains at all.
//
//   SizeResult at = sweep_size(base, options);                   // base.cluster has the size
//   mark_fronts(sizes);                                          // what no smaller size beats
//   SmallestSize s = smallest_size(base, options, {.most = 1024});   // s.devices, s.then
//
// A size is what scale_to_devices takes: part of a node, or whole nodes. Sizes whose devices together
// cannot hold one copy of the weights, gradients and optimizer state are passed over without a search;
// all others are tried in ascending order, for what divides at one size need not at the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/program/result.h"
#include "sim/sweep.h"

namespace foretrain {

SizeResult sweep_size(const Plan& base, const SweepOptions& options);

// Sets `fewest` and `least_hours`.
void mark_fronts(std::vector<SizeResult>& sizes);

// At most so many sizes that have plans, none of which fits, are searched: `searched_to` says how far.
constexpr int most_searches = 64;
struct SizeSearch {
    std::int64_t from = 1, most = 1;  // devices
    bool any_batch = false;           // the global batch is whatever divides: whether the model trains at all
};
SmallestSize smallest_size(const Plan& base, const SweepOptions& options, const SizeSearch& search);

// The base on so many devices, or nothing where its cluster does not come in that size.
std::optional<Plan> on_devices(const Plan& base, std::int64_t devices);

// Fewer hold not even one copy of a model's state.
std::int64_t fewest_for_state(const Plan& base, const SweepOptions& options);

// Why a sweep found nothing: what stands in the way, or what most plans fell for.
std::string why_none(const SweepResult& result);

}  // namespace foretrain
