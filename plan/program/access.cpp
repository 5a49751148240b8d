#include "plan/program/access.h"

#include "base/error.h"

namespace foretrain {

using Kind = InstructionKind;

bool names_body(Kind kind) {
    return kind == Kind::forward_chunk || kind == Kind::backward_chunk || kind == Kind::optimizer_step;
}

bool is_collective(Kind kind) {
    return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::all_gather ||
           kind == Kind::all_to_all || kind == Kind::ring_shift;
}

Collective collective_of(Kind kind) {
    switch (kind) {
        case Kind::all_reduce: return Collective::all_reduce;
        case Kind::all_gather: return Collective::all_gather;
        case Kind::reduce_scatter: return Collective::reduce_scatter;
        case Kind::all_to_all: return Collective::all_to_all;
        default: throw InternalError("taken for a collective, but is none: " + std::string(name_of(kind)));
    }
}

bool is_message(Kind kind) { return kind == Kind::send || kind == Kind::recv; }

bool is_communication(InstructionKind kind) { return is_collective(kind) || is_message(kind); }

bool is_added(InstructionKind kind) { return kind == Kind::launch || kind == Kind::stall; }

bool leaves_span(InstructionKind kind) {
    return kind != InstructionKind::alloc && kind != InstructionKind::free && kind != InstructionKind::record &&
           kind != InstructionKind::wait;
}

bool is_known(Kind kind) { return kind <= Kind::step_end; }

bool has_kernel(const Instruction& i, const StageProgram& stage) {
    return i.kind == Kind::kernel && i.kernel >= 0 && static_cast<std::size_t>(i.kernel) < stage.kernels.size();
}

std::optional<int> operands_taken(const Instruction& instruction, const StageProgram& stage) {
    switch (instruction.kind) {
        case Kind::forward_chunk:
        case Kind::backward_chunk:
        case Kind::optimizer_step: return std::nullopt;
        case Kind::kernel: return operand_count(stage.kernels[static_cast<std::size_t>(instruction.kernel)]);
        case Kind::copy:
        case Kind::load_batch:
        case Kind::reduce_scatter:
        case Kind::all_gather:
        case Kind::all_to_all:
        case Kind::ring_shift: return 2;
        case Kind::fill:
        case Kind::alloc:
        case Kind::free:
        case Kind::all_reduce:
        case Kind::send:
        case Kind::recv: return 1;
        case Kind::launch:
        case Kind::stall:
        case Kind::record:
        case Kind::wait:
        case Kind::step_end: return 0;
    }
    return 0;
}

std::optional<Access> access_of(const Instruction& instruction, const StageProgram& stage, int index) {
    switch (instruction.kind) {
        case Kind::kernel: return operand_access(stage.kernels[static_cast<std::size_t>(instruction.kernel)], index);
        case Kind::fill:
        case Kind::load_batch:
        case Kind::recv: return Access::write;
        case Kind::copy:
        case Kind::reduce_scatter:
        case Kind::all_gather:
        case Kind::all_to_all:
        case Kind::ring_shift: return index == 0 ? Access::read : Access::write;
        case Kind::all_reduce: return Access::update;
        case Kind::send: return Access::read;
        default: return std::nullopt;
    }
}

}  // namespace foretrain
