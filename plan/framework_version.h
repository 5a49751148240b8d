// Which profile stands for the software that made a run, from what is commonly known of it: the framework's
// name, a release or a date, a description in words, whether layers were compiled and attention was fused.
// What each version stands for is data (`stands_for` in plan/presets/frameworks/*.json).
//
//   choose_version({.name = "megatron-lm", .release = "25.09"}).reference                 "megatron-lm@2024"
//   choose_version({.name = "megatron-lm", .release = "2021"}).reference                  "megatron-lm@2021"
//   choose_version({.name = "fsdp", .detail = "torchtitan (FSDP2)", .compiled = true})    fsdp@torchtitan-compiled
//
// A release is a year, a month (2022-05), one of NVIDIA's containers by year and month (25.09), or a version
// (0.12.1, core_v0.12.0rc3). Where neither words nor release tell, the newest version is meant, as in a plan,
// and the choice says that it was assumed.
#pragma once

#include <optional>
#include <string>

namespace foretrain {

struct RunSoftware {
    std::string name;     // of the framework: find_framework knows it
    std::string release;  // empty: not known
    std::string detail;   // in words; empty: none
    std::optional<bool> compiled, flash_attention;
};

struct VersionChoice {
    std::string reference;  // "megatron-lm@2021"; empty: no version stands for the run
    std::string why;        // where there is none: what was asked for, and what there is
    std::string reason;     // a key to count by: "framework release", "attention", "compiled"
    bool assumed = false;   // neither words nor release tell
};

VersionChoice choose_version(const RunSoftware& software);

}  // namespace foretrain
