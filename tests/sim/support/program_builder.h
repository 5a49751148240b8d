// Lowered programs by hand, for a cluster on which a byte takes a nanosecond (round_cluster): durations
// are given in microseconds and become as many thousand bytes.
//
//   ProgramBuilder b(2);                                  // stages
//   std::int32_t k = b.kernel(0, 3);                      // 3 us on stage 0
//   b.send(0, 1, 2, {k});                                 // 2 us, after k
//   b.recv(1, 0, 2);
//   Trace t = simulate(b.program, b.cost());
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/program.h"
#include "sim/cost.h"

namespace foretrain::support {

class ProgramBuilder {
public:
    // `data` ranks in each stage, all of them in one node.
    explicit ProgramBuilder(std::int64_t stages, std::int64_t data = 1);

    // Each adds to a stage and returns the instruction's id; `after` are ids on the same stage.
    using Ids = std::vector<std::int32_t>;
    std::int32_t kernel(std::int64_t stage, std::int64_t us, const Ids& after = {}, Stream stream = Stream::compute);
    std::int32_t send(std::int64_t stage, std::int64_t peer, std::int64_t us, const Ids& after = {},
                      bool backwards = false);
    std::int32_t recv(std::int64_t stage, std::int64_t peer, std::int64_t us, const Ids& after = {},
                      bool backwards = false);
    // In the pair of first and last stage, and in the stage's data group (volume counted per rank).
    std::int32_t all_reduce_embedding(std::int64_t stage, std::int64_t us, const Ids& after = {});
    std::int32_t all_gather_data(std::int64_t stage, std::int64_t shard_elements, const Ids& after = {});
    std::int32_t plain(std::int64_t stage, InstructionKind kind, const Ids& after = {},
                       Stream stream = Stream::compute);
    std::int32_t lifetime(std::int64_t stage, InstructionKind kind, std::int32_t buffer);
    std::int32_t buffer(std::int64_t stage, std::int64_t bytes);

    CostModel cost() const;

    Program program;

private:
    std::int32_t add(std::int64_t stage, Instruction instruction, const Ids& after);
};

// 1F1B over `stages` with `kernels` of a microsecond in each forward pass and twice as many in each
// backward pass; messages take no time.
Program one_forward_one_backward(std::int64_t stages, std::int64_t microbatches, std::int64_t kernels);

}  // namespace foretrain::support
