// What a framework adds to a step, against what the counts of picoseconds hold.
#include <fmt/format.h>

#include <algorithm>

#include "plan/attention_choice.h"
#include "plan/check_rules.h"

namespace foretrain {

void check_rules::check_added_magnitude(const Plan& plan, const Framework& f, std::vector<Rejection>& out) {
    constexpr double most_seconds = 1e6;
    if (f.costs == SoftwareCosts{}) return;
    const auto d = [](std::int64_t x) { return static_cast<double>(x); };
    const HostCosts& h = f.costs.host;
    double operation = 0, collective = 0;  // the longest
    for (const auto& [from, us] : h.operation_us) operation = std::max(operation, us);
    for (const auto& [from, us] : h.collective_us) collective = std::max(collective, us);
    constexpr double collectives = 16;  // of a layer, forward, backward and again
    double layer = d(2 * h.forward_operations + h.backward_operations) * operation + h.recompute_us +
                   collectives * collective + 2 * f.costs.stall.forward_us + f.costs.stall.backward_us;
    const Parallelism& p = plan.parallelism;
    if (plan.model.has_experts()) {
        const ExpertCosts& e = f.costs.experts;
        const double local = d(plan.model.moe.experts) / d(p.expert);
        layer += (2 * e.forward_operations.of(local) + e.backward_operations.of(local)) *
                 (e.host_takes * operation + e.gap_us * e.stall_takes);
    }
    const double tokens = d(plan.training.sequence_length);
    const double scores = d(p.micro_batch_size) * d(plan.model.attention_heads) * tokens * tokens;
    const double bandwidth = plan.cluster.device.memory_bandwidth.bytes_per_second;
    const UnfusedAttention u = unfused_attention(plan, f);
    layer += scores * (2 * u.forward_bytes + u.backward_bytes) / std::max(bandwidth, 1.0) * 1e6 * 2;
    const double passes = d(plan.training.global_batch_size) / (d(p.micro_batch_size) * d(p.data));
    const double messages = 2 * d(p.virtual_pipeline) * (passes + d(p.pipeline)) * f.costs.messages.each_us;
    const double time = (passes * d(plan.model.layers) * layer + messages) * 1e-6;
    if (!(time <= most_seconds))
        out.push_back(
            {.reason = "step_too_long",
             .field = "training.global_batch_size",
             .found = fmt::format("{:.1e} s a step", time),
             .rule = fmt::format("what {} adds to all layers must be at most {:.0e} s", f.name, most_seconds)});
}

}  // namespace foretrain
