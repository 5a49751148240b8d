#include "hardware/measured.h"

#include <fmt/format.h>

#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr double spread_of_a_measurement = 0.05;  // runs of nccl-tests differ by as much

template <class Constants>
void note_source(Constants& c, FieldReader& in) {
    in.require("source");
    c.born.source = fmt::format("bus bandwidth measured: {}; all else: {}", in.take("source").string(), c.born.source);
    const Json spread = in.take("spread");
    c.spread = spread.is_null() ? spread_of_a_measurement : spread.number(0, widest_spread);
}

}  // namespace

void set_measured(DomainConstants& domain, const Json& measured, int devices_per_node) {
    FieldReader in(measured);
    const Json reduce = in.take("all_reduce"), gather = in.take("all_gather"), pairwise = in.take("pairwise");
    note_source(domain, in);
    in.finish();
    const double n = devices_per_node;
    const bool in_switch = domain.nvls_ranks > 0 && devices_per_node >= domain.nvls_ranks;
    const auto set_ring = [&](const Json& value) {
        domain.ring_gbps = value.number(1e-3, fastest_gbps);
        domain.ring_gbps_by_ranks.clear();
    };
    if (!gather.is_null()) set_ring(gather);
    if (!reduce.is_null() && in_switch) {  // bus = 2 (n-1)/n S/t with t = S (1 + 1/n) / nvls
        domain.nvls_gbps = reduce.number(1e-3, fastest_gbps) * (1 + 1 / n) / (2 * (n - 1) / n);
        domain.nvls_wide_gbps = 0;
    } else if (!reduce.is_null() && gather.is_null()) {
        set_ring(reduce);
    }
    if (!pairwise.is_null()) domain.pairwise_gbps = pairwise.number(1e-3, fastest_gbps);
}

void set_measured(NetworkSpec& network, const Json& measured) {
    FieldReader in(measured);
    in.require("all_reduce");
    const Json reduce = in.take("all_reduce");
    note_source(network.constants, in);
    in.finish();
    const double line = network.nics_per_node * network.nic.gigabytes();
    const double bus = reduce.number(1e-3, fastest_gbps);
    if (bus > line)
        reduce.fail(reduce.found(), fmt::format("at most the line rate of a node, {:.4g} GB/s (on more than two nodes, "
                                                "without a reduction in the network's switches)",
                                                line));
    network.constants.efficiency = bus / line;
}

}  // namespace foretrain
