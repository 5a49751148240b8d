// What the instructions of a program cost, each distinct one worked out once: a program of a million
// instructions has some dozens.
//
//   InstructionDurations durations;
//   durations.begin_stage(program.stages[0].kernels, 0, slowdown);
//   Time t = durations.of(instruction, cost);
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/cost.h"

namespace foretrain {

class InstructionDurations {
public:
    // `slowdown` is a factor on the stage's kernels, which must outlive the calls of `of`.
    void begin_stage(const std::vector<KernelArgs>& kernels, std::int64_t stage, double slowdown);
    Time of(const Instruction& instruction, const CostModel& cost);

private:
    // Communication by what its cost depends on: direct-mapped, and a collision only costs time.
    struct Remembered {
        std::int64_t count = -1;
        std::int32_t peer = -1;
        InstructionKind kind = InstructionKind::kernel, like = InstructionKind::kernel;
        std::int16_t share = 0;
        Axis axis = Axis::none;
        DType type = DType::fp32;
        Time time;
    };

    const std::vector<KernelArgs>* args_ = nullptr;
    std::int64_t stage_ = 0;
    double slowdown_ = 1;
    std::vector<Time> kernels_;  // negative: not known yet
    std::array<Remembered, 256> remembered_;
};

}  // namespace foretrain
