// A trace as a table: the duration of an instruction on a rank in a step, waiting for others taken
// out of collectives and messages (reports/validate.h says how).
//
//   const Meetings meetings(program);
//   const SpanTable spans(program, meetings, trace, /*warm_up=*/2);
//   std::optional<Time> t = spans.transfer(rank, instruction);   // none: it left no span
//   std::optional<Time> u = spans.span(rank, instruction);       // with the waiting
//   Time step = spans.step(rank);
//
// All are medians over the steps after the warm-up.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/program/program.h"
#include "plan/program/trace.h"

namespace foretrain {

// Which instructions meet: members of a group run the same instruction, but those of two stages
// (messages, tied embeddings) have other indices on the other side, matched in program order.
class Meetings {
public:
    explicit Meetings(const Program& program);

    struct Participant {
        std::int64_t rank = 0;
        std::int32_t instruction = 0;
    };
    // All that take part in `instruction` of `rank`, itself included; empty if it meets nobody.
    std::vector<Participant> participants(std::int64_t rank, std::int32_t instruction) const;

private:
    using Place = std::pair<std::int64_t, std::int32_t>;  // stage, instruction
    const Program& program_;
    std::map<Place, std::vector<Place>> across_stages_;
};

class SpanTable {
public:
    // Keeps references to `program` and `meetings`. A simulated trace holds one rank of each stage,
    // which stands for all of them.
    SpanTable(const Program& program, const Meetings& meetings, const Trace& trace, std::size_t warm_up);

    std::optional<Time> span(std::int64_t rank, std::int32_t instruction) const;
    std::optional<Time> transfer(std::int64_t rank, std::int32_t instruction) const;
    Time step(std::int64_t rank) const;

private:
    struct Steps {
        std::vector<Time> durations;           // by step
        std::vector<std::vector<Time>> spans;  // (step, instruction)
    };
    // Of the trace's rank that shows what `rank` does: itself, or the one rank of its stage.
    const Steps* steps_of(std::int64_t rank) const;
    std::optional<Time> at(std::int64_t rank, std::int32_t instruction, std::size_t step) const;
    std::optional<Time> shortest(const std::vector<Meetings::Participant>& participants, std::size_t step) const;

    const Program& program_;
    const Meetings& meetings_;
    std::map<std::int64_t, Steps> ranks_;
    std::map<std::int64_t, std::int64_t> stands_for_stage_;  // stage -> a rank of it
    std::size_t steps_ = 0;
};

// The middle of the values, the lower of two. Precondition: not empty.
Time median(std::vector<Time> values);

}  // namespace foretrain
