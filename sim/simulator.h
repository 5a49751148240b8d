// Rung 3 of the ladder: the lowered program on a virtual clock, instruction by instruction.
//
// Event-driven: each stage has its streams (FIFO); an instruction starts when its stream reaches
// it and its waits are complete, a collective when all members have, a message when both sides
// have. Ties break by stage, then instruction id. Ranks of a stage behave alike, so one of each is
// simulated, and only messages and groups that span stages meet anyone; `slowdown` makes stages
// unequal (stragglers).
//
//   Trace trace = simulate(program, cost);
//   trace.ranks[0].steps[0].duration
//
//   Simulator simulator;                       // keeps its working memory from one program to the next
//   for (const Program& p : programs) simulator.simulate(p, cost);
//
// Errors: InternalError naming the stuck instructions if the program deadlocks, or if it is not lowered.
#pragma once

#include <memory>
#include <vector>

#include "plan/program/program.h"
#include "plan/program/trace.h"
#include "sim/cost.h"

namespace foretrain {

// Bytes that live on a rank from `time` on.
struct MemorySample {
    Time time;
    Bytes live;
    bool operator==(const MemorySample&) const = default;
};

struct SimulateOptions {
    std::vector<double> slowdown;  // factor on the kernels of each stage; empty: 1
    // If given: for each stage the live bytes over time, a sample wherever they change, the first at 0.
    std::vector<std::vector<MemorySample>>* memory = nullptr;
};

Trace simulate(const Program& program, const CostModel& cost, const SimulateOptions& options = {});

class Simulator {
public:
    Simulator();
    ~Simulator();
    Simulator(Simulator&&) noexcept;
    Simulator& operator=(Simulator&&) noexcept;

    Trace simulate(const Program& program, const CostModel& cost, const SimulateOptions& options = {});

private:
    struct State;
    std::unique_ptr<State> state_;
};

// The slowest rank's step.
Time step_time(const Trace& trace);

}  // namespace foretrain
