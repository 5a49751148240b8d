// The completions to come, earliest first: a binary heap whose first element may be replaced in one
// step, because most completions are followed by the start of the next instruction on the stream.
//
// Ties break by stage, then instruction.
//
//   EventQueue queue;
//   queue.push({5, stage, instruction, stream});
//   Event e = queue.top();  queue.pop();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace foretrain {

struct Event {
    std::int64_t time = 0;    // picoseconds
    std::uint64_t place = 0;  // stage, instruction and stream, packed in the order in which ties break

    Event(std::int64_t when, std::int32_t stage, std::int32_t instruction, std::size_t stream)
        : time(when),
          place(static_cast<std::uint64_t>(stage) << 40 | static_cast<std::uint64_t>(instruction) << 8 | stream) {}
    std::int32_t stage() const { return static_cast<std::int32_t>(place >> 40); }
    std::int32_t instruction() const { return static_cast<std::int32_t>(place >> 8 & 0xffffffffU); }
    std::size_t stream() const { return place & 0xff; }

    bool before(const Event& other) const { return time != other.time ? time < other.time : place < other.place; }
};

class EventQueue {
public:
    bool empty() const { return heap_.empty(); }
    void clear() { heap_.clear(); }
    const Event& top() const { return heap_.front(); }

    void push(const Event& event) {
        std::size_t at = heap_.size();
        heap_.push_back(event);
        while (at > 0) {
            const std::size_t parent = (at - 1) / 2;
            if (!event.before(heap_[parent])) break;
            heap_[at] = heap_[parent];
            at = parent;
        }
        heap_[at] = event;
    }

    void replace_top(const Event& event) {
        const std::size_t size = heap_.size();
        std::size_t at = 0;
        for (std::size_t child = 1; child < size; child = 2 * at + 1) {
            if (child + 1 < size && heap_[child + 1].before(heap_[child])) ++child;
            if (!heap_[child].before(event)) break;
            heap_[at] = heap_[child];
            at = child;
        }
        heap_[at] = event;
    }

    void pop() {
        const Event last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) replace_top(last);
    }

private:
    std::vector<Event> heap_;
};

}  // namespace foretrain
