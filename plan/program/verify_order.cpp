// Rules across stages: messages and collectives have partners, and everything completes. One rank
// stands for a stage: a group along another axis runs one program, so its members agree.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/partners.h"
#include "plan/program/verify_rules.h"

namespace foretrain::verify_rules {

namespace {

using Kind = InstructionKind;
using Ids = std::vector<std::int32_t>;

const Instruction& at(const StageProgram& stage, std::int32_t id) {
    return stage.instructions[static_cast<std::size_t>(id)];
}

const char* what(const Meeting& m) { return m.messages ? "message" : "collective"; }

// Where the model's chunks follow each other: a chunk's output is the next one's input, and gradients
// go back the same way. What the last stage sends on reaches the next chunk of the first.
bool chunks_follow(const Instruction& sent, const Instruction& received, const Meeting& m, std::int32_t stages) {
    const bool gradients = channel_of(sent, m.stage[0]).gradients;
    const int around = !gradients && m.stage[0] + 1 == stages ? 1 : gradients && m.stage[0] == 0 ? -1 : 0;
    return received.chunk == sent.chunk + around;
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
    const auto stages = static_cast<std::int32_t>(program.stages.size());
    for (const Meeting& m : meetings(program)) {
        const StageProgram* stage[] = {&program.stages[static_cast<std::size_t>(m.stage[0])],
                                       &program.stages[static_cast<std::size_t>(m.stage[1])]};
        const std::size_t common = std::min(m.ids[0].size(), m.ids[1].size());
        for (std::size_t k = 0; k < common; ++k) {
            const Instruction &a = at(*stage[0], m.ids[0][k]), &b = at(*stage[1], m.ids[1][k]);
            std::string differs = difference(a, b);
            if (differs.empty() && m.messages && !chunks_follow(a, b, m, stages)) differs = "chunks";
            if (!differs.empty())
                return Failure{m.stage[0], m.ids[0][k], "match",
                               fmt::format("{} {} between stages {} and {} pairs different {}: the other side is {}",
                                           what(m), k, m.stage[0], m.stage[1], differs, quote(*stage[1], m.ids[1][k]))};
        }
        if (m.ids[0].size() == m.ids[1].size()) continue;
        const int more = m.ids[0].size() > common ? 0 : 1;
        return Failure{m.stage[more], m.ids[more][common], "match",
                       fmt::format("{} {} of stage {} has no partner on stage {}", what(m), common, m.stage[more],
                                   m.stage[1 - more])};
    }
    return std::nullopt;
}

Verdict check_progress(const Program& program) { return Untimed(program).run(); }

}  // namespace foretrain::verify_rules
