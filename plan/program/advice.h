// What explains a plan: the same plan on other hardware, its neighbours, and the plan that was found
// instead of another. Plain data that sim/ fills (sim/explain.h, sim/recommend.h) and reports/ prints.
//
//   Explanation e = explain(best, options);
//   e.what_if.front().change      // "twice the bandwidth between nodes"
//   e.what_if.front().gain        // how much sooner the step ends
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"

namespace foretrain {

// A plan beside the one at hand: its figures, or why it cannot be.
struct Alternative {
    Parallelism parallelism;
    Time step;  // zero where it is not known
    Bytes peak;
    std::string why_not;  // empty: it is feasible
    bool feasible() const { return why_not.empty(); }
};

// One thing changed. The parallelism is the plan's own but where the change is a search of its own.
struct WhatIf {
    std::string key;     // "inter_node_bandwidth_x2"
    std::string change;  // in words
    Alternative then;
    Time gain;  // step before less step after: negative where it is slower, 0 where it cannot be
};

// The bandwidth of one kind of link with which a plan's communication over it would cost next to nothing:
// the step is within `hidden_within` of what it is if the link takes no time at all.
constexpr double hidden_within = 0.01;
struct LinkNeed {
    enum class Answer : std::uint8_t {
        unused,  // nothing is sent over it
        hidden,  // it is so already
        needs,   // `factor` times what there is
        cannot,  // no bandwidth suffices: latency alone takes longer
    };
    std::string key;   // "inter_node", "intra_node"
    std::string link;  // "between nodes", "inside a node"
    Answer answer = Answer::unused;
    double factor = 1;    // least that suffices, of hidden and needs, to a hundredth
    double gbps_now = 0;  // per GPU and direction
    Time free_step;       // the step if the link took no time
    Time best_step;       // with all the bandwidth in the world, and the latency there is
};

// Fields of a plan that does not fit, changed so that it does.
struct NearestChange {
    std::vector<std::string> changes;  // "recompute none -> selective"
    Alternative then;
    Time cost;  // its step less the wish's
};

// The fewest devices on which some plan fits.
struct SmallestSize {
    std::int64_t devices = 0;  // 0: none up to `searched_to`
    std::int64_t nodes = 0;    // that they stand in
    std::int64_t searched_to = 0;
    Alternative then;
};

struct Explanation {
    std::vector<WhatIf> what_if;  // largest gain first, then what cannot be
    std::vector<LinkNeed> links;
    std::optional<Alternative> largest_micro_batch;  // else as planned
    SmallestSize smallest;                           // with any batch
    SmallestSize smallest_with_batch;                // with the batch that was asked for
};

// The chosen value of one axis, beside the best plan that has another.
struct AxisReason {
    std::string axis;  // "tensor"
    std::string value;
    std::string other;  // the alternative's value; empty where there is no other
    Alternative alternative;
};

// What people choose by the model's size alone (sim/recommend.h).
struct RuleOfThumb {
    std::string rule;
    Alternative then;
};

}  // namespace foretrain
