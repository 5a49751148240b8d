#include "hardware/collective_time.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace foretrain {

namespace {

constexpr double us_per_gb = 1e3;  // bytes / (GB/s * 1e3) is microseconds

// Latencies that NCCL's own model assumes (src/graph/tuning.cc), in microseconds: of the call, and of
// a step inside a node and across the network, with the LL protocol (small messages) and with Simple.
constexpr double base_latency = 6.8;
constexpr double tree_step_inside = 0.6;
constexpr double ll_step_inside = 0.85, ll_step_across = 5;
constexpr double simple_step_inside = 3.4, simple_step_across = 17;
constexpr double ll_chunk_limit = 16 * 1024;  // bytes; LL sends a flag with every word, four times the bytes
constexpr double ll_inflation = 4;

// A two-node tree sends each byte once a direction where a ring sends 2(n-1)/n: share of it reached.
constexpr double two_node_tree_efficiency = 0.84;

// Sizes at which the multi-node all-reduce pays half of its pipelining terms; fitted with them.
constexpr double l1_half = 0.3 * static_cast<double>(MiB), k_half = 7.5 * static_cast<double>(MiB);

// Of an all-to-all across nodes.
constexpr double exchange_us = 20, exchange_peer_us = 0.6, exchange_efficiency = 0.9, exchange_ramp_us = 35;

constexpr std::int64_t pairwise_window = 64 * 1024;  // bytes after which a message's set-up has been paid

double as_double(std::int64_t n) { return static_cast<double>(n); }

// An all-reduce is a reduce-scatter and an all-gather.
std::int64_t ring_steps(Collective kind, std::int64_t ranks) {
    return (kind == Collective::all_reduce ? 2 : 1) * (ranks - 1);
}

}  // namespace

double ring_us(Collective kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    const double steps = as_double(ring_steps(kind, ranks));
    const double chunk = as_double(bytes) / as_double(ranks);
    const double step = chunk / (d.ring_of(ranks) * us_per_gb);
    const double x = steps * step;
    const double t = d.a_us + d.s_us * steps + x + d.d * step + std::sqrt(x * d.ramp_us);
    if (bytes / ranks < d.simple_from.value) return t;
    // From here on the Simple protocol: its steps are longer, which a full pipeline hides.
    const double floor = d.a_us + d.simple_s_us * steps;
    const double t2 = t * t, floor2 = floor * floor;
    return std::sqrt(std::sqrt(t2 * t2 + floor2 * floor2));
}

bool switch_reduces(std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    return d.nvls_ranks > 0 && d.nvls_gbps > 0 && ranks >= d.nvls_ranks && bytes >= MiB;
}

double switch_all_reduce_us(std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    // A rank sends its array once to the switch, and gets back what it reduced for the others.
    const double x = as_double(bytes) * (1 + 1 / as_double(ranks)) / (d.nvls_of(ranks) * us_per_gb);
    return d.nvls_a_us + x + std::sqrt(x * d.nvls_ramp_us);
}

double domain_collective_us(Collective kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    const double ring = ring_us(kind, bytes, ranks, d);
    if (kind != Collective::all_reduce || !switch_reduces(bytes, ranks, d)) return ring;
    return std::min(ring, switch_all_reduce_us(bytes, ranks, d));
}

double domain_message_us(std::int64_t bytes, const DomainConstants& d) {
    const double x = as_double(bytes) / (d.pairwise_gbps * us_per_gb);
    const double set_up = d.pairwise_p_us * as_double(std::min(bytes, pairwise_window)) / pairwise_window;
    return d.pairwise_a_us + set_up + x + std::sqrt(x * d.pairwise_ramp_us);
}

double domain_all_to_all_us(std::int64_t bytes, std::int64_t ranks, const DomainConstants& d) {
    const std::int64_t part = bytes / ranks;
    const double send = as_double(part) / (d.pairwise_gbps * us_per_gb);
    const double x = send * as_double(ranks - 1);
    const double set_up = d.pairwise_p_us * as_double(std::min(part, pairwise_window)) / pairwise_window;
    return d.pairwise_a_us + d.pairwise_s_us * std::log2(as_double(ranks)) + set_up + x + d.pairwise_d * send +
           std::sqrt(x * d.pairwise_ramp_us);
}

