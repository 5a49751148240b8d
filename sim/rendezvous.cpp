#include "sim/rendezvous.h"

#include <fmt/format.h>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/partners.h"

namespace foretrain {

void Rendezvous::begin(std::size_t stages, const RankGrid& grid) {
    stages_ = stages;
    grid_ = grid;
    channels_.assign(stages * stages * 2, Queue{});
    groups_.fill(Queue{});
    meetings_.clear();
    members_.clear();
}

void Rendezvous::begin_stage(std::int32_t stage) {
    stage_ = stage;
    for (std::size_t g = 0; g < groups_.size(); ++g) cursor_[g] = groups_[g].head;
}

Rendezvous::Queue& Rendezvous::channel(const Instruction& i) {
    const auto peer = static_cast<std::size_t>(i.peer), here = static_cast<std::size_t>(stage_);
    FORETRAIN_CHECK(i.peer >= 0 && peer < stages_ && peer != here, fmt::format("stage {} sends to {}", stage_, i.peer));
    const Channel channel = channel_of(i, stage_);
    return channels_[(static_cast<std::size_t>(channel.from) * stages_ + static_cast<std::size_t>(channel.to)) * 2 +
                     (channel.gradients ? 1 : 0)];
}

std::int32_t Rendezvous::append(Queue& queue, const Instruction& i, std::int64_t size) {
    const auto meeting = static_cast<std::int32_t>(meetings_.size());
    meetings_.push_back({static_cast<std::int32_t>(size), -1, -1, i.kind, i.count * size_of(i.type)});
    if (queue.head < 0)
        queue.head = meeting;
    else
        meetings_[static_cast<std::size_t>(queue.tail)].next = meeting;
    queue.tail = meeting;
    return meeting;
}

void Rendezvous::enter(std::int32_t meeting, const Instruction& i, std::int32_t index) {
    Meeting& m = meetings_[static_cast<std::size_t>(meeting)];
    FORETRAIN_CHECK(m.bytes == i.count * size_of(i.type),
                    fmt::format("stage {}, instruction {}: {} of {} bytes meets one of {}", stage_, index,
                                name_of(i.kind), i.count * size_of(i.type), m.bytes));
    members_.push_back({stage_, index, i.stream, m.first});
    m.first = static_cast<std::int32_t>(members_.size() - 1);
}

std::int32_t Rendezvous::join(const Instruction& i, std::int32_t index) {
    std::int32_t meeting = -1;
    if (is_collective(i.kind)) {
        const std::size_t group = i.axis == Axis::embedding ? 0 : 1;
        meeting = cursor_[group] >= 0 ? cursor_[group] : append(groups_[group], i, grid_.size(i.axis));
        cursor_[group] = meetings_[static_cast<std::size_t>(meeting)].next;
    } else {
        Queue& queue = channel(i);
        const bool other_side = queue.head >= 0 && meetings_[static_cast<std::size_t>(queue.head)].kind != i.kind;
        if (other_side) {
            meeting = queue.head;
            queue.head = meetings_[static_cast<std::size_t>(meeting)].next;
        } else {
            meeting = append(queue, i, 2);
        }
    }
    enter(meeting, i, index);
    return meeting;
}

}  // namespace foretrain
