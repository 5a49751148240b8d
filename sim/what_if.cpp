#include "sim/what_if.h"

#include <algorithm>
#include <cmath>

#include "sim/cost.h"
#include "sim/estimate.h"
#include "sim/predict.h"

namespace foretrain {

ClusterSpec with_network_bandwidth(ClusterSpec cluster, double factor) {
    cluster.network.nic.bytes_per_second *= factor;
    cluster.network.constants.two_node_tree_gbps *= factor;
    return cluster;
}

ClusterSpec with_domain_bandwidth(ClusterSpec cluster, double factor) {
    DomainConstants& d = cluster.domain;
    for (double* gbps : {&d.ring_gbps, &d.nvls_gbps, &d.nvls_wide_gbps, &d.pairwise_gbps}) *gbps *= factor;
    for (auto& [ranks, gbps] : d.ring_gbps_by_ranks) gbps *= factor;
    return cluster;
}

ClusterSpec with_network_latency(ClusterSpec cluster, double factor) {
    cluster.network.constants.latency_scale *= factor;
    return cluster;
}

ClusterSpec with_domain_latency(ClusterSpec cluster, double factor) {
    DomainConstants& d = cluster.domain;
    for (double* us : {&d.a_us, &d.s_us, &d.simple_s_us, &d.nvls_a_us, &d.pairwise_a_us, &d.pairwise_p_us})
        *us *= factor;
    return cluster;
}

Time step_on(const Skeleton& skeleton, const ClusterSpec& cluster) {
    Plan there = skeleton.plan;
    there.cluster = cluster;
    const CostModel cost(there);
    return Estimator(skeleton, cost).estimate().step;
}

Alternative alternative_of(const Prediction& p) {
    return {.parallelism = p.plan.parallelism,
            .step = p.step,
            .peak = p.peak_bytes(),
            .why_not = p.feasible() ? "" : text(p.rejections.front())};
}

namespace {

WhatIf other_links(const char* key, const char* change, const Prediction& before, const Skeleton& skeleton,
                   const ClusterSpec& cluster) {
    WhatIf w{.key = key, .change = change, .then = alternative_of(before)};
    w.then.step = step_on(skeleton, cluster);
    w.gain = before.step - w.then.step;
    return w;
}

// The estimate, with the sweep's own limit of memory.
Prediction estimate_within(const Plan& plan, const std::optional<Bytes>& max_memory) {
    Prediction p = estimate(plan);
    if (max_memory && p.feasible()) p.rejections = check_memory(plan, p.memory, std::min(p.capacity, *max_memory));
    return p;
}

WhatIf other_micro_batch(const char* key, const Prediction& before, std::int64_t size,
                         const std::optional<Bytes>& max_memory) {
    Plan plan = before.plan;
    plan.parallelism.micro_batch_size = size;
    WhatIf w{.key = key,
             .change = "micro-batch " + std::to_string(size),
             .then = alternative_of(estimate_within(plan, max_memory))};
    if (w.then.feasible()) w.gain = before.step - w.then.step;
    return w;
}

WhatIf more_memory(const Prediction& before, SweepOptions options) {
    Plan base = before.plan;
    base.cluster.device.memory = base.cluster.device.memory * 2;
    if (options.max_memory) *options.max_memory = *options.max_memory * 2;
    options.top = 1;
    WhatIf w{.key = "memory_x2", .change = "twice the memory, the best plan then"};
    const SweepResult found = sweep(base, options);
    if (found.best.empty()) return w;
    w.then = alternative_of(found.best.front());
    w.gain = before.step - w.then.step;
    return w;
}

}  // namespace

std::vector<WhatIf> what_if(const Prediction& before, const SweepOptions& options) {
    const Plan& plan = before.plan;
    const Skeleton skeleton = make_skeleton(plan, Depth::brief);
    const ClusterSpec& cluster = plan.cluster;
    std::vector<WhatIf> all;
    if (cluster.nodes > 1)
        all.push_back(other_links("inter_node_bandwidth_x2", "twice the bandwidth between nodes", before, skeleton,
                                  with_network_bandwidth(cluster, 2)));
    if (cluster.devices_per_node > 1)
        all.push_back(other_links("intra_node_bandwidth_x2", "twice the bandwidth inside a node", before, skeleton,
                                  with_domain_bandwidth(cluster, 2)));
    if (cluster.devices() > 1)
        all.push_back(other_links("latency_half", "half the latency of all links", before, skeleton,
                                  with_network_latency(with_domain_latency(cluster, 0.5), 0.5)));
    const std::int64_t size = plan.parallelism.micro_batch_size;
    if (plan.microbatches() % 2 == 0)
        all.push_back(other_micro_batch("micro_batch_x2", before, size * 2, options.max_memory));
    if (size % 2 == 0) all.push_back(other_micro_batch("micro_batch_half", before, size / 2, options.max_memory));
    all.push_back(more_memory(before, options));
    std::stable_sort(all.begin(), all.end(), [](const WhatIf& a, const WhatIf& b) {
        return std::pair(a.then.feasible(), a.gain) > std::pair(b.then.feasible(), b.gain);
    });
    return all;
}

namespace {

constexpr double boundless = 1 << 24;

// `at(factor, latency)`: the plan's step with so many times the link's bandwidth and latency.
template <class StepAt>
LinkNeed need_of(LinkNeed need, Time now, const StepAt& at) {
    need.free_step = at(boundless, 0.0);
    need.best_step = at(boundless, 1.0);
    if (need.free_step == now) return need;
    const double enough = seconds(need.free_step) * (1 + hidden_within);
    const auto hides = [&](double factor) { return seconds(at(factor, 1.0)) <= enough; };
    need.answer = LinkNeed::Answer::cannot;
    if (seconds(need.best_step) > enough) return need;
    need.answer = hides(1) ? LinkNeed::Answer::hidden : LinkNeed::Answer::needs;
    // More bandwidth is never slower, so there is one place where it begins to suffice.
    double low = std::log2(need.answer == LinkNeed::Answer::hidden ? 1 / boundless : 1.0);
    double high = std::log2(need.answer == LinkNeed::Answer::hidden ? 1.0 : boundless);
    while (high - low > std::log2(1.01)) {
        const double middle = (low + high) / 2;
        (hides(std::exp2(middle)) ? high : low) = middle;
    }
    need.factor = std::exp2(high);
    return need;
}

}  // namespace

LinkNeed inter_node_need(const Plan& plan) {
    LinkNeed need{.key = "inter_node", .link = "between nodes"};
    const ClusterSpec& c = plan.cluster;
    if (c.nodes == 1) return need;
    need.gbps_now = c.network.nic.gigabytes() * c.network.nics_per_node / c.devices_per_node;
    const Skeleton skeleton = make_skeleton(plan, Depth::brief);
    return need_of(need, step_on(skeleton, c), [&](double factor, double latency) {
        return step_on(skeleton, with_network_bandwidth(with_network_latency(c, latency), factor));
    });
}

LinkNeed intra_node_need(const Plan& plan) {
    LinkNeed need{.key = "intra_node", .link = "inside a node"};
    const ClusterSpec& c = plan.cluster;
    if (c.devices_per_node == 1) return need;
    need.gbps_now = c.domain.ring_gbps;
    const Skeleton skeleton = make_skeleton(plan, Depth::brief);
    return need_of(need, step_on(skeleton, c), [&](double factor, double latency) {
        return step_on(skeleton, with_domain_bandwidth(with_domain_latency(c, latency), factor));
    });
}

std::optional<Alternative> largest_micro_batch(const Plan& plan, const std::optional<Bytes>& max_memory) {
    const std::int64_t samples = plan.training.global_batch_size / plan.parallelism.data;
    std::vector<std::int64_t> sizes;
    for (std::int64_t d = 1; d * d <= samples; ++d)
        if (samples % d == 0) sizes.insert(sizes.end(), {d, samples / d});
    std::sort(sizes.rbegin(), sizes.rend());
    for (std::int64_t size : sizes) {
        Plan larger = plan;
        larger.parallelism.micro_batch_size = size;
        if (const Prediction p = estimate_within(larger, max_memory); p.feasible()) return alternative_of(p);
    }
    return std::nullopt;
}

}  // namespace foretrain
