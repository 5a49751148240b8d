// A profile of the software that will run a plan: what it keeps for the backward pass, which ZeRO
// stages and schedules it has, what it holds outside its tensors, what it costs besides kernels and
// collectives. Profiles are data with sources (plan/presets/frameworks/*.json, embedded); check, sweep,
// the body builder and the cost model obey them.
//
// A framework has several versions, of which the newest is meant where none is named, but for those that stand
// for one way to use it and are meant only by name.
//
//   const Framework& f = framework_named("megatron-lm");
//   const Framework& g = framework_named("megatron-lm@2021");
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"
#include "plan/memory_costs.h"
#include "plan/plan.h"
#include "plan/software_costs.h"

namespace foretrain {

// Which runs a version stands for, where all that is known of a run is who made it and when. What is not
// stated does not tell versions apart.
struct VersionRuns {
    std::string from_month, until_month;      // "2022-05": releases that are dates, the ends included
    std::string from_release, until_release;  // "0.3", which stands for 0.3.16 as well
    std::vector<std::string> details;         // words by which descriptions of a run name it, "bigscience"
    bool compiled = false;                    // its layers were compiled
    // Whose runs it also stands for where that framework's own profile has not the ZeRO stage.
    std::string in_place_of;
    bool dates_releases() const {
        return !(from_month.empty() && until_month.empty() && from_release.empty() && until_release.empty());
    }
    bool operator==(const VersionRuns&) const = default;
};

struct Framework {
    std::string name;
    std::string version;
    bool runnable = false;  // `run` and `validate` accept it
    std::vector<int> zero_stages;
    std::vector<int> zero_stages_in_part;  // of those, the ones that can shard over a part of the replicas
    std::vector<Schedule> schedules;
    bool has_tensor_ranks = true;
    bool has_pipeline = true;
    bool interleaves = false;     // several chunks a stage (virtual_pipeline)
    bool routes_experts = false;  // has layers with experts, and ranks that share them out
    // Layers that do not divide fill one stage after the other, embedding and head being one each: the last stage
    // has what is left. Other frameworks want to be told.
    bool fills_stages = false;
    std::vector<DType> precisions;  // a plan's, by the words for them
    std::vector<Recompute::Kind> recompute;
    bool offloads_optimizer = false;             // its state may stand in host memory
    std::vector<ContextMethod> context_methods;  // ways to spread a sequence; empty: none
    bool default_sequence_parallel = false;      // whenever tensor > 1 and it divides
    int default_zero_stage = 0;
    Overlap default_overlap;
    DType half_gradient = DType::fp32;  // of training in 16 bits or fewer; fp16: of training in fp16 alone
    bool reduces_whole = false;         // ZeRO-1 hands every replica all sums, of which it uses its own
    // Kept beside each matrix of a layer in the formats that products compute in, bytes a weight by the device's
    // dense bf16 peak: other devices multiply what stands in other orders.
    StepsByType quantised_weights;
    std::int64_t vocab_multiple = 1;     // vocabulary is padded to this times the tensor ranks
    bool loss_fp32_copy = false;         // logits are copied to fp32 and kept for the backward pass
    bool recompute_stops_early = false;  // a recompute leaves out what the backward pass does not read
    Bytes reserved;                      // held outside its tensors, on top of the device's own
    bool builds_on_host = false;         // each rank builds its weights in host memory before they are on the device
    bool checkpoints_beside = false;     // can write a checkpoint beside training, from a copy in host memory
    // Relative half-width of an interval that holds a measured step in four cases of five, if all constants of
    // device and links are right; 0: not stated.
    double step_spread = 0;
    bool step_spread_assumed = false;  // a judgement: too few of the version's runs were seen to say
    SoftwareCosts costs;
    MemoryCosts memory;
    bool by_name_only = false;                   // no version that is meant where none is named
    VersionRuns runs;                            // plan/framework_version.h chooses by it
    std::map<std::string, std::string> sources;  // by field, and by group of costs
    bool operator==(const Framework&) const = default;
};

// "name" or "name@version"; UserError with the nearest for an unknown one.
const Framework& framework_named(std::string_view reference);
const Framework* find_framework(std::string_view reference);  // nullptr for an unknown one
// A plan's: also one of the user's own.
const Framework& framework_named(const FrameworkRef& ref);
const Framework* find_framework(const FrameworkRef& ref);
std::vector<std::string> framework_names();
std::vector<std::string> framework_versions(std::string_view name);  // the newest last; none of an unknown name

// Frameworks other than our own engine whose newest version has this ZeRO stage, beside tensor ranks and a pipeline
// where these are asked for; the most able first.
std::vector<std::string> frameworks_with_zero(int stage, bool tensor, bool pipeline);

// What to say of a reference that find_framework does not know.
struct UnknownFramework {
    std::string allowed;  // the names, or of a known name the versions
    std::string suggestion;
};
UnknownFramework unknown_framework(std::string_view reference);

// Element types that follow from the precision: the optimizer state of 16-bit training is fp32 with a master copy
// of the weights, and gradients are fp32 unless the framework keeps them shorter; otherwise all share the precision.
struct StateTypes {
    DType weight, gradient, optimizer;
    bool master = false;
};
StateTypes state_types(const Training& training, DType half_gradient = DType::fp32);

// Rows of embedding and head: the vocabulary padded as the framework pads it.
std::int64_t padded_vocabulary(const ModelSpec& model, const Framework& framework, std::int64_t tensor_ranks);

}  // namespace foretrain
