#include "sim/explain.h"

#include <algorithm>

#include "sim/sizes.h"
#include "sim/what_if.h"

namespace foretrain {

namespace {

// Both sizes, within `most` devices. With the batch asked for, at least as many as with any.
void find_smallest(Explanation& e, const Plan& base, SweepOptions options, std::int64_t most) {
    options.progress = nullptr;  // of one sweep: it would start over and over
    e.smallest = smallest_size(base, options, {.most = most, .any_batch = true});
    if (e.smallest.devices == 0) {
        e.smallest_with_batch.searched_to = most;
        return;
    }
    e.smallest_with_batch = smallest_size(base, options, {.from = e.smallest.devices, .most = most});
}

}  // namespace

Explanation explain(const Prediction& best, const SweepOptions& options) {
    Explanation e;
    e.what_if = what_if(best, options);
    e.links = {inter_node_need(best.plan), intra_node_need(best.plan)};
    e.largest_micro_batch = largest_micro_batch(best.plan, options.max_memory);
    find_smallest(e, best.plan, options, best.plan.cluster.devices());
    return e;
}

// Eight times the devices, or four times what the state alone takes: beyond that, it is no neighbour.
Explanation explain_none(const Plan& base, const SweepOptions& options) {
    Explanation e;
    const std::int64_t state = std::min(fewest_for_state(base, options), std::int64_t{1} << 20);
    find_smallest(e, base, options, std::max(base.cluster.devices() * 8, state * 4));
    return e;
}

}  // namespace foretrain
