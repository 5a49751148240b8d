#include "plan/program/program.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

std::string_view name_of(Stream stream) {
    static constexpr std::array<std::string_view, stream_count> names{
        "compute", "host", "gather", "reduce", "context", "send_next", "recv_prev", "send_prev", "recv_next"};
    return names[static_cast<std::size_t>(stream)];
}

std::string_view name_of(InstructionKind kind) {
    static constexpr std::string_view names[] = {
        "forward_chunk", "backward_chunk", "optimizer_step", "kernel",         "fill",       "copy",       "load_batch",
        "alloc",         "free",           "all_reduce",     "reduce_scatter", "all_gather", "all_to_all", "ring_shift",
        "send",          "recv",           "launch",         "stall",          "record",     "wait",       "step_end"};
    return names[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Region region) {
    static constexpr std::array<std::string_view, region_count> names{
        "weights", "gradients", "optimizer", "activations", "transients", "gathered", "staging", "communication"};
    return names[static_cast<std::size_t>(region)];
}

void Instruction::add_wait(Wait w) {
    for (int i = 0; i < waits; ++i)
        if (wait[static_cast<std::size_t>(i)] == w) return;
    FORETRAIN_CHECK(waits < max_waits, "too many waits on one instruction");
    wait[waits++] = w;
}

void Instruction::add_operand(std::int32_t buffer) {
    FORETRAIN_CHECK(operands < max_operands, "too many operands on one instruction");
    operand[operands++] = buffer;
}

StallFor stall_for(const Instruction& i) {
    if (i.axis == Axis::pipeline) return StallFor::message;
    return i.like == InstructionKind::kernel ? StallFor::pause : StallFor::beside;
}

Instruction collective(InstructionKind kind, Stream stream, Axis axis, DType type, std::int64_t count,
                       std::initializer_list<std::int32_t> operands) {
    Instruction i;
    i.kind = kind;
    i.stream = stream;
    i.axis = axis;
    i.type = type;
    i.count = count;
    for (std::int32_t o : operands) i.add_operand(o);
    return i;
}

Bytes StageProgram::arena() const {
    Bytes total;
    for (Bytes b : region_bytes) total += b;
    return total;
}

Bytes StageProgram::standing() const {
    Bytes total;
    for (std::size_t r = 0; r < region_count; ++r)
        if (!has_life(static_cast<Region>(r))) total += region_bytes[r];
    return total;
}

std::pair<std::int64_t, std::int64_t> block_range(std::int64_t count, std::int64_t size, std::int64_t index) {
    const std::int64_t each = count / size;
    const std::int64_t extra = count % size;  // the first `extra` members take one element more
    const std::int64_t first = index * each + std::min(index, extra);
    return {first, first + each + (index < extra ? 1 : 0)};
}

Bytes wire_bytes(const Instruction& instruction, std::int64_t size, std::int64_t index) {
    const std::int64_t count = instruction.count;
    std::int64_t elements = 0;
    switch (instruction.kind) {
        case InstructionKind::all_reduce: {
            // Its part of every other member's run, then its own run to every other member.
            const auto [first, last] = block_range(count, size, index);
            const std::int64_t own = last - first;
            elements = (count - own) + own * (size - 1);
            break;
        }
        case InstructionKind::reduce_scatter:
        case InstructionKind::all_gather:
        case InstructionKind::all_to_all: elements = count * (size - 1); break;
        case InstructionKind::ring_shift: elements = size > 1 ? count : 0; break;
        case InstructionKind::send: elements = count; break;
        default: break;
    }
    return Bytes{elements * size_of(instruction.type)};
}

}  // namespace foretrain
