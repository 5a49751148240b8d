// What kinds of instructions are, and how they use their operands: the one table that text, verify,
// engine, simulator and reports read.
//
//   access_of(instruction, stage, 0) == Access::read     // of a send
//   access_of(instruction, stage, 0) == std::nullopt     // of an alloc: it touches no memory
#pragma once

#include <optional>

#include "hardware/collective_time.h"
#include "plan/program/program.h"

namespace foretrain {

bool names_body(InstructionKind kind);                             // of the chunk level
bool is_collective(InstructionKind kind);                          // of all members of a group at once
Collective collective_of(InstructionKind kind);                    // InternalError where it is none, as a ring shift
bool is_message(InstructionKind kind);                             // send, recv
bool is_communication(InstructionKind kind);                       // a collective or a message
bool is_added(InstructionKind kind);                               // launch, stall: what no engine executes
bool leaves_span(InstructionKind kind);                            // in a trace: all but alloc, free, record, wait
bool is_known(InstructionKind kind);                               // in range
bool has_kernel(const Instruction& i, const StageProgram& stage);  // a kernel whose index is in range

// How many operands the instruction takes; nothing where any number will do (chunk level).
// Precondition of both: a kernel's index is in range.
std::optional<int> operands_taken(const Instruction& instruction, const StageProgram& stage);
std::optional<Access> access_of(const Instruction& instruction, const StageProgram& stage, int index);

}  // namespace foretrain
