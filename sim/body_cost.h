// A body as a map from the clocks at its entry to the clocks at its exit. Every instruction starts
// at the maximum of what it waits for, so the map is linear over (max, +): a small integer matrix,
// found by running the body once on symbolic clocks. What makes `estimate` cheap and exact.
//
//   std::vector<BodyCost> costs = body_costs(stage, stage_number, grid, cost);
//   costs[Stage::forward].apply({compute, host, gather, reduce, context, input})    // exit clocks of all but input
#pragma once

#include <array>
#include <vector>

#include "base/units.h"
#include "plan/program/stage.h"
#include "plan/program/trace.h"
#include "sim/cost.h"

namespace foretrain {

// The streams that bodies use, and at the entry also what the pass depends on.
constexpr std::size_t body_ports = body_streams + 1;
constexpr std::size_t input_port = body_streams;

// [s][p]: time from port p at the entry to stream s at the exit; BodyCost::never if s waits not for p.
using Ways = std::array<std::array<std::int64_t, body_ports>, body_streams>;

struct BodyCost {
    static constexpr std::int64_t never = -1;
    Ways exit{};
    // The same to the compute stream, if what the host does took no time, and if what the context stream does
    // took none either: the differences are what computing waits for them.
    std::array<std::int64_t, body_ports> exit_without_host{}, exit_without_either{};
    Ways exit_without_messages{};  // if compute did not stand still for the pass' message

    std::array<Time, body_streams> busy{};  // of each stream
    Time kernels;                           // on the compute stream, recompute apart
    Time recompute;
    Time overhead;  // stalls of a fixed length, but for those for messages
    Time messages;
    Time gemm, attention, head;                       // of `kernels`: the head's are all in `head`
    Time tensor, context, expert;                     // collectives of the axis on the compute stream
    Flops gemm_flops, attention_flops;                // attention in full, not its causal half
    std::vector<std::pair<std::string, Bytes>> wire;  // sent by a group's first member

    std::array<Time, body_streams> apply(const std::array<Time, body_ports>& entry) const;
};

// When a stream is through, from the entry's clocks and the way from each.
Time latest(const std::array<std::int64_t, body_ports>& way, const std::array<Time, body_ports>& entry);

// Runs a body on symbolic clocks, its instructions taking `times`.
Ways ways_through(const Body& body, const std::vector<Time>& times);

// Of every body of the stage, in the order of Stage::bodies.
std::vector<BodyCost> body_costs(const Stage& stage, std::int64_t stage_number, const RankGrid& grid,
                                 const CostModel& cost);

}  // namespace foretrain
