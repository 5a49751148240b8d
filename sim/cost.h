// What an instruction costs when nothing disturbs it: integer picoseconds from the device's and the
// cluster's calibration. The one place where constants become time.
//
//   CostModel cost(plan);                                // kernels as the plan's framework has them
//   Time t = cost.kernel(GemmArgs{...});
//   Time u = cost.instruction(program.stages[0].instructions[7], program.stages[0]);
//
// The forms are in hardware/kernel_time.h and hardware/collective_time.h; here the constants are picked
// and the answers rounded. A group costs what its slowest instance costs. The constructor works out
// everything that does not depend on sizes; callers remember repeated answers.
//
// Errors: UserError where the plan needs what the cluster's files do not describe (a kernel in a type
// that was not measured, links between nodes of a machine that has none, figures with which one operation
// takes more than 1000 s).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/kernel_kind.h"
#include "hardware/cluster_spec.h"
#include "hardware/kernel_time.h"
#include "plan/plan.h"
#include "plan/program/program.h"
#include "plan/rank_grid.h"
#include "plan/software_costs.h"
#include "sim/placement.h"

namespace foretrain {

class CostModel {
public:
    explicit CostModel(const Plan& plan);
    // Kernels as the device was measured with.
    CostModel(const ClusterSpec& cluster, const RankGrid& grid);

    Time kernel(const KernelArgs& args) const;
    // A collective over `axis` of `bytes` (nccl-tests size: the whole array; of a ring shift what a rank sends),
    // or a message of `bytes` from `stage` to `peer`.
    Time collective(InstructionKind kind, Axis axis, Bytes bytes) const;
    Time message(Bytes bytes, std::int64_t stage, std::int64_t peer) const;
    Time memory_traffic(KernelKind kind, Bytes bytes) const;

    // alloc, free, record, wait and step_end cost nothing, launch and stall what they say; fill, copy and load_batch
    // move their count of elements at the speed of a cast. A message costs the same on both sides.
    Time instruction(const Instruction& instruction, const std::vector<KernelArgs>& kernels, std::int64_t stage) const;
    Time instruction(const Instruction& i, const StageProgram& stage) const {
        return instruction(i, stage.kernels, stage.stage);
    }

private:
    struct MemoryBound {
        double launch_us = 0;
        double efficiency = 1;
    };

    void apply(const SoftwareCosts& costs, const DeviceSpec& device);
    double unfused_attention(const AttentionShape& shape, DType type) const;
    void prepare_kernels(const DeviceSpec& device);
    void place_groups(const ClusterSpec& cluster);
    const Processor& processor(DType type) const;
    Time took(double us) const;
    double gemm(const GemmArgs& args) const;
    double exchange(Bytes bytes, const GroupPlacement& group) const;
    double attention(const AttentionShape& shape, DType type) const;
    double ring_step(const RingAttentionArgs& args) const;

    std::string device_;
    RankGrid grid_;
    std::int64_t devices_per_node_ = 1;
    std::array<std::optional<Processor>, dtype_count> processors_;
    std::array<std::optional<PreparedGemm>, dtype_count> gemms_;
    AttentionPass attention_forward_, attention_backward_;
    std::array<double, dtype_count> gemm_takes_;                         // times what was measured
    double attention_forward_takes_ = 1, attention_backward_takes_ = 1;  // times what was measured
    double slower_ = 1;                                                  // everything: all ranks wait for the slowest
    std::int64_t message_parts_ = 1;  // in which tensor ranks send what all of them hold
    UnfusedAttention unfused_;
    std::array<MemoryBound, kernel_kind_names.size()> memory_bound_;
    MemoryBound routed_activation_;   // of experts
    std::int64_t once_per_node_ = 0;  // experts of a token, which goes to each node once; 0: to each expert
    Processor memory_;                // its bandwidth is all that memory-bound kernels need
    DomainConstants domain_;
    NetworkSpec network_;
    std::array<std::vector<GroupPlacement>, axis_count> groups_;
};

}  // namespace foretrain
