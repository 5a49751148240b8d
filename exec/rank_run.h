// One rank's side of a run: its device, its arena, its ends of the groups, and the step that it
// issues again and again. Knows no threads and no launcher: the same serves a thread, a process
// under mpirun, and one process per accelerator.
//
// The stage's instructions are issued in order; each goes to its stream, held by the events of the
// instructions that it waits for. Only what another stream waits for is recorded. Alloc and free are
// bookkeeping, because the memory plan has given every buffer its place.
//
//   RankRun run(program, rank, seed, device, world);   // allocates the arena, sets initial weights
//   world.barrier(rank);
//   RankStep step = run.step(0);                       // returns when all streams have drained
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/communicator.h"
#include "exec/data.h"
#include "exec/device.h"
#include "exec/weights.h"
#include "plan/program/program.h"
#include "plan/program/trace.h"

namespace foretrain {

// "instruction 17 (all_reduce data on reduce, layer3.mlp, microbatch 2)".
std::string describe(const StageProgram& stage, std::int32_t instruction);

class RankRun {
public:
    // `program`, `device` and `world` outlive the run.
    RankRun(const Program& program, std::int64_t rank, std::uint64_t seed, Device& device, World& world);
    RankRun(const RankRun&) = delete;  // the streams hold addresses of its members
    RankRun& operator=(const RankRun&) = delete;

    RankStep step(std::int64_t number);
    // Of all steps so far. Complete once the other ranks have finished the step too.
    WireCount wire() const;
    RankTrace trace() const;  // without steps and wire

    void add_state(StateCollector& state);

private:
    struct Joined {
        Axis axis;
        std::int64_t channel;
        std::unique_ptr<Communicator> end;
    };

    void allocate();
    void make_streams();
    void make_events();
    void join_groups();
    void prepare_batches();
    void read_batch(std::int64_t microbatch, bool targets, std::int32_t* out) const;
    Communicator& joined(Axis axis, std::int64_t channel);

    void issue(std::int32_t index);
    void issue_work(std::int32_t index, DeviceStream& stream);
    void issue_communication(std::int32_t index, DeviceStream& stream);
    void keep_books(const Instruction& instruction);
    Span* span_of(std::int32_t index);

    const Buffer& buffer(std::int32_t index) const { return stage_.buffers[static_cast<std::size_t>(index)]; }
    void* operand(std::int32_t index, std::size_t which) const {
        return operands_[static_cast<std::size_t>(index)][which];
    }
    double mean_loss();

    const Program& program_;
    const StageProgram& stage_;
    std::int64_t rank_;
    Device& device_;
    World& world_;
    Shard shard_;
    std::int64_t data_rank_, context_rank_;
    SyntheticData data_;
    std::int64_t step_ = 0;

    std::array<std::byte*, region_count> regions_{};
    std::array<Bytes, region_count> allocated_{};                         // what the device handed out for each
    std::vector<std::byte*> address_;                                     // by buffer
    std::vector<std::array<void*, Instruction::max_operands>> operands_;  // by instruction
    std::array<DeviceStream*, stream_count> streams_{};                   // nullptr: not used
    std::vector<DeviceEvent*> events_;                                    // by instruction; nullptr: none waits
    std::vector<Joined> groups_;
    std::vector<Communicator*> communicator_;       // by instruction
    std::vector<std::array<HostWork, 2>> batches_;  // by instruction: tokens, targets
    std::vector<std::int32_t> span_index_;          // by instruction; -1: not timed
    std::vector<Span> spans_;                       // of this step

    std::vector<bool> live_;  // by buffer
    Bytes live_bytes_, live_peak_;
};

}  // namespace foretrain
