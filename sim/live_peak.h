// The moment at which most of a stage's memory lives, in the order in which the host issues: how much
// lives in it, and in which pass, section and microbatch it comes.
//
//   unroll_stage(skeleton, stage, code);
//   LivePeak peak = live_peak(skeleton, stage, code);
//   text(moment_of(skeleton, stage, code))    // "backward pass of microbatch 0, in layer7.mlp; 4 in flight"
#pragma once

#include <cstddef>
#include <vector>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"

namespace foretrain {

struct LivePeak {
    Bytes bytes;                  // on top of what stands all through the step
    std::size_t instruction = 0;  // of `code`, the first at which it is reached
};

// `code`: the stage's chunk-level instructions (unroll_stage).
LivePeak live_peak(const Skeleton& skeleton, std::size_t stage, const std::vector<Instruction>& code);
PeakMoment moment_of(const Skeleton& skeleton, std::size_t stage, const std::vector<Instruction>& code);

}  // namespace foretrain
