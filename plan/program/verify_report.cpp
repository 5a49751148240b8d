// What verify says: the place, the rule, and the passes around it as a grid of stages and time.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plan/program/access.h"
#include "plan/program/text.h"
#include "plan/program/verify_rules.h"

namespace foretrain::verify_rules {

namespace {

// A pass of a stage: its name, and its first instruction in host order.
struct PassMark {
    std::string name;  // F3, B3; S: of the whole step
    std::int32_t microbatch = -1;
    std::int32_t first = 0;
};

// Chunk passes say what they are. In a lowered program a pass begins with a wait, and a microbatch's
// first one is its forward pass.
std::vector<PassMark> passes_of(const StageProgram& stage) {
    std::vector<PassMark> out;
    std::map<std::int32_t, int> begun;
    bool fresh = false;  // the pass at hand has only records so far
    for (std::size_t id = 0; id < stage.instructions.size(); ++id) {
        const Instruction& i = stage.instructions[id];
        const bool on_compute = i.stream == Stream::compute && i.kind != InstructionKind::alloc &&
                                i.kind != InstructionKind::free && is_known(i.kind);
        if (!on_compute) continue;
        const bool starts = i.kind == InstructionKind::wait || names_body(i.kind);
        if (out.empty() || out.back().microbatch != i.microbatch || (starts && !fresh)) {
            const bool backward = i.kind == InstructionKind::backward_chunk || begun[i.microbatch]++ > 0;
            const std::string name = i.microbatch < 0 ? "S" : fmt::format("{}{}", backward ? 'B' : 'F', i.microbatch);
            out.push_back({name, i.microbatch, static_cast<std::int32_t>(id)});
            fresh = true;
        }
        fresh = fresh && i.kind == InstructionKind::record;
    }
    return out;
}

// The pass that an instruction belongs to: the one under way, or the next if that is its microbatch's.
std::size_t pass_at(const std::vector<PassMark>& passes, std::int32_t instruction, std::int32_t microbatch) {
    std::size_t at = 0;
    while (at + 1 < passes.size() && passes[at + 1].first <= instruction) ++at;
    const bool before_its_own =
        at + 1 < passes.size() && passes[at].microbatch != microbatch && passes[at + 1].microbatch == microbatch;
    return before_its_own ? at + 1 : at;
}

std::string grid(const Program& program, const Failure& failure) {
    constexpr std::size_t most_rows = 9, most_columns = 15;
    const auto stage = static_cast<std::size_t>(std::max(failure.stage, 0));
    const auto passes = passes_of(program.stages[stage]);
    std::size_t marked = 0;
    if (failure.instruction >= 0) {
        const auto id = static_cast<std::size_t>(failure.instruction);
        marked = pass_at(passes, failure.instruction, program.stages[stage].instructions[id].microbatch);
    }
    const std::size_t first_row = stage > most_rows / 2 ? stage - most_rows / 2 : 0;
    const std::size_t first_column = marked > most_columns / 2 ? marked - most_columns / 2 : 0;
    std::string out = "passes in order (F forward, B backward, S of the whole step):\n";
    for (std::size_t s = first_row; s < std::min(program.stages.size(), first_row + most_rows); ++s) {
        const auto row = s == stage ? passes : passes_of(program.stages[s]);
        out += fmt::format("  stage {:<3}{}", s, first_column > 0 ? " .." : "");
        for (std::size_t c = first_column; c < std::min(row.size(), first_column + most_columns); ++c)
            out += s == stage && c == marked ? fmt::format(" [{}]", row[c].name) : fmt::format("  {} ", row[c].name);
        out += row.size() > first_column + most_columns ? " ..\n" : "\n";
    }
    return out;
}

// What to_text prints must be in range.
bool printable(const Instruction& i) {
    if (!is_known(i.kind) || !is_known(i.like) || i.stream > Stream::recv_next || i.axis > Axis::embedding ||
        i.type > DType::int32)
        return false;
    for (int w = 0; w < std::min<int>(i.waits, Instruction::max_waits); ++w)
        if (i.wait[static_cast<std::size_t>(w)].stream > Stream::recv_next) return false;
    return true;
}

}  // namespace

std::string quote(const StageProgram& stage, std::int32_t instruction) {
    const Instruction& i = stage.instructions[static_cast<std::size_t>(instruction)];
    return fmt::format("%{} {}", instruction, printable(i) ? to_text(i, stage) : "(not an instruction)");
}

std::string report(const Program& program, const Failure& failure) {
    std::string out = "program: ";
    const bool known_stage = failure.stage >= 0 && static_cast<std::size_t>(failure.stage) < program.stages.size();
    if (known_stage) out += fmt::format("stage {}: ", failure.stage);
    if (known_stage && failure.instruction >= 0)
        out += quote(program.stages[static_cast<std::size_t>(failure.stage)], failure.instruction) + "\n  ";
    out += fmt::format("{}: {}\n", failure.rule, failure.text);
    if (known_stage && failure.instruction >= 0) out += grid(program, failure);
    return out;
}

}  // namespace foretrain::verify_rules
