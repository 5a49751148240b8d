#include "sim/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/index.h"
#include "plan/program/access.h"
#include "sim/durations.h"
#include "sim/event_queue.h"
#include "sim/rendezvous.h"

namespace foretrain {

namespace {

// By how much an instruction changes what lives.
Bytes live_change(const Instruction& i, const StageProgram& stage) {
    if (i.kind == InstructionKind::alloc) return stage.buffers[at(i.operand[0])].bytes();
    if (i.kind == InstructionKind::free) return Bytes{} - stage.buffers[at(i.operand[0])].bytes();
    return Bytes{};
}

// Bytes sent in one step by the rank whose coordinates on all axes but the stages' are 0.
class WireCounter {
public:
    WireCounter(const RankGrid& grid, std::int64_t stage) : grid_(grid), rank_(grid.rank_in_stage(0, stage)) {}

    void add(const Instruction& i) {
        const bool message = i.kind == InstructionKind::send;
        if (!message && !is_collective(i.kind)) return;
        const Axis axis = message ? Axis::pipeline : i.axis;
        Bytes& sum = sent_[static_cast<std::size_t>(axis)][static_cast<std::size_t>(i.kind)];
        sum += wire_bytes(i, grid_.size(axis), grid_.coordinate(rank_, axis));
    }

    WireCount count() const {
        WireCount result;
        for (std::size_t axis = 0; axis < sent_.size(); ++axis)
            for (std::size_t kind = 0; kind < sent_[axis].size(); ++kind)
                if (sent_[axis][kind] > Bytes{})
                    result[wire_key(static_cast<Axis>(axis), static_cast<InstructionKind>(kind))] = sent_[axis][kind];
        return result;
    }

private:
    static constexpr std::size_t kinds = static_cast<std::size_t>(InstructionKind::step_end) + 1;
    const RankGrid& grid_;
    std::int64_t rank_;
    std::array<std::array<Bytes, kinds>, axis_count> sent_{};
};

}  // namespace

// One stage is a set of streams, each a list linked through its instructions; `head` is the
// instruction that a stream is at. As a stream is FIFO, what stands before its head is complete.
struct Simulator::State {
    struct Step {  // an instruction
        std::int64_t duration = 0;
        std::int64_t start = -1;  // -1: not started
        std::int32_t next = 0;    // on the same stream; the number of instructions at its end
        std::int32_t meeting = -1;
        bool waits = false;  // so that most instructions need not be looked at
    };
    struct Lane {  // a stream
        std::int32_t head = 0;
        std::int32_t awaited = -1;  // instruction that the head waits for
        std::uint16_t waiting = 0;  // set of streams that wait for an instruction of this one
    };
    static_assert(stream_count <= 16, "a set of streams");
    struct Stage {
        const StageProgram* program = nullptr;
        std::vector<Step> steps;
        std::array<Lane, stream_count> lanes{};
        std::int64_t complete = 0;
    };

    std::vector<Stage> stages;
    std::size_t stage_count = 0;
    Rendezvous meetings;
    InstructionDurations durations;
    EventQueue queue;
    bool top_spent = false;  // the event at the top of the queue is being handled: its place is free

