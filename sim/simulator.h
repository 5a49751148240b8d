// Rung 3 of the ladder: the lowered program on a virtual clock, instruction by instruction.
//
// Event-driven: each stage has its streams (FIFO); an instruction starts when its stream reaches
// it and its waits are complete, a collective when all members have, a message when both sides
// have. Ties break by stage, then instruction id. Ranks of a stage behave alike, so one of each is
// simulated; `slowdown` makes stages unequal (stragglers).
//
//   Trace trace = simulate(program, cost);
//   trace.ranks[0].steps[0].duration
//
// Errors: InternalError naming the stuck instructions if the program deadlocks.
#pragma once

#include <vector>

#include "plan/program/program.h"
#include "plan/program/trace.h"
#include "sim/cost.h"

namespace foretrain {

struct SimulateOptions {
    std::vector<double> slowdown;  // factor on the kernels of each stage; empty: 1
};

Trace simulate(const Program& program, const CostModel& cost, const SimulateOptions& options = {});

// The slowest rank's step.
Time step_time(const Trace& trace);

}  // namespace foretrain
