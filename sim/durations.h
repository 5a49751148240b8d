// What the instructions of a program cost, each distinct one worked out once: a program of a million
// instructions has some dozens.
//
// What computing loses to a collective that runs beside it (a stall with a share k of that) is bounded by how
// much is computed meanwhile: at a pace of 1 - k, what takes C alone takes C k / (1 - k) longer. So instructions
// are asked for in the order of the code.
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

// What is lost at most while something is computed that takes so long alone, at `share` per mille.
Time most_lost(Time computed, std::int16_t share);

class InstructionDurations {
public:
    // `slowdown` is a factor on the stage's kernels, which must outlive the calls of `of`.
    void begin_stage(const std::vector<KernelArgs>& kernels, std::int64_t stage, double slowdown);
    Time of(const Instruction& instruction, const CostModel& cost);
    // The next instruction takes `time`, as the caller knows.
    void took(const Instruction& instruction, Time time);

private:
    Time undisturbed(const Instruction& instruction, const CostModel& cost);
    Time& computed_beside(InstructionKind collective);

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
    // Since the last stall beside a gather of parameters, or a reduction of gradients, or the pass began.
    std::array<Time, 2> computed_{};
    std::array<Remembered, 256> remembered_;
};

}  // namespace foretrain
