#include "sim/sizes.h"

#include <algorithm>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "models/parameters.h"
#include "plan/framework.h"
#include "sim/what_if.h"

namespace foretrain {

std::string why_none(const SweepResult& result) {
    if (!result.nothing.empty()) return result.nothing;
    const auto commonest = std::max_element(result.fell.begin(), result.fell.end(), [](const auto& a, const auto& b) {
        return a.second.count < b.second.count;
    });
    return commonest == result.fell.end() ? "" : commonest->second.text;
}

SizeResult sweep_size(const Plan& base, const SweepOptions& options) {
    const SweepResult found = sweep(base, options);
    SizeResult size{.nodes = base.cluster.nodes,
                    .devices = base.cluster.devices(),
                    .enumerated = found.enumerated,
                    .feasible = found.feasible};
    if (found.best.empty())
        size.why_not = why_none(found);
    else
        size.best = found.best.front();
    return size;
}

void mark_fronts(std::vector<SizeResult>& sizes) {
    const auto hours = [](const SizeResult& s) { return seconds(s.best->step) * static_cast<double>(s.devices); };
    for (SizeResult& s : sizes) {
        if (!s.best) continue;
        s.fewest = std::none_of(sizes.begin(), sizes.end(), [&](const SizeResult& other) {
            return other.best && other.devices < s.devices && other.best->step <= s.best->step;
        });
        s.least_hours = std::none_of(sizes.begin(), sizes.end(), [&](const SizeResult& other) {
            return other.best && other.best->step < s.best->step && hours(other) <= hours(s);
        });
    }
}

std::optional<Plan> on_devices(const Plan& base, std::int64_t devices) {
    Plan plan = base;
    try {
        scale_to_devices(plan.cluster, devices);
    } catch (const UserError&) {
        return std::nullopt;  // no such size: neither whole nodes nor part of one
    }
    return plan;
}

std::int64_t fewest_for_state(const Plan& base, const SweepOptions& options) {
    const StateTypes types = state_types(base.training, framework_named(base.framework).half_gradient);
    const std::int64_t bytes = size_of(types.weight) + size_of(types.gradient) + 2 * size_of(types.optimizer) +
                               (types.master ? size_of(types.optimizer) : 0);
    const DeviceSpec& device = base.cluster.device;
    const Bytes capacity = std::min(device.memory, options.max_memory.value_or(device.memory));
    const Bytes room = capacity - device.reserved - framework_named(base.framework).reserved;
    if (room.value <= 0) return INT64_MAX;
    return ceil_div(parameter_count(base.model) * bytes, room.value);
}

namespace {

// Whatever fits will do; what needs least memory as a rule is tried before everything.
// `any`: whether there were plans at all.
std::optional<Alternative> any_that_fits(const Plan& base, SweepOptions options, bool& any) {
    options.top = 1;
    SweepOptions small = options;
    const auto& sizes = options.space.micro_batch_size;
    small.space.micro_batch_size = {sizes.empty() ? 1 : *std::min_element(sizes.begin(), sizes.end())};
    small.space.every_micro_batch = small.space.every_block = false;
    if (options.space.recompute.empty()) small.space.recompute = {{Recompute::Kind::full, 0}};
    for (const SweepOptions& space : {small, options}) {
        const SweepResult found = sweep(base, space);
        if (!found.best.empty()) return alternative_of(found.best.front());
        any = any || found.enumerated > 0;
    }
    return std::nullopt;
}

// The next size that a cluster comes in: part of a node, then whole nodes (or trays of a rack).
std::int64_t next_size(const ClusterSpec& cluster, std::int64_t devices) {
    if (devices < cluster.devices_per_node) return devices + 1;
    const std::int64_t step = cluster.devices_per_tray > 0 ? cluster.devices_per_tray : cluster.devices_per_node;
    return (devices / step + 1) * step;
}

}  // namespace

SmallestSize smallest_size(const Plan& base, const SweepOptions& options, const SizeSearch& search) {
    SmallestSize smallest;
    const std::int64_t first = std::max(search.from, fewest_for_state(base, options));
    int searched = 0;
    for (std::int64_t devices = first; devices <= search.most; devices = next_size(base.cluster, devices)) {
        smallest.searched_to = devices;
        std::optional<Plan> plan = on_devices(base, devices);
        if (!plan) continue;
        if (search.any_batch) plan->training.global_batch_size = devices;
        bool any = false;
        if (const auto found = any_that_fits(*plan, options, any)) {
            smallest.devices = devices;
            smallest.nodes = plan->cluster.nodes;
            smallest.then = *found;
            return smallest;
        }
        searched += any ? 1 : 0;
        if (searched == most_searches) return smallest;
    }
    smallest.searched_to = search.most;
    return smallest;
}

}  // namespace foretrain
