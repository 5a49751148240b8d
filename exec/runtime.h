// Runs a lowered program on this machine: every rank is a thread, its streams are threads, and the
// ranks talk through memory. What happened comes back as a Trace, in the terms in which the
// simulator predicts it.
//
//   Program program = lower(make_skeleton(plan));
//   RunResult result = run_program(program, {.kernels = &cpu_kernels(), .steps = 20,
//                                            .on_step = [](const StepReport& s) { ... }});
//   result.trace.ranks[0].steps[5].duration
//
// Throws RunError if a rank fails: it names the rank, its instruction and why; the other ranks are
// released first. One call runs one program; calls do not share anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "exec/weights.h"
#include "kernels/kernel_table.h"
#include "plan/program/program.h"
#include "plan/program/trace.h"

namespace foretrain {

struct StepReport {
    std::int64_t step = 0;  // from 0
    double loss = 0;        // mean over the tokens of the global batch, before this step's update
    Time duration;          // of the slowest rank
};

struct RunOptions {
    const KernelTable* kernels = nullptr;
    std::int64_t steps = 1;
    std::uint64_t seed = 0;                          // of weights and data
    std::function<void(const StepReport&)> on_step;  // between steps; one call at a time
    bool keep_state = false;                         // fill RunResult::state
    bool keep_spans = true;                          // in the trace; else only each step's duration and loss
    // Keep each rank's compute stream on a processor of its own, as far as there are enough: else the
    // operating system may crowd two on one. Not for runs that share the machine with each other.
    bool bind_ranks = false;
    std::chrono::milliseconds watchdog{60000};  // nothing moves on any rank: an error
};

struct RunResult {
    Trace trace;                                  // kind "measured", all ranks
    std::map<std::string, ParameterState> state;  // by parameter name, whole tensors
};

RunResult run_program(const Program& program, const RunOptions& options);

// The most memory this process has had resident so far, as the operating system counts it; 0 if it
// does not say.
Bytes peak_resident();

}  // namespace foretrain
