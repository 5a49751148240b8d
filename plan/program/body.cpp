#include "plan/program/body.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

std::string text(const Label& label, std::int64_t first_layer) {
    if (label.layer < 0) return std::string(label.what);
    return "layer" + std::to_string(first_layer + label.layer) + "." + std::string(label.what);
}

Rewriter::Rewriter(Body& body) : body_(body), renumbered_(body.code.size(), -1) {
    code_.reserve(body.code.size() * 2);
    recomputed_.reserve(body.code.size() * 2);
}

std::int32_t Rewriter::keep(std::int32_t old_index) {
    const auto old = static_cast<std::size_t>(old_index);
    for (; next_cut_ < body_.cuts.size() && body_.cuts[next_cut_].at == old_index; ++next_cut_)
        body_.cuts[next_cut_].at = after_kept_;
    Instruction copy = body_.code[old];
    for (int i = 0; i < copy.waits; ++i) {
        Wait& w = copy.wait[static_cast<std::size_t>(i)];
        w.instruction = renumbered_[static_cast<std::size_t>(w.instruction)];
    }
    code_.push_back(copy);
    recomputed_.push_back(body_.recomputed[old]);
    after_kept_ = size();
    return renumbered_[old] = size() - 1;
}

std::int32_t Rewriter::insert(Instruction instruction) {
    code_.push_back(instruction);
    recomputed_.push_back(0);
    return size() - 1;
}

void Rewriter::finish() {
    for (; next_cut_ < body_.cuts.size(); ++next_cut_) body_.cuts[next_cut_].at = after_kept_;
    for (Hold& hold : body_.holds) hold.at = renumbered_[static_cast<std::size_t>(hold.at)];
    body_.code = std::move(code_);
    body_.recomputed = std::move(recomputed_);
}

namespace {

Instruction lifetime(InstructionKind kind, std::int32_t buffer, std::int32_t section) {
    Instruction i;
    i.kind = kind;
    i.section = section;
    i.add_operand(buffer);
    return i;
}

// A region's free gaps while tensors come and go. They are few, and in order.
class Gaps {
public:
    Bytes take(Bytes bytes) {
        const auto gap =
            std::find_if(gaps_.begin(), gaps_.end(), [&](const Gap& g) { return g.end - g.begin >= bytes.value; });
        if (gap == gaps_.end()) return extend(bytes);
        const Bytes offset{gap->begin};
        gap->begin += bytes.value;
        if (gap->begin == gap->end) gaps_.erase(gap);
        return offset;
    }

    void give(Bytes offset, Bytes bytes) {
        const Gap fresh{offset.value, offset.value + bytes.value};
        auto after = std::find_if(gaps_.begin(), gaps_.end(), [&](const Gap& g) { return g.begin >= fresh.begin; });
        FORETRAIN_CHECK(after == gaps_.end() || after->begin > fresh.begin, "freed twice");
        const bool joins_next = after != gaps_.end() && after->begin == fresh.end;
        const bool joins_last = after != gaps_.begin() && std::prev(after)->end == fresh.begin;
        if (joins_last && joins_next) {
            std::prev(after)->end = after->end;
            gaps_.erase(after);
        } else if (joins_last) {
            std::prev(after)->end = fresh.end;
        } else if (joins_next) {
            after->begin = fresh.begin;
        } else {
            gaps_.insert(after, fresh);
        }
    }

    Bytes end() const { return Bytes{end_}; }

private:
    struct Gap {
        std::int64_t begin = 0, end = 0;
    };

    Bytes extend(Bytes bytes) {
        std::int64_t offset = end_;
        if (!gaps_.empty() && gaps_.back().end == end_) {  // a gap at the end is only too short: grow it
            offset = gaps_.back().begin;
            gaps_.pop_back();
        }
        end_ = offset + bytes.value;
        return Bytes{offset};
    }

    std::vector<Gap> gaps_;
    std::int64_t end_ = 0;
};

// The instruction from whose end on the compute stream, and who waits for it, may reuse what instruction
// `use` reads or writes.
std::int32_t over(const std::vector<Instruction>& code, std::int32_t use) {
    const Stream stream = code[static_cast<std::size_t>(use)].stream;
    if (stream == Stream::compute) return use;
    for (std::size_t n = static_cast<std::size_t>(use) + 1; n < code.size(); ++n) {
        const Instruction& i = code[n];
        if (i.stream != Stream::compute) continue;
        for (std::size_t w = 0; w < i.waits; ++w)
            if (i.wait[w].stream == stream && i.wait[w].instruction >= use) return static_cast<std::int32_t>(n);
    }
    throw InternalError("the compute stream never waits for what another one does in a body");
}

// The buffers that begin, or end, at each instruction: lists in ascending order, if added in descending.
class BuffersAt {
public:
    BuffersAt(std::size_t instructions, std::size_t buffers) : first_(instructions, -1), after_(buffers, -1) {}
    void add(std::int32_t instruction, std::size_t buffer) {
        std::int32_t& first = first_[static_cast<std::size_t>(instruction)];
        after_[buffer] = first;
        first = static_cast<std::int32_t>(buffer);
    }
    std::int32_t first(std::int32_t instruction) const { return first_[static_cast<std::size_t>(instruction)]; }
    std::int32_t after(std::int32_t buffer) const { return after_[static_cast<std::size_t>(buffer)]; }

private:
    std::vector<std::int32_t> first_, after_;
};

// Where owned buffers begin, before an instruction, and end, after one.
struct Lifetimes {
    BuffersAt begins, ends;

