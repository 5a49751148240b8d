// How ranks talk: a communicator is one rank's end of one group; its verbs are enqueued on a stream
// and meet the same verbs of the group's other members, in the order enqueued.
//
// A World is all ranks of a run; it makes the groups. Groups with the same members but different
// channels are independent of each other, so that streams are not forced into one order. If a rank
// fails, it aborts the world: every member that waits, now or later, is released with an error that
// names the rank and why.
//
//   std::unique_ptr<Communicator> data = world.join({0, 2}, /*rank=*/2, /*channel=*/0);
//   data->all_reduce(stream, gradients, count, DType::fp32, Reduction::sum);
//   data->wire(InstructionKind::all_reduce)      // bytes this rank has sent so far
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exec/device.h"
#include "plan/program/program.h"

namespace foretrain {

class Communicator {
public:
    virtual ~Communicator() = default;

    // Counts are those of Instruction::count: of the smaller side. `member` is an index in the group.
    virtual void all_reduce(DeviceStream& stream, void* data, std::int64_t count, DType type, Reduction op) = 0;
    virtual void reduce_scatter(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type,
                                Reduction op) = 0;
    virtual void all_gather(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) = 0;
    // Part i of `from` goes to member i, whose parts come to `to` in the members' order.
    virtual void all_to_all(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) = 0;
    // `from` goes to the next member, the last one's to the first; what the one before sends comes to `to`.
    virtual void ring_shift(DeviceStream& stream, const void* from, void* to, std::int64_t count, DType type) = 0;
    virtual void send(DeviceStream& stream, const void* from, std::int64_t count, DType type, std::int64_t member) = 0;
    virtual void recv(DeviceStream& stream, void* to, std::int64_t count, DType type, std::int64_t member) = 0;

    // Bytes that left this rank, counted where they were copied; see wire_bytes() in program.h.
    // Complete once every member has synchronized.
    virtual Bytes wire(InstructionKind kind) const = 0;
};

class World {
public:
    virtual ~World() = default;

    // This rank's end of the group `members` (ascending; the order of sums) on `channel`. Every
    // member must join.
    virtual std::unique_ptr<Communicator> join(const std::vector<std::int64_t>& members, std::int64_t rank,
                                               std::int64_t channel) = 0;
    // Holds the host until every rank is here.
    virtual void barrier(std::int64_t rank) = 0;
    // The first call is the cause that everyone reports; later ones are its consequences.
    virtual void abort(std::int64_t rank, const std::string& why) = 0;
};

}  // namespace foretrain
