// Rules across stages: messages and collectives have partners, and everything completes. One rank
// stands for a stage: a group along another axis runs one program, so its members agree.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/verify_rules.h"

namespace foretrain::verify_rules {

namespace {

using Kind = InstructionKind;
using Ids = std::vector<std::int32_t>;

const Instruction& at(const StageProgram& stage, std::int32_t id) {
    return stage.instructions[static_cast<std::size_t>(id)];
}

template <class Chosen>
Ids ids_of(const StageProgram& stage, Chosen&& chosen) {
    Ids out;
    for (std::size_t id = 0; id < stage.instructions.size(); ++id)
        if (chosen(stage.instructions[id])) out.push_back(static_cast<std::int32_t>(id));
    return out;
}

// Two lists that meet each other in order: messages from one stage to a neighbour, or the
// collectives of first and last stage.
struct Meeting {
    std::int32_t stage[2];
    Ids ids[2];
    const char* what = "";
};

std::vector<Meeting> meetings(const Program& program) {
    std::vector<Meeting> out;
    const auto stages = static_cast<std::int32_t>(program.stages.size());
    const auto messages = [&](std::int32_t from, std::int32_t to) {
        const auto list = [&](std::int32_t stage, Kind kind, std::int32_t peer) {
            return ids_of(program.stages[static_cast<std::size_t>(stage)],
                          [&](const Instruction& i) { return i.kind == kind && i.peer == peer; });
        };
        out.push_back({{from, to}, {list(from, Kind::send, to), list(to, Kind::recv, from)}, "message"});
    };
    for (std::int32_t s = 0; s + 1 < stages; ++s) messages(s, s + 1), messages(s + 1, s);
    if (stages > 1) {
        const auto embedding = [](const Instruction& i) { return is_collective(i.kind) && i.axis == Axis::embedding; };
        out.push_back({{0, stages - 1},
                       {ids_of(program.stages.front(), embedding), ids_of(program.stages.back(), embedding)},
                       "collective"});
    }
    return out;
}

std::string difference(const Instruction& a, const Instruction& b) {
    if (!is_message(a.kind) && a.kind != b.kind) return "kinds";
    if (!is_message(a.kind) && a.stream != b.stream) return "streams";
    if (a.reduction != b.reduction) return "reductions";
    if (a.count != b.count) return "counts";
    if (a.type != b.type) return "types";
    if (a.microbatch != b.microbatch) return "microbatches";
    return {};
}

// Runs the program without time: whatever can complete does.
class Untimed {
public:
    explicit Untimed(const Program& program)
        : p_(program), partners_(partners(program)), ranks_(program.stages.size()) {
        for (std::size_t s = 0; s < ranks_.size(); ++s) {
            const auto& code = p_.stages[s].instructions;
            ranks_[s].done.assign(code.size(), 0);
            for (std::size_t id = 0; id < code.size(); ++id)
                for (int stream = 0; stream < stream_count; ++stream)
                    if (occupies(code[id], static_cast<Stream>(stream)))
                        ranks_[s].queue[static_cast<std::size_t>(stream)].push_back(static_cast<std::int32_t>(id));
        }
    }

    Verdict run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::int32_t s = 0; s < static_cast<std::int32_t>(ranks_.size()); ++s)
                for (std::size_t stream = 0; stream < stream_count; ++stream)
                    while (const auto id = head(s, stream)) {
                        if (!complete(s, *id)) break;
                        moved = true;
                    }
        }
        for (std::int32_t s = 0; s < static_cast<std::int32_t>(ranks_.size()); ++s)
            for (std::size_t stream = 0; stream < stream_count; ++stream)
                if (const auto id = head(s, stream)) return stuck({s, *id});
        return std::nullopt;
    }

