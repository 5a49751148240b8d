// A run that someone measured: a plan, an id, where it comes from, and the time of its step or the peak of
// its memory. One JSON object a line:
//
//   {"id": "my-cluster-01", "source": "logs of May", "framework": "megatron-lm", "framework_release": "25.09",
//    "model": "llama-3-8b", "cluster": {"gpu": "h100-sxm-80gb", "gpus": 16, ...},
//    "training": {"global_batch_size": 128, "sequence_length": 8192, "flash_attention": true},
//    "parallelism": {"tensor": 4, "schedule": "interleaved-1f1b", "virtual_pipeline": 2, ...},
//    "measured": {"step_time_s": 7.42, "peak_allocated_gib": 61.2, "peak_reserved_gib": null}}
//
//   std::vector<RunRecord> records;
//   read_run_records(Json::parse_lines_of("runs.jsonl"), records);      // appended
//
// Beside what a plan says, a record may say which software ran it in words (`framework_detail`), by release or
// date (`framework_release`), and by what it did (`training.flash_attention`, `training.compiled`): the profile
// follows (plan/framework_version.h). What a model leaves out follows GPT-2, or Llama if it is gated, as in a
// plan; learned positions reach as far as the sequence.
//
// In place of model, cluster, training and parallelism a record may have what Megatron-LM was called with
// (plan/megatron_args.h), as its own checks record it; what is measured is the rank that logs, of the last stage:
//
//   {"test": "gpt/gpt3_7b_tp4", "env": "dev_dgx_h100", "world_size": 8, "args": {"num-layers": "32", "bf16": "true",
//    ...}, "mem_max_allocated": 57144365056, "iter_time_median_s": 1.23}
//
// A record that is wrong (no JSON, a key misspelt, a number out of range) is a UserError with file, line and
// field. One that is right, but that no plan can say (fp8, a framework or device without a
// profile, fields that contradict each other), has no plan and says why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/plan.h"

namespace foretrain {

struct RunMeasurement {
    std::optional<double> step_time_s;
    std::optional<double> peak_allocated_gib, peak_reserved_gib;  // as PyTorch's allocator counts, the largest rank
    std::optional<double> held_gib;                               // allocated between steps, of the same rank
    bool of_last_stage = false;                                   // instead of the largest: of the rank that logs
};

struct RunRecord {
    std::string id;
    std::string source;     // as stated
    std::string group;      // runs of one source: the id without its last "-part"
    std::string framework;  // as stated; empty: not
    std::string place;      // "runs.jsonl:12"
    RunMeasurement measured;
    std::optional<Plan> plan;
    bool devices_assumed = false;      // their number is whoever wrote the record's guess
    std::string refused;               // where there is no plan: a key to count by, "precision fp8"
    std::string why;                   // and in a sentence
    std::vector<std::string> assumed;  // what the plan does not say, or says for the record
};

// Appends the records; an id that `out` has already is an error.
void read_run_records(const std::vector<Json>& lines, std::vector<RunRecord>& out);
RunRecord run_record_from_json(const Json& value);

}  // namespace foretrain