double network_all_reduce_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                             const NetworkConstants& network) {
    const double n = as_double(group.ranks), g = as_double(group.per_node);
    const double rounds = std::log2(as_double(group.nodes));
    const double volume = 2 * (n - 1) / n;  // a ring's, by which bus bandwidth is defined
    double gbps = network.efficiency * group.line_gbps;
    if (group.per_node > 1) {
        if (group.nodes == 2 && network.two_node_tree_gbps > 0)
            gbps = std::max(gbps,
                            std::min(two_node_tree_efficiency * group.line_gbps * volume, network.two_node_tree_gbps));
        const bool in_switch = domain.nvls_ranks > 0 && group.per_node >= domain.nvls_ranks;
        gbps = std::min(
            gbps, in_switch ? volume * domain.nvls_of(group.per_node) / (1 + 1 / g) : domain.ring_of(group.per_node));
    }
    const double s = as_double(bytes);
    const double x = volume * s / (gbps * us_per_gb);
    const double latency = base_latency + 2 * ((g - 1) * tree_step_inside + rounds * network.hop_us);
    const double fill = rounds * (network.l1_us * s / (s + l1_half) + network.k_us * s / (s + k_half));
    return network.latency_scale * (latency + fill) + x + std::sqrt(x * network.ramp_us);
}

double network_ring_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                       const NetworkConstants& network) {
    const double n = as_double(group.ranks);
    double gbps = network.efficiency * group.line_gbps;
    if (group.per_node > 1) gbps = std::min(gbps, domain.ring_of(group.per_node));
    const double across = as_double(group.nodes - 1), inside = as_double(group.ranks - 1) - across;
    const double x = (n - 1) / n * as_double(bytes) / (gbps * us_per_gb);
    const double scale = network.latency_scale;
    const double simple = scale * (base_latency + inside * simple_step_inside + across * simple_step_across) + x;
    if (as_double(bytes) / n >= ll_chunk_limit) return simple;
    return std::min(simple,
                    scale * (base_latency + inside * ll_step_inside + across * ll_step_across) + ll_inflation * x);
}

double network_message_us(std::int64_t bytes, double line_gbps, const NetworkConstants& network) {
    return network.latency_scale * network.p2p_us + as_double(bytes) / (network.p2p_efficiency * line_gbps * us_per_gb);
}

double network_all_to_all_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain) {
    const double n = as_double(group.ranks), g = as_double(group.per_node);
    const double part = as_double(bytes) / n;
    const double x = part * (n - g) / (exchange_efficiency * group.line_gbps / g * us_per_gb);
    const double inside = group.per_node > 1 ? part * (g - 1) / (domain.pairwise_gbps * us_per_gb) : 0;
    return exchange_us + exchange_peer_us * (n - 1) + std::max(inside, x) + std::sqrt(exchange_ramp_us * x);
}

double ring_shift_us(std::int64_t bytes, const GroupPlacement& group, double rank_line_gbps,
                     const DomainConstants& domain, const NetworkConstants& network) {
    if (group.ranks <= 1 || bytes <= 0) return 0;
    const double inside = group.per_node > 1 ? domain_message_us(bytes, domain) : 0;
    return group.nodes == 1 ? inside : std::max(inside, network_message_us(bytes, rank_line_gbps, network));
}

double collective_us(Collective kind, std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                     const NetworkConstants& network) {
    if (group.ranks <= 1 || bytes <= 0) return 0;
    if (kind == Collective::all_to_all)
        return group.nodes == 1 ? domain_all_to_all_us(bytes, group.ranks, domain)
                                : network_all_to_all_us(bytes, group, domain);
    if (group.nodes == 1) return domain_collective_us(kind, bytes, group.ranks, domain);
    if (kind == Collective::all_reduce) return network_all_reduce_us(bytes, group, domain, network);
    return network_ring_us(bytes, group, domain, network);
}

}  // namespace foretrain
