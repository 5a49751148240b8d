// Rules of memory, one stage at a time, in the order in which the host issues.
//
// The arena is cut into cells at every place where a buffer begins or ends, so that a buffer is a
// run of cells. Each cell knows who wrote it last and who has read it since. An access is right if
// those that it conflicts with happen before it: a clock per instruction holds, for each stream, the
// last instruction that is known to be complete.
#include <fmt/format.h>

#include <algorithm>

#include "plan/program/access.h"
#include "plan/program/verify_rules.h"

namespace foretrain::verify_rules {

namespace {

using Kind = InstructionKind;
using Clock = std::array<std::int32_t, stream_count>;

constexpr Clock nothing_yet() {
    Clock clock{};
    for (std::int32_t& c : clock) c = -1;
    return clock;
}
constexpr Clock never = nothing_yet();

Clock join(const Clock& a, const Clock& b) {
    Clock out;
    for (std::size_t s = 0; s < stream_count; ++s) out[s] = std::max(a[s], b[s]);
    return out;
}

// Parameters and their state are there before the step; all else is empty.
bool given(Region r) { return r == Region::weights || r == Region::gradients || r == Region::optimizer; }

struct Cell {
    std::int32_t writer = -1;
    std::int32_t owner = -1;  // the live buffer that holds it
    Clock readers = never;    // since it was written, the last of each stream
};

struct Place {  // cells [first, end)
    std::size_t first = 0, end = 0;
};

class StageMemory {
public:
    StageMemory(const Program& program, const StageProgram& stage) : s_(stage), begun_(stage.buffers.size(), -1) {
        cut(program.grid);
        for (const KernelArgs& args : s_.kernels) {
            std::array<Access, Instruction::max_operands> uses{};
            for (int o = 0; o < std::min<int>(operand_count(args), Instruction::max_operands); ++o)
                uses[static_cast<std::size_t>(o)] = operand_access(args, o);
            kernel_uses_.push_back(uses);
        }
        whole_ = std::none_of(s_.instructions.begin(), s_.instructions.end(),
                              [](const Instruction& i) { return names_body(i.kind); });
        clocks_.reserve(s_.instructions.size());
    }

    Verdict run() {
        for (std::size_t id = 0; id < s_.instructions.size(); ++id) {
            now_ = static_cast<std::int32_t>(id);
            const Instruction& i = s_.instructions[id];
            tick(i);
            if (!step(i)) return Failure{s_.stage, now_, rule_, text_};
        }
        return std::nullopt;
    }

private:
    bool fail(std::string rule, std::string text) {
        rule_ = std::move(rule);
        text_ = std::move(text);
        return false;
    }

