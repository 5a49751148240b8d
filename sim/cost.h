// What an instruction costs when nothing disturbs it: integer picoseconds from the device's and the
// cluster's calibration. The one place where constants become time.
//
//   CostModel cost(plan.cluster, plan.grid());
//   Time t = cost.kernel(GemmArgs{...});
//   Time u = cost.instruction(program.stages[0].instructions[7], program.stages[0].kernels, 0);
//
// Forms and constants: hardware/calibration.h. A group costs what its slowest instance costs.
#pragma once

#include <vector>

#include "hardware/cluster_spec.h"
#include "plan/program/program.h"
#include "plan/rank_grid.h"

namespace foretrain {

class CostModel {
public:
    CostModel(const ClusterSpec& cluster, const RankGrid& grid);

    Time kernel(const KernelArgs& args) const;
    // A collective over `axis` of `bytes` (nccl-tests size: the whole array), or a message of `bytes`
    // from `stage` to `peer`.
    Time collective(InstructionKind kind, Axis axis, Bytes bytes) const;
    Time message(Bytes bytes, std::int64_t stage, std::int64_t peer) const;
    Time memory_traffic(KernelKind kind, Bytes bytes) const;

    // alloc, free, record, wait and step_end cost nothing; fill, copy and load_batch are traffic.
    Time instruction(const Instruction& instruction, const std::vector<KernelArgs>& kernels,
                     std::int64_t stage) const;

private:
    ClusterSpec cluster_;
    RankGrid grid_;
};

}  // namespace foretrain
