#include "reports/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/text.h"
#include "reports/figures.h"
#include "reports/span_table.h"

namespace foretrain {

namespace {

constexpr std::size_t worst_shown = 10;

const StageProgram& stage_of(const Program& program, const RankTrace& rank) {
    return program.stages[static_cast<std::size_t>(rank.stage)];
}

// Bookkeeping of the program costs nothing worth comparing.
bool is_compared(InstructionKind kind) { return leaves_span(kind) && kind != InstructionKind::step_end; }

// Kind and shape: what two instructions must share to be the same call.
std::string call_text(const StageProgram& stage, const Instruction& i) {
    if (i.kind == InstructionKind::kernel) return to_text(stage.kernels[static_cast<std::size_t>(i.kernel)]);
    if (!is_communication(i.kind)) return kind_name(stage, i);
    return fmt::format("{} {} {} ({})", kind_name(stage, i), i.count, name_of(i.type),
                       figure(Bytes{i.count * size_of(i.type)}));
}

std::int64_t magnitude(Bytes a, Bytes b) { return a > b ? (a - b).value : (b - a).value; }

// The largest difference of two tables; a key that one of them lacks counts as nothing there.
Bytes largest_difference(const std::map<std::string, Bytes>& a, const std::map<std::string, Bytes>& b) {
    std::int64_t most = 0;
    const auto against = [&most](const auto& from, const auto& to) {
        for (const auto& [key, bytes] : from) {
            const auto other = to.find(key);
            most = std::max(most, magnitude(bytes, other == to.end() ? Bytes{} : other->second));
        }
    };
    against(a, b);
    against(b, a);
    return Bytes{most};
}

// Memory by role, as the prediction states it in closed form.
std::map<std::string, Bytes> predicted_memory(const StageMemory& m) {
    return {{"weights", m.weights},         {"gradients", m.gradients}, {"optimizer", m.optimizer},
            {"activations", m.activations}, {"workspace", m.workspace}, {"communication", m.communication},
            {"live peak", m.live_peak}};
}

// The same roles of what a rank's device handed out for the regions, and of what it saw living.
std::map<std::string, Bytes> measured_memory(const RankTrace& rank) {
    std::map<std::string, Bytes> roles{{"live peak", rank.live_peak}};
    for (const auto& [region, bytes] : rank.allocated) {
        const bool moves = region == name_of(Region::gathered) || region == name_of(Region::staging);
        const bool works = region == name_of(Region::transients);
        roles[moves ? "communication" : works ? "workspace" : region] += bytes;
    }
    return roles;
}

Time slowest_step(const Trace& trace, const SpanTable& spans) {
    Time slowest;
    for (const RankTrace& rank : trace.ranks) slowest = std::max(slowest, spans.step(rank.rank));
    return slowest;
}

std::vector<double> losses(const Program& program, const Trace& trace) {
    std::vector<double> by_step;
    for (const RankTrace& rank : trace.ranks) {
        if (rank.stage != program.grid.pipeline - 1) continue;
        for (const RankStep& step : rank.steps) by_step.push_back(step.loss);
        break;
    }
    return by_step;
}

std::vector<KindError> sorted_by_time(std::map<std::string, KindError> kinds) {
    std::vector<KindError> list;
    for (auto& [name, kind] : kinds) list.push_back(std::move(kind));
    std::stable_sort(list.begin(), list.end(),
                     [](const KindError& a, const KindError& b) { return a.measured > b.measured; });
    return list;
}

Time off_by(const InstructionError& e) {
    return e.predicted > e.measured ? e.predicted - e.measured : e.measured - e.predicted;
}

// Sums by kind, and the errors of all instructions of all measured ranks, largest first.
struct Joined {
    std::map<std::string, KindError> kinds;
    std::vector<InstructionError> errors;  // names still empty
};

Joined join_spans(const Program& program, const SpanTable& predicted, const Trace& trace, const SpanTable& measured) {
    Joined joined;
    for (const RankTrace& rank : trace.ranks) {
        const StageProgram& stage = stage_of(program, rank);
        for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
            if (!is_compared(stage.instructions[i].kind)) continue;
            const auto id = static_cast<std::int32_t>(i);
            const std::optional<Time> p = predicted.transfer(rank.rank, id);
            const std::optional<Time> m = measured.transfer(rank.rank, id);
            if (!p && !m) continue;
            if (!p || !m)
                throw UserError({.file = "trace",
                                 .field = fmt::format("ranks[{}]", rank.rank),
                                 .found = fmt::format("{} instruction {} ({})", p ? "no" : "an unexpected", i,
                                                      describe(stage, stage.instructions[i])),
                                 .expected = "a trace of this very plan"});
            KindError& kind = joined.kinds[kind_name(stage, stage.instructions[i])];
            kind.kind = kind_name(stage, stage.instructions[i]);
            ++kind.count;
            kind.predicted += *p;
            kind.measured += *m;
            joined.errors.push_back(
                {.rank = rank.rank, .instruction = id, .name = {}, .predicted = *p, .measured = *m});
        }
    }
    std::stable_sort(joined.errors.begin(), joined.errors.end(),
                     [](const auto& a, const auto& b) { return off_by(a) > off_by(b); });
    return joined;
}

// The first of each call.
std::vector<InstructionError> worst_calls(const Program& program, const std::vector<InstructionError>& errors) {
    std::vector<InstructionError> worst;
    std::set<std::string> seen;
    for (const InstructionError& e : errors) {
        if (worst.size() == worst_shown || e.predicted == e.measured) break;
        const std::int64_t stage = program.grid.coordinate(e.rank, Axis::pipeline);
        const StageProgram& of = program.stages[static_cast<std::size_t>(stage)];
        const Instruction& i = of.instructions[static_cast<std::size_t>(e.instruction)];
        if (!seen.insert(call_text(of, i)).second) continue;
        worst.push_back(e);
        worst.back().name = describe(of, i);
    }
    return worst;
}

// What the step of a rank holds besides its instructions, on its compute stream.
struct Unused {
    Time waiting;  // inside collectives, for others
    Time idle;     // between instructions
};

Unused unused_time(const StageProgram& stage, const SpanTable& spans, std::int64_t rank) {
    Unused u;
    Time busy;
    for (std::size_t i = 0; i < stage.instructions.size(); ++i) {
        const Instruction& instruction = stage.instructions[i];
        if (instruction.stream != Stream::compute || !is_compared(instruction.kind)) continue;
        const auto id = static_cast<std::int32_t>(i);
        const Time span = spans.span(rank, id).value_or(Time{});
        busy += span;
        u.waiting += span - spans.transfer(rank, id).value_or(span);
    }
    u.idle = std::max(Time{}, spans.step(rank) - busy);
    return u;
}

void add_unused(std::map<std::string, KindError>& kinds, const Program& program, const SpanTable& predicted,
                const Trace& trace, const SpanTable& measured) {
    KindError waiting{.kind = "waiting"}, idle{.kind = "idle"};
    for (const RankTrace& rank : trace.ranks) {
        const Unused p = unused_time(stage_of(program, rank), predicted, rank.rank);
        const Unused m = unused_time(stage_of(program, rank), measured, rank.rank);
        ++waiting.count, waiting.predicted += p.waiting, waiting.measured += m.waiting;
        ++idle.count, idle.predicted += p.idle, idle.measured += m.idle;
    }
    for (const KindError& kind : {waiting, idle})
        if (kind.predicted.value != 0 || kind.measured.value != 0) kinds[kind.kind] = kind;
}

}  // namespace

