// The same plan on other hardware: what one change to the links would gain, and how fast a link would
// have to be for its communication to cost next to nothing.
//
//   const Skeleton skeleton = make_skeleton(plan, Depth::brief);
//   Time then = step_on(skeleton, with_network_bandwidth(plan.cluster, 2));
//   std::vector<WhatIf> all = what_if(prediction, options);        // largest gain first
//   LinkNeed need = inter_node_need(plan);                         // need.factor times the bandwidth there is
//
// Latency is all that a collective or message takes besides its bytes over a bandwidth.
#pragma once

#include <optional>
#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/sweep.h"

namespace foretrain {

ClusterSpec with_network_bandwidth(ClusterSpec cluster, double factor);  // between nodes
ClusterSpec with_domain_bandwidth(ClusterSpec cluster, double factor);   // inside a node
ClusterSpec with_network_latency(ClusterSpec cluster, double factor);
ClusterSpec with_domain_latency(ClusterSpec cluster, double factor);

// The plan's step on a cluster of the same shape.
Time step_on(const Skeleton& skeleton, const ClusterSpec& cluster);

// Twice the bandwidth between and inside nodes, half of all latency, micro-batches twice and half as
// large, each for the plan as it is; and the best of a sweep with twice the memory.
std::vector<WhatIf> what_if(const Prediction& before, const SweepOptions& options);

LinkNeed inter_node_need(const Plan& plan);
LinkNeed intra_node_need(const Plan& plan);

// The largest micro-batch of the plan that fits, or nothing where even the plan's own does not.
std::optional<Alternative> largest_micro_batch(const Plan& plan, const std::optional<Bytes>& max_memory = {});

Alternative alternative_of(const Prediction& prediction);  // with the first reason why not

}  // namespace foretrain