    void load(const Program& program, const CostModel& cost, const SimulateOptions& options);
    void load_stage(std::int32_t index, const CostModel& cost);
    void run();
    void proceed(std::int32_t stage, std::size_t lane, std::int64_t now);
    bool waits(Stage& stage, std::size_t lane, const Instruction& instruction);
    void complete(std::int32_t stage, std::size_t lane, std::int64_t now);
    void schedule(const Event& event);
    void check_finished() const;
    RankTrace trace(std::size_t stage, const RankGrid& grid) const;
    std::vector<MemorySample> memory(std::size_t stage) const;
};

void Simulator::State::load(const Program& program, const CostModel& cost, const SimulateOptions& options) {
    stage_count = program.stages.size();
    FORETRAIN_CHECK(options.slowdown.empty() || options.slowdown.size() == stage_count, "one slowdown for each stage");
    if (stages.size() < stage_count) stages.resize(stage_count);
    meetings.begin(stage_count, program.grid);
    queue.clear();
    for (std::size_t s = 0; s < stage_count; ++s) {
        stages[s].program = &program.stages[s];
        durations.begin_stage(program.stages[s].kernels, static_cast<std::int64_t>(s),
                              options.slowdown.empty() ? 1 : options.slowdown[s]);
        meetings.begin_stage(static_cast<std::int32_t>(s));
        load_stage(static_cast<std::int32_t>(s), cost);
    }
}

void Simulator::State::load_stage(std::int32_t index, const CostModel& cost) {
    Stage& stage = stages[at(index)];
    const std::vector<Instruction>& code = stage.program->instructions;
    const auto end = static_cast<std::int32_t>(code.size());
    stage.steps.resize(code.size());
    stage.complete = 0;
    stage.lanes.fill(Lane{.head = end});
    std::array<std::int32_t, stream_count> last;
    last.fill(-1);
    for (std::int32_t i = 0; i < end; ++i) {
        const Instruction& instruction = code[at(i)];
        const auto lane = static_cast<std::size_t>(instruction.stream);
        (last[lane] < 0 ? stage.lanes[lane].head : stage.steps[at(last[lane])].next) = i;
        last[lane] = i;
        for (std::size_t w = 0; w < instruction.waits; ++w) {
            const Wait& wait = instruction.wait[w];
            FORETRAIN_CHECK(
                wait.instruction >= 0 && wait.instruction < i && code[at(wait.instruction)].stream == wait.stream,
                fmt::format("stage {}, instruction {} waits for what is not before it", index, i));
        }
        stage.steps[at(i)] = {durations.of(instruction, cost).value, -1, end,
                              Rendezvous::meets(instruction) ? meetings.join(instruction, i) : -1,
                              instruction.waits > 0};
    }
}

// A push in place of the event being handled, where that is still in the queue, costs one step.
void Simulator::State::schedule(const Event& event) {
    if (top_spent)
        queue.replace_top(event);
    else
        queue.push(event);
    top_spent = false;
}

// True if the stream must wait; it is then noted at the stream that it waits for.
bool Simulator::State::waits(Stage& stage, std::size_t lane, const Instruction& instruction) {
    for (std::size_t w = 0; w < instruction.waits; ++w) {
        const Wait& wait = instruction.wait[w];
        Lane& other = stage.lanes[static_cast<std::size_t>(wait.stream)];
        if (other.head > wait.instruction) continue;
        other.waiting = static_cast<std::uint16_t>(other.waiting | (1U << lane));
        stage.lanes[lane].awaited = wait.instruction;
        return true;
    }
    return false;
}

// Starts what the stream can start at time `now`, its head being neither started nor waited for.
// Instructions that take no time are over at once.
void Simulator::State::proceed(std::int32_t index, std::size_t lane, std::int64_t now) {
    Stage& stage = stages[at(index)];
    const auto end = static_cast<std::int32_t>(stage.steps.size());
    while (stage.lanes[lane].head < end) {
        const std::int32_t i = stage.lanes[lane].head;
        Step& step = stage.steps[at(i)];
        if (step.waits && waits(stage, lane, stage.program->instructions[at(i)])) return;
        if (step.meeting >= 0) {
            if (!meetings.arrive(step.meeting)) return;
            meetings.for_each_member(step.meeting, [&](const Rendezvous::Member& m) {
                Step& theirs = stages[at(m.stage)].steps[at(m.instruction)];
                theirs.start = now;
                schedule({now + theirs.duration, m.stage, m.instruction, static_cast<std::size_t>(m.stream)});
            });
            return;
        }
        step.start = now;
        if (step.duration > 0) {
            schedule({now + step.duration, index, i, lane});
            return;
        }
        complete(index, lane, now);
    }
}

// The head of the stream is over: the stream moves on, and those that waited for it may.
void Simulator::State::complete(std::int32_t index, std::size_t lane, std::int64_t now) {
    Stage& stage = stages[at(index)];
    Lane& own = stage.lanes[lane];
    const std::int32_t done = own.head;
    own.head = stage.steps[at(done)].next;
    ++stage.complete;
    if (own.waiting == 0) return;
    for (std::size_t other = 0; other < stream_count; ++other) {
        const unsigned bit = 1U << other;
        if ((own.waiting & bit) == 0 || stage.lanes[other].awaited != done) continue;
        own.waiting = static_cast<std::uint16_t>(own.waiting & ~bit);
        stage.lanes[other].awaited = -1;
        proceed(index, other, now);
    }
}

void Simulator::State::run() {
    top_spent = false;
    for (std::size_t s = 0; s < stage_count; ++s)
        for (std::size_t lane = 0; lane < stream_count; ++lane) proceed(static_cast<std::int32_t>(s), lane, 0);
    while (!queue.empty()) {
        const Event event = queue.top();
        top_spent = true;
        complete(event.stage(), event.stream(), event.time);
        proceed(event.stage(), event.stream(), event.time);
        if (top_spent) queue.pop();
    }
    check_finished();
}

void Simulator::State::check_finished() const {
    std::string stuck;
    std::int64_t count = 0;
    for (std::size_t s = 0; s < stage_count; ++s) {
        const Stage& stage = stages[s];
        if (stage.complete == static_cast<std::int64_t>(stage.steps.size())) continue;
        for (std::size_t lane = 0; lane < stream_count; ++lane) {
            const std::int32_t i = stage.lanes[lane].head;
            if (i == static_cast<std::int32_t>(stage.steps.size()) || ++count > 32) continue;
            const Instruction& instruction = stage.program->instructions[at(i)];
            stuck += fmt::format("\n  stage {}, {}: instruction {} ({}", s, name_of(instruction.stream), i,
                                 name_of(instruction.kind));
            if (instruction.peer >= 0) stuck += fmt::format(", peer {}", instruction.peer);
            const std::int32_t awaited = stage.lanes[lane].awaited;
            stuck += awaited >= 0 ? fmt::format(") waits for instruction {}", awaited) : ") waits for its other side";
        }
    }
    if (count > 0) throw InternalError("the program deadlocks; stuck are" + stuck);
}

RankTrace Simulator::State::trace(std::size_t index, const RankGrid& grid) const {
    const Stage& stage = stages[index];
    const StageProgram& program = *stage.program;
    RankTrace rank;
    rank.stage = static_cast<std::int64_t>(index);
    rank.rank = grid.rank_in_stage(0, rank.stage);
    RankStep step;
    step.spans.reserve(stage.steps.size());
    WireCounter wire(grid, rank.stage);
    Bytes live = program.standing(), peak = live;
    std::int64_t last = 0, step_end = -1;
    for (std::size_t i = 0; i < stage.steps.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        live += live_change(instruction, program);
        peak = std::max(peak, live);
        if (!leaves_span(instruction.kind)) continue;
        const std::int64_t start = stage.steps[i].start, end = start + stage.steps[i].duration;
        step.spans.push_back({static_cast<std::int32_t>(i), Time{start}, Time{end}});
        last = std::max(last, end);
        if (instruction.kind == InstructionKind::step_end) step_end = end;
        wire.add(instruction);
    }
    step.duration = Time{step_end >= 0 ? step_end : last};
    rank.steps.push_back(std::move(step));
    rank.wire = wire.count();
    for (int r = 0; r < region_count; ++r)
        rank.allocated[std::string(name_of(static_cast<Region>(r)))] = program.region_bytes[at(r)];
    rank.live_peak = peak;
    return rank;
}

std::vector<MemorySample> Simulator::State::memory(std::size_t index) const {
    const Stage& stage = stages[index];
    const StageProgram& program = *stage.program;
    std::vector<MemorySample> changes;  // `live` holds the change
    for (std::size_t i = 0; i < stage.steps.size(); ++i) {
        const Bytes change = live_change(program.instructions[i], program);
        if (change != Bytes{}) changes.push_back({Time{stage.steps[i].start}, change});
    }
    // Stable: what happens at the same time happens in host order.
    std::stable_sort(changes.begin(), changes.end(),
                     [](const MemorySample& a, const MemorySample& b) { return a.time < b.time; });
    std::vector<MemorySample> samples{{Time{}, program.standing()}};
    for (const MemorySample& c : changes) {
        const Bytes live = samples.back().live + c.live;
        if (samples.back().time == c.time)
            samples.back().live = live;
        else
            samples.push_back({c.time, live});
    }
    return samples;
}

Simulator::Simulator() : state_(std::make_unique<State>()) {}
Simulator::~Simulator() = default;
Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;

Trace Simulator::simulate(const Program& program, const CostModel& cost, const SimulateOptions& options) {
    state_->load(program, cost, options);
    state_->run();
    Trace trace;
    trace.kind = "simulated";
    if (options.memory != nullptr) options.memory->clear();
    for (std::size_t s = 0; s < state_->stage_count; ++s) {
        trace.ranks.push_back(state_->trace(s, program.grid));
        if (options.memory != nullptr) options.memory->push_back(state_->memory(s));
    }
    return trace;
}

Trace simulate(const Program& program, const CostModel& cost, const SimulateOptions& options) {
    return Simulator().simulate(program, cost, options);
}

Time step_time(const Trace& trace) {
    Time slowest;
    for (const RankTrace& rank : trace.ranks)
        for (const RankStep& step : rank.steps) slowest = std::max(slowest, step.duration);
    return slowest;
}

}  // namespace foretrain
