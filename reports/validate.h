// The join of a simulated and a measured trace of one program: how true the prediction was,
// instruction by instruction.
//
//   Validation v = join(prediction, program, simulated, measured, /*warm_up=*/2);
//   v.step_error()       // predicted / measured - 1
//   std::cout << validation_table(v);                       // reports/validation_report.h
//
// Both traces name instructions by their index in the stage's program, so a measured rank joins the
// simulated rank of its stage without guessing. The first `warm_up` steps are left out; what
// remains is summarised by its median.
//
// What is compared:
// - Kernels, fills, copies and batches: the span of one instruction on one rank.
// - Collectives and messages: the transfer, which is not the span. A rank that arrives early waits
//   inside its span for the others, and a clock of another rank cannot be compared with its own. So
//   in each step the shortest span among the participants stands for all of them: the last to
//   arrive waits for nobody. Where a transport hands messages over without waiting for the receiver
//   (buffered sends), this is the time of the hand-over, the least that can be said honestly.
//   The waiting itself is listed as a kind of its own, "waiting", and the time in which the compute
//   stream runs nothing as "idle": with the kinds of the compute stream they make up the step.
// - The step: the slowest rank's median step against the slowest simulated rank's.
// - Memory: the closed form by role, and its live peak, against what each rank's device handed out and
//   what the rank saw living. Bytes are exact; one off is a defect.
// - Communication: bytes that each rank should put on the wire, summed over its program by
//   wire_bytes, against what its communicator counted.
//
// The same call recurs in every layer, microbatch and rank: among the worst it is listed once, by its
// worst instance.
//
// Errors: UserError where the traces are not of this program, or no step is left after the warm-up.
#pragma once

#include <cstddef>

#include "plan/program/program.h"
#include "plan/program/result.h"
#include "plan/program/trace.h"

namespace foretrain {

Validation join(const Prediction& prediction, const Program& program, const Trace& simulated, const Trace& measured,
                std::size_t warm_up);

// The name under which an instruction is summed: "gemm", "data.all_reduce", "pipeline.send", "fill".
std::string kind_name(const StageProgram& stage, const Instruction& instruction);
// One line in words: kind, section, microbatch and shape.
std::string describe(const StageProgram& stage, const Instruction& instruction);

// Bytes that `rank` puts on the wire in one step of the program, by key of wire_key.
WireCount predicted_wire(const Program& program, std::int64_t rank);

}  // namespace foretrain
