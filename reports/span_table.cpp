#include "reports/span_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/partners.h"

namespace foretrain {

namespace {

constexpr Time absent{-1};

bool crosses_stages(const Instruction& i) {
    return is_message(i.kind) || (is_collective(i.kind) && i.axis == Axis::embedding);
}

[[noreturn]] void foreign(std::string found, std::string expected) {
    throw UserError({.file = "trace", .field = "ranks", .found = std::move(found), .expected = std::move(expected)});
}

}  // namespace

Meetings::Meetings(const Program& program) : program_(program) {
    for (const Meeting& m : meetings(program))
        for (std::size_t k = 0; k < std::min(m.ids[0].size(), m.ids[1].size()); ++k) {
            const std::vector<Place> places{{m.stage[0], m.ids[0][k]}, {m.stage[1], m.ids[1][k]}};
            for (const Place& place : places) across_stages_[place] = places;
        }
}

std::vector<Meetings::Participant> Meetings::participants(std::int64_t rank, std::int32_t instruction) const {
    const std::int64_t stage = program_.grid.coordinate(rank, Axis::pipeline);
    const Instruction& i =
        program_.stages[static_cast<std::size_t>(stage)].instructions[static_cast<std::size_t>(instruction)];
    std::vector<Participant> all;
    if (crosses_stages(i)) {
        for (const auto& [other, id] : across_stages_.at({stage, instruction}))
            all.push_back({program_.grid.rank_in_stage(rank, other), id});
    } else if (is_collective(i.kind)) {
        for (std::int64_t member : program_.grid.members(rank, i.axis)) all.push_back({member, instruction});
    }
    return all;
}

SpanTable::SpanTable(const Program& program, const Meetings& meetings, const Trace& trace, std::size_t warm_up)
    : program_(program), meetings_(meetings) {
    std::size_t fewest = trace.ranks.empty() ? 0 : trace.ranks.front().steps.size();
    for (const RankTrace& rank : trace.ranks) fewest = std::min(fewest, rank.steps.size());
    if (fewest <= warm_up)
        foreign(fmt::format("{} steps", fewest), fmt::format("more than the {} of the warm-up", warm_up));
    steps_ = fewest - warm_up;
    for (const RankTrace& rank : trace.ranks) {
        if (rank.rank < 0 || rank.rank >= program.grid.world() ||
            rank.stage != program.grid.coordinate(rank.rank, Axis::pipeline))
            foreign(fmt::format("rank {} on stage {}", rank.rank, rank.stage), "a rank of this plan");
        const std::size_t length = program.stages[static_cast<std::size_t>(rank.stage)].instructions.size();
        Steps& table = ranks_[rank.rank];
        for (std::size_t step = warm_up; step < fewest; ++step) {
            std::vector<Time> durations(length, absent);
            for (const Span& span : rank.steps[step].spans) {
                if (span.instruction < 0 || static_cast<std::size_t>(span.instruction) >= length)
                    foreign(fmt::format("instruction {} on rank {}", span.instruction, rank.rank),
                            fmt::format("one of the {} of its stage's program", length));
                durations[static_cast<std::size_t>(span.instruction)] = span.end - span.start;
            }
            table.spans.push_back(std::move(durations));
            table.durations.push_back(rank.steps[step].duration);
        }
        stands_for_stage_.emplace(rank.stage, rank.rank);
    }
}

const SpanTable::Steps* SpanTable::steps_of(std::int64_t rank) const {
    if (const auto own = ranks_.find(rank); own != ranks_.end()) return &own->second;
    const auto other = stands_for_stage_.find(program_.grid.coordinate(rank, Axis::pipeline));
    return other == stands_for_stage_.end() ? nullptr : &ranks_.at(other->second);
}

std::optional<Time> SpanTable::at(std::int64_t rank, std::int32_t instruction, std::size_t step) const {
    const Steps* steps = steps_of(rank);
    if (steps == nullptr) return std::nullopt;
    const Time t = steps->spans[step][static_cast<std::size_t>(instruction)];
    return t == absent ? std::nullopt : std::optional<Time>(t);
}

std::optional<Time> SpanTable::shortest(const std::vector<Meetings::Participant>& participants,
                                        std::size_t step) const {
    std::optional<Time> least;
    for (const Meetings::Participant& p : participants) {
        const std::optional<Time> t = at(p.rank, p.instruction, step);
        if (t && (!least || *t < *least)) least = t;
    }
    return least;
}

std::optional<Time> SpanTable::span(std::int64_t rank, std::int32_t instruction) const {
    std::vector<Time> values;
    for (std::size_t step = 0; step < steps_; ++step)
        if (const std::optional<Time> t = at(rank, instruction, step)) values.push_back(*t);
    return values.empty() ? std::nullopt : std::optional<Time>(median(std::move(values)));
}

std::optional<Time> SpanTable::transfer(std::int64_t rank, std::int32_t instruction) const {
    const std::vector<Meetings::Participant> participants = meetings_.participants(rank, instruction);
    if (participants.empty()) return span(rank, instruction);
    std::vector<Time> values;
    for (std::size_t step = 0; step < steps_; ++step)
        if (at(rank, instruction, step)) values.push_back(*shortest(participants, step));
    return values.empty() ? std::nullopt : std::optional<Time>(median(std::move(values)));
}

Time SpanTable::step(std::int64_t rank) const {
    const Steps* steps = steps_of(rank);
    return steps == nullptr ? Time{} : median(steps->durations);
}

Time median(std::vector<Time> values) {
    FORETRAIN_CHECK(!values.empty(), "a median of nothing");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace foretrain
