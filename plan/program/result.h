// The answers: a prediction of one plan, and a sweep over many. Plain data that sim/ fills and
// reports/ prints; neither knows the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "plan/program/advice.h"
#include "plan/program/host_memory.h"
#include "plan/program/step_interval.h"
#include "plan/program/trace.h"
#include "plan/program/training_cost.h"

namespace foretrain {

// Memory of one stage's rank. Allocated bytes by role; `reserved` is held outside our tensors.
struct StageMemory {
    Bytes weights, gradients, optimizer;
    Bytes activations;    // slots for the microbatches in flight
    Bytes communication;  // pipeline messages, gathered parameters, gradients on their way
    Bytes rings;          // of those, for gathered parameters and gradients on their way to their shard
    Bytes workspace;      // the largest working set of one pass (transients)
    Bytes libraries;      // that other frameworks hold all through the step: workspaces of their libraries, buffers
    Bytes reserved;
    Bytes slack;      // that an allocator holds beyond what is allocated when that is most; given back in need
    Bytes live_peak;  // the most needed at once, in the order in which the host issues

    Bytes allocated() const {
        return weights + gradients + optimizer + activations + communication + workspace + libraries;
    }
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
    Time expert_exposed;    // ... for tokens on their way to experts and back
    Time data_exposed;      // ... for gradient reduction and parameter gathers
    Time host_exposed;      // ... for the host to enqueue
    Time overhead;          // ... for nothing else, whatever the framework does meanwhile
    Time pipeline_exposed;  // the rest: bubble and messages

    Time gemm, attention, head;  // of forward and backward; `head` with its loss, whatever runs in it
    Time bubble;                 // of pipeline_exposed: what is left of it if messages took no time
    Time other_kernels() const { return forward + backward - gemm - attention - head; }
    Time messages() const { return pipeline_exposed - bubble; }
    Time busy() const { return step - pipeline_exposed; }
};

// When a stage's live peak is reached, in the order in which the host issues.
struct PeakMoment {
    std::string pass;             // "forward", "backward", "message"; empty: nothing runs
    std::int64_t microbatch = 0;  // from 0
    // Chunk passes that have begun forward and not ended backward: microbatches, of one chunk.
    std::int64_t in_flight = 0;
    std::string section;  // where in the model, "layer3.attention"; may be empty
};
std::string text(const PeakMoment& moment);  // "backward pass of microbatch 3, in layer3.attention; 4 in flight"

struct Prediction {
    Plan plan;
    std::vector<Rejection> rejections;                  // not empty: nothing else is meaningful but what it names
    Time step;                                          // the slowest rank
    StepInterval interval;                              // that holds the true step in four cases of five
    HostMemory host;                                    // of the node that needs most
    std::vector<StageTime> times;                       // by stage
    std::vector<StageMemory> memory;                    // by stage
    std::vector<PeakMoment> peaks;                      // by stage: when its live peak is reached
    std::vector<WireCount> wire;                        // by stage: bytes sent by its first rank in one step
    Bytes capacity;                                     // of a device
    double model_flops = 0;                             // of the step, all ranks, attention in full, no recompute
    double model_flops_causal = 0;                      // attention by half
    double hardware_flops = 0;                          // executed, recompute included, attention in full
    std::optional<TrainingCost> training;               // of a whole training, if a number of tokens was given
    std::optional<std::vector<NearestChange>> nearest;  // of a plan that does not fit, if it was looked for

    bool feasible() const { return rejections.empty(); }
    // The stage that waits least for others and for messages: it sets the pace. Its time is told up to the end
    // of the step, by when it may have waited for stages before it.
    std::int64_t busiest_stage() const;
    StageTime time_of_busiest() const;   // all zero where there is no time
    std::int64_t largest_stage() const;  // by total memory
    Bytes peak_bytes() const;            // its total
    double tokens_per_second() const;
    // Against the devices' dense peak of the plan's precision: of a plan in fp8 that of fp8, though its attention
    // and head compute in bf16.
    double mfu() const;
    double mfu_causal() const;
    double hfu() const;
    double model_tflops_per_device() const;
};

// Whether the largest stage has room. Tight is less than a twentieth of the device to spare: so close to
// full, caching allocators begin to free and fetch again (measured runs lose 11 to 13 %, once half of
// their speed), and what a framework's own allocator adds is known to 2 % at best, 10 % commonly.
enum class Fit : std::uint8_t { fits, tight, out_of_memory };
std::string_view name_of(Fit fit);

struct MemoryVerdict {
    Fit fit = Fit::fits;
    Bytes margin;             // capacity less the largest stage's total; below zero: what is missing
    double margin_share = 0;  // of the capacity
};
constexpr double tight_below = 0.05;  // of the capacity to spare
MemoryVerdict verdict_of(const Prediction& prediction);
inline Fit fit_of(const Prediction& prediction) { return verdict_of(prediction).fit; }

struct RejectionCount {
    std::int64_t count = 0;
    std::string example;  // the plan; of those that do not fit, the nearest to it
    std::string text;     // why
};

// Combinations of tensor, pipeline, chunks and context that are no plans because the batch is no multiple of
// the data ranks that they leave.
struct LeftOutByBatch {
    std::int64_t combinations = 0, of = 0;
    std::int64_t batch = 0;  // that leaves out only `then_left_out`; 0 where nothing is left out
    std::int64_t then_left_out = 0;
};

struct SweepResult {
    Plan base;                                   // model, cluster, framework, training
    std::int64_t enumerated = 0;                 // tuples that divide
    std::int64_t feasible = 0;                   // of them, that check and fit
    std::int64_t estimated = 0;                  // of them, not excluded by their bound
    std::map<std::string, RejectionCount> fell;  // reason -> how many
    LeftOutByBatch left_out;                     // before anything is enumerated
    std::string nothing;                         // why nothing was enumerated; empty if something was
    std::vector<Prediction> best;                // fastest first; ties by plan order
    std::vector<Prediction> pareto;              // step time against peak memory, fastest first
    std::optional<Explanation> explanation;      // of the best, if it was asked for
    double elapsed_s = 0;                        // set by whoever holds the clock
};

// One size of a range of clusters.
struct SizeResult {
    std::int64_t nodes = 0, devices = 0;
    std::int64_t enumerated = 0, feasible = 0;
    std::optional<Prediction> best;
    std::string why_not;       // where there is none
    bool fewest = false;       // no smaller size is as fast
    bool least_hours = false;  // none is both as fast and as few device-hours a step
};

struct RangeResult {
    Plan base;  // of the first size
    std::vector<SizeResult> sizes;
    double elapsed_s = 0;
};

// The one plan to train with, and why.
struct Recommendation {
    SweepResult sweep;  // its best is recommended; empty where no plan is feasible
    std::vector<AxisReason> reasons;
    RuleOfThumb thumb;
    Explanation explanation;
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