private:
    struct Rank {
        std::array<Ids, stream_count> queue;
        std::array<std::size_t, stream_count> next{};
        std::vector<char> done;
    };

    Rank& rank(std::int32_t stage) { return ranks_[static_cast<std::size_t>(stage)]; }
    const Instruction& code(Partner p) const { return at(p_.stages[static_cast<std::size_t>(p.stage)], p.instruction); }

    std::optional<std::int32_t> head(std::int32_t stage, std::size_t stream) {
        const Rank& r = rank(stage);
        if (r.next[stream] == r.queue[stream].size()) return std::nullopt;
        return r.queue[stream][r.next[stream]];
    }

    // What keeps it from completing by itself, or nothing.
    std::optional<Partner> obstacle(Partner p) {
        const Instruction& i = code(p);
        for (std::size_t stream = 0; stream < stream_count; ++stream)
            if (occupies(i, static_cast<Stream>(stream)))
                if (const auto first = head(p.stage, stream); first && *first != p.instruction)
                    return Partner{p.stage, *first};
        for (int w = 0; w < i.waits; ++w)
            if (const std::int32_t id = i.wait[static_cast<std::size_t>(w)].instruction;
                !rank(p.stage).done[static_cast<std::size_t>(id)])
                return Partner{p.stage, id};
        return std::nullopt;
    }

    Partner partner(Partner p) const {
        return partners_[static_cast<std::size_t>(p.stage)][static_cast<std::size_t>(p.instruction)];
    }

    bool complete(std::int32_t stage, std::int32_t id) {
        const Partner self{stage, id};
        const Partner other = partner(self);
        if (obstacle(self) || (other.stage >= 0 && obstacle(other))) return false;
        pop(self);
        if (other.stage >= 0) pop(other);
        return true;
    }

    void pop(Partner p) {
        Rank& r = rank(p.stage);
        r.done[static_cast<std::size_t>(p.instruction)] = 1;
        for (std::size_t stream = 0; stream < stream_count; ++stream)
            if (occupies(code(p), static_cast<Stream>(stream))) ++r.next[stream];
    }

    // Follows what each waits for until it comes around.
    Failure stuck(Partner from) {
        std::vector<Partner> path{from};
        for (bool around = false; !around;) {
            const Partner now = path.back();
            const Partner next = obstacle(now).value_or(partner(now));
            FORETRAIN_CHECK(next.stage >= 0, "what nothing holds up has completed");
            around = std::any_of(path.begin(), path.end(), [&](Partner p) { return p == next; });
            path.push_back(next);
        }
        return cycle(path);
    }

    Failure cycle(const std::vector<Partner>& path) const {
        const auto first = std::find(path.begin(), path.end(), path.back());
        std::string text = "nothing completes any more:";
        constexpr int most = 8;
        int shown = 0;
        for (auto p = first; p != path.end() && shown <= most; ++p, ++shown)
            text += fmt::format("{} stage {} {}", p == first ? "" : "\n    waits for", p->stage,
                                quote(p_.stages[static_cast<std::size_t>(p->stage)], p->instruction));
        if (shown > most) text += "\n    ...";
        return {first->stage, first->instruction, "deadlock", text};
    }

    const Program& p_;
    std::vector<std::vector<Partner>> partners_;
    std::vector<Rank> ranks_;
};

}  // namespace

Verdict check_matches(const Program& program) {
    for (const Meeting& m : meetings(program)) {
        const StageProgram* stage[] = {&program.stages[static_cast<std::size_t>(m.stage[0])],
                                       &program.stages[static_cast<std::size_t>(m.stage[1])]};
        const std::size_t common = std::min(m.ids[0].size(), m.ids[1].size());
        for (std::size_t k = 0; k < common; ++k)
            if (const std::string what = difference(at(*stage[0], m.ids[0][k]), at(*stage[1], m.ids[1][k]));
                !what.empty())
                return Failure{m.stage[0], m.ids[0][k], "match",
                               fmt::format("{} {} between stages {} and {} pairs different {}: the other side is {}",
                                           m.what, k, m.stage[0], m.stage[1], what, quote(*stage[1], m.ids[1][k]))};
        if (m.ids[0].size() == m.ids[1].size()) continue;
        const int more = m.ids[0].size() > common ? 0 : 1;
        return Failure{m.stage[more], m.ids[more][common], "match",
                       fmt::format("{} {} of stage {} has no partner on stage {}", m.what, common, m.stage[more],
                                   m.stage[1 - more])};
    }
    return std::nullopt;
}

std::vector<std::vector<Partner>> partners(const Program& program) {
    std::vector<std::vector<Partner>> out(program.stages.size());
    for (std::size_t s = 0; s < out.size(); ++s) out[s].resize(program.stages[s].instructions.size());
    for (const Meeting& m : meetings(program))
        for (std::size_t k = 0; k < m.ids[0].size(); ++k)
            for (int side : {0, 1})
                out[static_cast<std::size_t>(m.stage[side])][static_cast<std::size_t>(m.ids[side][k])] = {
                    m.stage[1 - side], m.ids[1 - side][k]};
    return out;
}

Verdict check_progress(const Program& program) { return Untimed(program).run(); }

}  // namespace foretrain::verify_rules
