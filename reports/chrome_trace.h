// A trace in the form that chrome://tracing and ui.perfetto.dev open: a process per rank, a thread
// per stream, a slice per instruction.
//
//   std::ofstream("step.json") << chrome_trace(program, trace);
//
// Steps follow each other on one time line: each begins where the slowest rank's previous one
// ended, because a rank's spans count from its own step's start. A slice is named by what it does
// ("gemm", "data.all_reduce") and carries instruction, section, microbatch and shape.
#pragma once

#include <string>

#include "plan/program/program.h"
#include "plan/program/trace.h"

namespace foretrain {

std::string chrome_trace(const Program& program, const Trace& trace);

}  // namespace foretrain