    void cut(const RankGrid& grid) {
        std::vector<std::pair<std::int64_t, std::int64_t>> spans;
        std::vector<std::int64_t> cuts;
        for (const Buffer& b : s_.buffers) {
            const std::int64_t first = (s_.region_base[static_cast<std::size_t>(b.region)] + b.offset).value;
            const std::int64_t shift = b.elements == 0 ? 0 : b.stride.value * (grid.size(b.axis) - 1);
            spans.emplace_back(first, first + shift + b.bytes().value);
            cuts.insert(cuts.end(), {spans.back().first, spans.back().second});
        }
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        const auto cell = [&](std::int64_t address) {
            return static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), address) - cuts.begin());
        };
        for (const auto& [first, end] : spans) places_.push_back({cell(first), cell(end)});
        cells_.resize(cuts.size());
    }

    void tick(const Instruction& i) {
        Clock clock = never;
        for (std::size_t stream = 0; stream < stream_count; ++stream) {
            if (!occupies(i, static_cast<Stream>(stream))) continue;
            if (latest_[stream] >= 0) clock = join(clock, clocks_[static_cast<std::size_t>(latest_[stream])]);
            latest_[stream] = now_;
        }
        for (int w = 0; w < i.waits; ++w)
            clock = join(clock, clocks_[static_cast<std::size_t>(i.wait[static_cast<std::size_t>(w)].instruction)]);
        before_ = clock;
        for (std::size_t stream = 0; stream < stream_count; ++stream)
            if (occupies(i, static_cast<Stream>(stream))) clock[stream] = now_;
        clocks_.push_back(clock);
    }

    bool step(const Instruction& i) {
        switch (i.kind) {
            case Kind::alloc: return begin(i.operand[0]);
            case Kind::free: return end(i.operand[0]);
            case Kind::step_end: return finish();
            default: break;
        }
        for (int o = 0; o < i.operands; ++o)
            if (!alive(i.operand[static_cast<std::size_t>(o)])) return false;
        for (int o = 0; o < i.operands; ++o)  // an instruction reads before it writes
            if (use(i, o) != Access::write && !read(i, i.operand[static_cast<std::size_t>(o)])) return false;
        for (int o = 0; o < i.operands; ++o)
            if (use(i, o) != Access::read && !write(i.operand[static_cast<std::size_t>(o)])) return false;
        return true;
    }

    Access use(const Instruction& i, int o) const {
        if (i.kind == Kind::kernel)
            return kernel_uses_[static_cast<std::size_t>(i.kernel)][static_cast<std::size_t>(o)];
        return access_of(i, s_, o).value_or(Access::read);
    }

    const Buffer& buffer(std::int32_t b) const { return s_.buffers[static_cast<std::size_t>(b)]; }
    std::int32_t& begun(std::int32_t b) { return begun_[static_cast<std::size_t>(b)]; }

    template <class F>
    bool cells(std::int32_t b, F&& f) {
        const Place place = places_[static_cast<std::size_t>(b)];
        for (std::size_t c = place.first; c < place.end; ++c)
            if (!f(cells_[c])) return false;
        return true;
    }

    bool begin(std::int32_t b) {
        if (!has_life(buffer(b).region))
            return fail("life", fmt::format("region {} is not allocated piece by piece", name_of(buffer(b).region)));
        if (begun(b) >= 0) return fail("life", fmt::format("{} lives already, since %{}", buffer(b).name, begun(b)));
        begun(b) = now_;
        return cells(b, [&](Cell& cell) {
            if (cell.owner >= 0)
                return fail("overlap", fmt::format("{} stands on {}, which lives since {}", buffer(b).name,
                                                   buffer(cell.owner).name, quote(s_, begun(cell.owner))));
            cell.owner = b;
            return true;
        });
    }

    bool end(std::int32_t b) {
        if (!alive(b)) return false;
        begun(b) = -1;
        return cells(b, [](Cell& cell) { return cell.owner = -1, true; });
    }

    bool alive(std::int32_t b) {
        if (!has_life(buffer(b).region) || begun(b) >= 0) return true;
        return fail("life", fmt::format("{} does not live here: it is freed, or not yet allocated", buffer(b).name));
    }

    bool ordered(std::int32_t earlier, std::int32_t b, std::string_view does, std::string_view did) {
        const auto stream = static_cast<std::size_t>(s_.instructions[static_cast<std::size_t>(earlier)].stream);
        if (before_[stream] >= earlier) return true;
        return fail("race", fmt::format("it {} {} but nothing orders it after what {} that memory:\n    {}", does,
                                        buffer(b).name, did, quote(s_, earlier)));
    }

    bool read(const Instruction& i, std::int32_t b) {
        bool written = false;
        // In a buffer with a life of its own, what stood there before does not count.
        const std::int32_t since = has_life(buffer(b).region) ? begun(b) : -1;
        const bool right = cells(b, [&](Cell& cell) {
            written = written || cell.writer > since;
            if (cell.writer >= 0 && !ordered(cell.writer, b, "reads", "wrote")) return false;
            cell.readers[static_cast<std::size_t>(i.stream)] = now_;
            return true;
        });
        if (!right) return false;
        if (!whole_ || written || given(buffer(b).region) || buffer(b).elements == 0) return true;
        return fail("unwritten", fmt::format("it reads {}, which nothing has written", buffer(b).name));
    }

    bool write(std::int32_t b) {
        return cells(b, [&](Cell& cell) {
            if (cell.writer >= 0 && !ordered(cell.writer, b, "writes", "wrote")) return false;
            for (std::int32_t& reader : cell.readers) {
                if (reader >= 0 && reader != now_ && !ordered(reader, b, "writes", "reads")) return false;
                reader = -1;
            }
            cell.writer = now_;
            return true;
        });
    }

    // The next step begins anywhere: nothing of this one may be under way.
    bool finish() {
        for (std::size_t stream = 0; stream < stream_count; ++stream)
            if (const std::int32_t id = latest_[stream]; id > before_[stream] && id != now_)
                return fail("end",
                            fmt::format("the step ends while this may still be under way:\n    {}", quote(s_, id)));
        for (std::size_t b = 0; b < begun_.size(); ++b)
            if (begun_[b] >= 0)
                return fail("life", fmt::format("{} is never freed; it lives since {}", s_.buffers[b].name,
                                                quote(s_, begun_[b])));
        return true;
    }

    const StageProgram& s_;
    bool whole_ = true;  // lowered: every access is listed
    std::vector<std::array<Access, Instruction::max_operands>> kernel_uses_;
    std::vector<Place> places_;  // by buffer
    std::vector<Cell> cells_;
    std::vector<std::int32_t> begun_;  // by buffer: its alloc while it lives
    std::vector<Clock> clocks_;        // by instruction: what is complete once it is
    Clock latest_ = never;
    Clock before_ = never;  // what is complete when the instruction at hand begins
    std::int32_t now_ = -1;
    std::string rule_, text_;
};

}  // namespace

Verdict check_memory(const Program& program) {
    for (const StageProgram& stage : program.stages)
        if (Verdict wrong = StageMemory(program, stage).run()) return wrong;
    return std::nullopt;
}

}  // namespace foretrain::verify_rules