    Lifetimes(const Body& body, bool slots_begin, bool slots_end)
        : begins(body.code.size(), body.buffers.size()), ends(body.code.size(), body.buffers.size()) {
        const std::size_t n = body.buffers.size();
        std::vector<std::int32_t> first(n, -1), last(n, -1);
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.code.size()); ++i) {
            const Instruction& instruction = body.code[static_cast<std::size_t>(i)];
            for (int o = 0; o < instruction.operands; ++o) {
                const auto b = static_cast<std::size_t>(instruction.operand[static_cast<std::size_t>(o)]);
                if (!body.buffers[b].owned) continue;
                if (first[b] < 0) first[b] = i;
                last[b] = i;
            }
        }
        for (const Hold& hold : body.holds) {
            const auto b = static_cast<std::size_t>(hold.buffer);
            first[b] = first[b] < 0 ? hold.at : std::min(first[b], hold.at);
            last[b] = std::max(last[b], hold.at);
        }
        for (std::size_t b = n; b-- > 0;) {
            if (first[b] < 0) continue;
            const bool slot = body.buffers[b].home == Home::slot;
            if (!slot || slots_begin) begins.add(first[b], b);
            if (!slot || slots_end) ends.add(over(body.code, last[b]), b);
        }
    }
};

Bytes aligned(Bytes bytes) { return Bytes{round_up(bytes.value, buffer_alignment)}; }

}  // namespace

std::vector<Life> life_by_cut(const Body& body) {
    const Lifetimes lifetimes(body, body.kind == InstructionKind::forward_chunk,
                              body.kind == InstructionKind::backward_chunk);
    const auto bytes = [&](std::int32_t b) { return body.buffers[static_cast<std::size_t>(b)].bytes(); };
    std::vector<Life> out(1);
    std::size_t cut = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.code.size()); ++i) {
        for (; cut < body.cuts.size() && body.cuts[cut].at == i; ++cut) out.emplace_back();
        Life& life = out.back();
        for (std::int32_t b = lifetimes.begins.first(i); b >= 0; b = lifetimes.begins.after(b)) life.net += bytes(b);
        life.peak = std::max(life.peak, life.net);
        for (std::int32_t b = lifetimes.ends.first(i); b >= 0; b = lifetimes.ends.after(b)) life.net -= bytes(b);
    }
    out.resize(body.cuts.size() + 1);
    return out;
}

void place_frees(Body& body, bool slots_begin, bool slots_end) {
    const Lifetimes lifetimes(body, slots_begin, slots_end);
    Rewriter rewriter(body);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.code.size()); ++i) {
        const std::int32_t section = body.code[static_cast<std::size_t>(i)].section;
        for (std::int32_t b = lifetimes.begins.first(i); b >= 0; b = lifetimes.begins.after(b))
            rewriter.insert(lifetime(InstructionKind::alloc, b, section));
        rewriter.keep(i);
        for (std::int32_t b = lifetimes.ends.first(i); b >= 0; b = lifetimes.ends.after(b))
            rewriter.insert(lifetime(InstructionKind::free, b, section));
    }
    rewriter.finish();
}

Life life_of(const std::vector<Life>& pieces, std::span<const std::int64_t> times) {
    Life out;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
        const std::int64_t n = p % 2 == 0 ? 1 : times[p / 2];
        const Bytes before_last = std::max(pieces[p].net * (n - 1), Bytes{});
        out.peak = std::max(out.peak, out.net + before_last + pieces[p].peak);
        out.net += pieces[p].net * n;
    }
    return out;
}

void place_transients(Body& body) {
    Gaps gaps;
    Bytes live;
    Bytes entry;  // what lives where the piece of code at hand begins
    body.life.assign(1, {});
    std::size_t repeat = 0;
    const auto begin_piece = [&](std::size_t i) {
        for (; repeat < 2 * body.repeats.size(); ++repeat) {
            const CodeRepeat& r = body.repeats[repeat / 2];
            if (static_cast<std::int32_t>(i) != (repeat % 2 == 0 ? r.begin : r.end)) return;
            body.life.back().net = live - entry;
            body.life.push_back({});
            entry = live;
        }
    };
    for (std::size_t i = 0; i < body.code.size(); ++i) {
        begin_piece(i);
        const Instruction& instruction = body.code[i];
        const bool begins = instruction.kind == InstructionKind::alloc;
        if (!begins && instruction.kind != InstructionKind::free) continue;
        BodyBuffer& buffer = body.buffers[static_cast<std::size_t>(instruction.operand[0])];
        const bool transient = buffer.home == Home::fixed && buffer.region == Region::transients;
        if (begins) {
            live += buffer.bytes();
            if (transient) buffer.offset = gaps.take(aligned(buffer.bytes()));
        } else {
            live -= buffer.bytes();
            if (transient) gaps.give(buffer.offset, aligned(buffer.bytes()));
        }
        body.life.back().peak = std::max(body.life.back().peak, live - entry);
    }
    begin_piece(body.code.size());
    body.life.back().net = live - entry;
    std::vector<std::int64_t> times;
    for (const CodeRepeat& r : body.repeats) times.push_back(r.times);
    const Life whole = life_of(body.life, times);
    body.live_peak = whole.peak;
    body.live_net = whole.net;
    body.transient_bytes = gaps.end();
}

}  // namespace foretrain
