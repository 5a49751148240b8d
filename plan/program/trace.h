// What happened when: the common outcome of `simulate` (virtual clock) and `run` (real clock). Both
// name instructions by the same ids, so prediction and measurement join without guessing.
//
// A Span is one instruction on one rank in one step, in time since that step began on that rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "plan/program/program.h"

namespace foretrain {

struct Span {
    std::int32_t instruction = 0;
    Time start;
    Time end;
    bool operator==(const Span&) const = default;
};

struct RankStep {
    Time duration;            // from the step's start to its step_end
    std::vector<Span> spans;  // ascending by instruction; alloc, free, record and wait left out
    double loss = 0;          // mean over the global batch's tokens; on the last stage only, else 0
    bool operator==(const RankStep&) const = default;
};

// What a communicator counted, or a prediction of it: bytes sent by one rank in one step.
using WireCount = std::map<std::string, Bytes>;  // "data.all_reduce" -> bytes

struct RankTrace {
    std::int64_t rank = 0;
    std::int64_t stage = 0;
    std::vector<RankStep> steps;
    WireCount wire;                          // of one step
    std::map<std::string, Bytes> allocated;  // by region name
    Bytes live_peak;                         // host order
};

struct Trace {
    std::string kind;              // "simulated" or "measured"
    std::string program;           // fingerprint of the program that ran; empty if unknown
    std::vector<RankTrace> ranks;  // simulated: one rank of each stage; measured: all
    Bytes peak_resident;           // of the process, as the operating system counts; 0 if unknown
};

std::string wire_key(Axis axis, InstructionKind kind);

// Format "foretrain.trace/1".
Json trace_to_json(const Trace& trace);
Trace trace_from_json(const Json& value);

}  // namespace foretrain
