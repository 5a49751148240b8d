// The answers: a prediction of one plan, and a sweep over many. Plain data that sim/ fills and
// reports/ prints; neither knows the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "plan/program/trace.h"

namespace foretrain {

// Memory of one stage's rank. Allocated bytes by role; `reserved` is held outside our tensors.
struct StageMemory {
    Bytes weights, gradients, optimizer;
    Bytes activations;    // slots for the microbatches in flight
    Bytes communication;  // pipeline messages, gathered parameters, gradients on their way
    Bytes workspace;      // the largest working set of one pass (transients)
    Bytes reserved;
    Bytes live_peak;  // the most needed at once, in the order in which the host issues

    Bytes allocated() const { return weights + gradients + optimizer + activations + communication + workspace; }
    Bytes total() const { return allocated() + reserved; }
};

// Index of the stage with the largest total; 0 of none.
std::size_t largest_of(const std::vector<StageMemory>& stages);

// Time of one stage's rank over one step; the parts sum to the step of that rank.
struct StageTime {
    Time step;
    Time forward;           // kernels of forward passes
    Time backward;          // kernels of backward passes, recompute apart
    Time recompute;         // kernels run again in backward passes
    Time optimizer;         // kernels of the optimizer step
    Time tensor_exposed;    // compute waits for tensor-parallel collectives
    Time context_exposed;   // ... for exchanges with the ranks that share a sequence
    Time data_exposed;      // ... for gradient reduction and parameter gathers
    Time host_exposed;      // ... for the host to enqueue
    Time overhead;          // ... for nothing else, whatever the framework does meanwhile
    Time pipeline_exposed;  // the rest: bubble and messages
};

struct Prediction {
    Plan plan;
    std::vector<Rejection> rejections;  // not empty: nothing else is meaningful but what it names
    Time step;                          // the slowest rank
    std::vector<StageTime> times;       // by stage
    std::vector<StageMemory> memory;    // by stage
    std::vector<WireCount> wire;        // by stage: bytes sent by its first rank in one step
    Bytes capacity;                     // of a device
    double model_flops = 0;             // of the step, all ranks, attention in full, no recompute
    double model_flops_causal = 0;      // attention by half
    double hardware_flops = 0;          // executed, recompute included, attention in full

    bool feasible() const { return rejections.empty(); }
    std::int64_t slowest_stage() const;
    std::int64_t largest_stage() const;  // by total memory
    Bytes peak_bytes() const;            // its total
    double tokens_per_second() const;
    double mfu() const;  // against the devices' dense peak at the plan's precision
    double mfu_causal() const;
    double hfu() const;
    double model_tflops_per_device() const;
};

struct RejectionCount {
    std::int64_t count = 0;
    std::string example;  // the plan; of those that do not fit, the nearest to it
    std::string text;     // why
};

struct SweepResult {
    Plan base;                                   // model, cluster, framework, training
    std::int64_t enumerated = 0;                 // tuples that divide
    std::int64_t feasible = 0;                   // of them, that check and fit
    std::int64_t estimated = 0;                  // of them, not excluded by their bound
    std::map<std::string, RejectionCount> fell;  // reason -> how many
    std::string nothing;                         // why nothing was enumerated; empty if something was
    std::vector<Prediction> best;                // fastest first; ties by plan order
    std::vector<Prediction> pareto;              // step time against peak memory, fastest first
    double elapsed_s = 0;                        // set by whoever holds the clock
};

// The join of a simulated and a measured trace.
struct InstructionError {
    std::int64_t rank = 0;
    std::int32_t instruction = 0;
    std::string name;  // kind, section and shape in words
    Time predicted, measured;
};

struct KindError {
    std::string kind;
    std::int64_t count = 0;
    Time predicted, measured;  // summed over instructions of all ranks
};

struct Validation {
    Prediction prediction;
    Time measured_step;  // median step of the slowest rank, warm-up left out
    Time predicted_step;
    std::vector<double> losses;  // by step
    std::vector<KindError> by_kind;
    std::vector<InstructionError> worst;  // by absolute difference, ten at most
    Bytes memory_error;                   // largest |layout - allocated| over ranks and regions
    Bytes communication_error;            // largest |predicted - counted| over ranks, groups and kinds
    Bytes peak_resident;                  // of the process

    double step_error() const;  // predicted / measured - 1
};

}  // namespace foretrain