std::string kind_name(const StageProgram& stage, const Instruction& i) {
    if (i.kind == InstructionKind::kernel)
        return std::string(name_of(kind_of(stage.kernels[static_cast<std::size_t>(i.kernel)])));
    return is_communication(i.kind) ? wire_key(i.axis, i.kind) : std::string(name_of(i.kind));
}

std::string describe(const StageProgram& stage, const Instruction& i) {
    std::string s = call_text(stage, i);
    if (i.section >= 0) s += fmt::format(", {}", stage.sections[static_cast<std::size_t>(i.section)]);
    if (i.microbatch >= 0) s += fmt::format(", microbatch {}", i.microbatch);
    if (i.chunk > 0) s += fmt::format(", chunk {}", i.chunk);
    return s;
}

WireCount predicted_wire(const Program& program, std::int64_t rank) {
    const auto stage = static_cast<std::size_t>(program.grid.coordinate(rank, Axis::pipeline));
    WireCount wire;
    for (const Instruction& i : program.stages[stage].instructions) {
        if (!is_communication(i.kind) || i.kind == InstructionKind::recv) continue;
        const bool message = i.kind == InstructionKind::send;
        const std::int64_t size = message ? 2 : program.grid.size(i.axis);
        const std::int64_t index = message ? 0 : program.grid.coordinate(rank, i.axis);
        wire[wire_key(i.axis, i.kind)] += wire_bytes(i, size, index);
    }
    return wire;
}

Validation join(const Prediction& prediction, const Program& program, const Trace& simulated, const Trace& measured,
                std::size_t warm_up) {
    // Ids alone do not tell plans apart: with another sequence length they are the same.
    if (!measured.program.empty() && measured.program != fingerprint(program))
        throw UserError({.file = "trace",
                         .field = "program",
                         .found = fmt::format("that of another plan ({})", measured.program.substr(0, 80)),
                         .expected = fmt::format("that of this plan ({})", fingerprint(program))});
    if (static_cast<std::int64_t>(measured.ranks.size()) != program.grid.world())
        throw UserError({.file = "trace",
                         .field = "ranks",
                         .found = fmt::format("{}", measured.ranks.size()),
                         .expected = fmt::format("all {} of the plan", program.grid.world())});
    const Meetings meetings(program);
    const SpanTable predicted_spans(program, meetings, simulated, 0);
    const SpanTable measured_spans(program, meetings, measured, warm_up);
    Joined joined = join_spans(program, predicted_spans, measured, measured_spans);

    add_unused(joined.kinds, program, predicted_spans, measured, measured_spans);

    Validation v;
    v.prediction = prediction;
    v.predicted_step = slowest_step(simulated, predicted_spans);
    v.measured_step = slowest_step(measured, measured_spans);
    v.losses = losses(program, measured);
    v.by_kind = sorted_by_time(std::move(joined.kinds));
    v.worst = worst_calls(program, joined.errors);
    for (const RankTrace& rank : measured.ranks) {
        const StageMemory& memory = prediction.memory.at(static_cast<std::size_t>(rank.stage));
        v.memory_error = std::max(v.memory_error, largest_difference(predicted_memory(memory), measured_memory(rank)));
        v.communication_error =
            std::max(v.communication_error, largest_difference(predicted_wire(program, rank.rank), rank.wire));
    }
    v.peak_resident = measured.peak_resident;
    return v;
}

}  // namespace foretrain
