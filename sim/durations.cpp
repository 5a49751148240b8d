#include "sim/durations.h"

#include <algorithm>
#include <cmath>

namespace foretrain {

namespace {

bool is_beside(const Instruction& i) { return i.kind == InstructionKind::stall && stall_for(i) == StallFor::beside; }

}  // namespace

Time most_lost(Time computed, std::int16_t share) {
    if (share >= Instruction::whole) return Time{INT64_MAX};
    return Time{computed.value / (Instruction::whole - share) * share};
}

void InstructionDurations::begin_stage(const std::vector<KernelArgs>& kernels, std::int64_t stage, double slowdown) {
    args_ = &kernels;
    stage_ = stage;
    slowdown_ = slowdown;
    kernels_.assign(kernels.size(), Time{-1});
    remembered_.fill(Remembered{});
    computed_.fill(Time{});
}

Time& InstructionDurations::computed_beside(InstructionKind collective) {
    return computed_[collective == InstructionKind::all_gather ? 0 : 1];
}

void InstructionDurations::took(const Instruction& i, Time time) {
    if (i.stream != Stream::compute) return;
    if (i.kind == InstructionKind::wait)
        computed_.fill(Time{});
    else if (is_beside(i))
        computed_beside(i.like) = Time{};
    else
        for (Time& t : computed_) t += time;
}

Time InstructionDurations::of(const Instruction& i, const CostModel& cost) {
    Time time = undisturbed(i, cost);
    if (is_beside(i)) time = std::min(time, most_lost(computed_beside(i.like), i.share));
    took(i, time);
    return time;
}

Time InstructionDurations::undisturbed(const Instruction& i, const CostModel& cost) {
    switch (i.kind) {
        case InstructionKind::alloc:
        case InstructionKind::free:
        case InstructionKind::record:
        case InstructionKind::wait:
        case InstructionKind::step_end: return Time{0};
        case InstructionKind::kernel: {
            Time& known = kernels_.at(static_cast<std::size_t>(i.kernel));
            if (known < Time{0}) {
                known = cost.instruction(i, *args_, stage_);
                if (slowdown_ != 1) known = Time{std::llround(static_cast<double>(known.value) * slowdown_)};
            }
            return known;
        }
        case InstructionKind::all_reduce:
        case InstructionKind::reduce_scatter:
        case InstructionKind::all_gather:
        case InstructionKind::all_to_all:
        case InstructionKind::ring_shift:
        case InstructionKind::stall:
        case InstructionKind::send:
        case InstructionKind::recv: break;
        default: return cost.instruction(i, *args_, stage_);
    }
    const auto hash = static_cast<std::uint64_t>(i.count) * 0x9E3779B97F4A7C15U +
                      static_cast<std::uint64_t>(i.kind) * 29 + static_cast<std::uint64_t>(i.axis) * 7 +
                      static_cast<std::uint64_t>(i.share) * 3;
    Remembered& r = remembered_[(hash ^ (hash >> 32)) % remembered_.size()];
    if (r.count != i.count || r.kind != i.kind || r.axis != i.axis || r.type != i.type || r.peer != i.peer ||
        r.like != i.like || r.share != i.share)
        r = {i.count, i.peer, i.kind, i.like, i.share, i.axis, i.type, cost.instruction(i, *args_, stage_)};
    return r.time;
}

}  // namespace foretrain
