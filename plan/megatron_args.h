// Megatron-LM's own arguments as a plan: what its users type, and its checks record.
//
//   --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu --bf16 --tensor-model-parallel-size 4 ...
//
//   MegatronRun run = plan_from_megatron(arguments_from_text("--num-layers 12 ..."), {.gpu = "h100-sxm-80gb"});
//   if (run.plan) ... else say(run.refused, run.why);
//
// Each argument is understood, on the list of those that change neither memory nor work (megatron_ignored.cpp), or
// refused by its name. Defaults are Megatron-LM's (megatron/training/arguments.py): what is not given is not asked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "plan/plan.h"

namespace foretrain {

// By name without dashes; a flag's value is "true".
using MegatronArguments = std::map<std::string, std::string>;
MegatronArguments arguments_from_json(const Json& object);
MegatronArguments arguments_from_text(std::string_view text);  // of a command line, or a file of one

// What the arguments do not say.
struct MegatronSetting {
    std::string origin;                       // of the arguments, for errors: "runs.jsonl:12"
    std::string gpu;                          // a device preset, in the system that it stands in as a rule
    std::optional<ClusterSpec> cluster = {};  // or a cluster, of so many devices; then `world` says nothing
    std::int64_t world = 0;                   // 0: as few as the arguments need
    std::string family;                       // "gpt", "bert", ...: the program that was run; empty: gpt
    std::string name;                         // of the model
};

struct MegatronRun {
    std::optional<Plan> plan;
    std::string refused, why;  // where there is none
    std::vector<std::string> assumed;
};
MegatronRun plan_from_megatron(const MegatronArguments& arguments, const MegatronSetting& setting);

// Whether an argument changes neither memory nor the work of a step.
bool megatron_ignores(std::string_view name);
// What else than a dense or routed GPT the arguments train, "Mamba hybrid"; empty for one.
std::string megatron_beyond(const MegatronArguments& arguments, const MegatronSetting& setting);

// The same as a run record of Megatron-LM's checks has it: {"test", "env", "args", "world_size", ...}. An image's name
// tells the GPU, and which attention its Transformer Engine chose.
struct MegatronImage {
    std::string gpu;                         // empty: the name tells none
    std::optional<AttentionKind> attention;  // that it chose where it was left to it
    std::optional<bool> compiled;            // whether it compiles the loss
};
MegatronImage image_of(std::string_view env, bool deterministic);

}  // namespace foretrain
