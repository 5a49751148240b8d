// Instructions of different stages that start together: a send with its recv, and the collectives
// whose groups span stages (the embedding pair, the pipeline).
//
// The k-th send of a channel meets its k-th recv (plan/program/partners.h); the k-th collective of an
// axis on one stage meets the k-th on the others. The same rule as there, but without tables.
//
//   Rendezvous meetings;
//   meetings.begin(program.stages.size(), program.grid);
//   meetings.begin_stage(0);
//   std::int32_t m = meetings.join(0, instruction, index);     // for every stage in order
//   if (meetings.arrive(m)) ...                                // the last member is there
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/program/access.h"
#include "plan/program/program.h"

namespace foretrain {

class Rendezvous {
public:
    struct Member {
        std::int32_t stage = -1;
        std::int32_t instruction = -1;
        Stream stream = Stream::compute;
        std::int32_t next = -1;  // member of the same meeting
    };

    // Does this instruction meet others of its kind on other stages?
    static bool meets(const Instruction& i) {
        return i.kind == InstructionKind::send || i.kind == InstructionKind::recv ||
               (is_collective(i.kind) && (i.axis == Axis::embedding || i.axis == Axis::pipeline));
    }

    void begin(std::size_t stages, const RankGrid& grid);
    void begin_stage(std::int32_t stage);
    // Stages in order, the instructions of each in order. Returns the meeting's index.
    std::int32_t join(const Instruction& instruction, std::int32_t index);

    bool arrive(std::int32_t meeting) { return --meetings_[static_cast<std::size_t>(meeting)].missing == 0; }
    // Calls visit(member) for all of a meeting.
    template <class Visit>
    void for_each_member(std::int32_t meeting, Visit visit) const {
        for (std::int32_t m = meetings_[static_cast<std::size_t>(meeting)].first; m >= 0;) {
            const Member& member = members_[static_cast<std::size_t>(m)];
            visit(member);
            m = member.next;
        }
    }

private:
    struct Meeting {
        std::int32_t missing = 0;
        std::int32_t first = -1;                       // member
        std::int32_t next = -1;                        // meeting in the same queue
        InstructionKind kind = InstructionKind::send;  // of who came first
        std::int64_t bytes = 0;
    };
    // Meetings that one side of a channel has joined and the other has not.
    struct Queue {
        std::int32_t head = -1, tail = -1;
    };

    Queue& channel(const Instruction& instruction);
    std::int32_t append(Queue& queue, const Instruction& instruction, std::int64_t size);
    void enter(std::int32_t meeting, const Instruction& instruction, std::int32_t index);

    std::size_t stages_ = 0;
    std::int32_t stage_ = 0;
    RankGrid grid_;
    std::vector<Queue> channels_;           // (from, to, direction)
    std::array<Queue, 2> groups_;           // embedding, pipeline
    std::array<std::int32_t, 2> cursor_{};  // the stage's next meeting in each
    std::vector<Meeting> meetings_;
    std::vector<Member> members_;
};

}  // namespace foretrain
