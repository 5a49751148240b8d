#include "sim/body_cost.h"

#include <algorithm>
#include <variant>

#include "base/index.h"
#include "sim/durations.h"

namespace foretrain {

namespace {

using Clocks = std::array<std::int64_t, body_ports>;

void join(Clocks& a, const Clocks& b) {
    for (std::size_t p = 0; p < body_ports; ++p) a[p] = std::max(a[p], b[p]);
}

void count_wire(BodyCost& out, const Instruction& i, const RankGrid& grid, std::int64_t times) {
    const Bytes bytes = wire_bytes(i, grid.size(i.axis), 0) * times;
    if (bytes.value == 0) return;
    const std::string key = wire_key(i.axis, i.kind);
    for (auto& [known, sum] : out.wire)
        if (known == key) {
            sum += bytes;
            return;
        }
    out.wire.emplace_back(key, bytes);
}

// Attention over all pairs, or over all of a window: what the mask leaves and what it hides. `width`: of all
// products together.
template <class Args>
Flops in_full(const Args& a, std::int64_t width) {
    const std::int64_t keys = a.window > 0 ? std::min(a.window, a.sequence) : a.sequence;
    return Flops{2 * a.batch * a.heads * a.sequence * keys * width};
}

// What the kernel is for: the head with its loss is told apart whatever runs in it.
void count_kind(BodyCost& out, const Instruction& i, const Stage& stage, Time time) {
    if (i.section >= 0 && stage.sections[static_cast<std::size_t>(i.section)].what == "head") {
        out.head += time;
        return;
    }
    if (i.kind != InstructionKind::kernel) return;
    const KernelArgs& args = stage.kernels[static_cast<std::size_t>(i.kernel)];
    if (std::holds_alternative<GemmArgs>(args)) out.gemm += time;
    if (std::holds_alternative<AttentionForwardArgs>(args) || std::holds_alternative<AttentionBackwardArgs>(args) ||
        std::holds_alternative<RingAttentionArgs>(args))
        out.attention += time;
}

bool is_message_stall(const Instruction& i) {
    return i.kind == InstructionKind::stall && stall_for(i) == StallFor::message;
}

void count_work(BodyCost& out, const Instruction& i, const Stage& stage, bool again, Time once, std::int64_t times) {
    const Time time = once * times;
    if (i.kind == InstructionKind::kernel) {
        const KernelArgs& args = stage.kernels[static_cast<std::size_t>(i.kernel)];
        if (std::holds_alternative<GemmArgs>(args)) out.gemm_flops += work(args).flops * times;
        if (const auto* a = std::get_if<AttentionForwardArgs>(&args))
            out.attention_flops += in_full(*a, a->head_dim + a->value_dim()) * times;
        if (const auto* a = std::get_if<AttentionBackwardArgs>(&args))
            out.attention_flops += in_full(*a, 3 * a->head_dim + 2 * a->value_dim()) * times;
        if (std::holds_alternative<RingAttentionArgs>(args)) out.attention_flops += work(args).flops * (2 * times);
    }
    out.busy[static_cast<std::size_t>(i.stream)] += time;
    if (i.stream != Stream::compute) return;
    if (i.kind == InstructionKind::stall) {
        switch (stall_for(i)) {
            case StallFor::message: out.messages += time; break;
            case StallFor::pause: out.overhead += time; break;
            case StallFor::beside: break;  // what others take of computing is theirs: account_body in sim/timeline.cpp
        }
        return;
    }
    if (i.axis == Axis::tensor)
        out.tensor += time;
    else if (i.axis == Axis::context)
        out.context += time;
    else if (i.axis == Axis::expert || i.axis == Axis::expert_tensor)
        out.expert += time;
    else if (again)
        out.recompute += time;
    else {
        out.kernels += time;
        count_kind(out, i, stage, time);
    }
}

}  // namespace

Time latest(const std::array<std::int64_t, body_ports>& way, const std::array<Time, body_ports>& entry) {
    Time out;
    for (std::size_t p = 0; p < body_ports; ++p)
        if (way[p] != BodyCost::never) out = std::max(out, entry[p] + Time{way[p]});
    return out;
}

std::array<Time, body_streams> BodyCost::apply(const std::array<Time, body_ports>& entry) const {
    std::array<Time, body_streams> out{};
    for (std::size_t s = 0; s < body_streams; ++s) out[s] = latest(exit[s], entry);
    return out;
}

namespace {

// Runs a body on symbolic clocks: one for each stream, as a function of the ports at the entry.
class SymbolicRun {
public:
    SymbolicRun(const Body& body, const std::vector<Time>& times) : body_(body), times_(times), done_(times.size()) {
        for (std::size_t s = 0; s < body_streams; ++s) {
            streams_[s].fill(unreached);
            streams_[s][s] = 0;
        }
    }

    Ways run() {
        auto repeat = body_.repeats.begin();
        for (std::size_t i = 0; i < body_.code.size(); ++i) {
            step(i);
            if (repeat == body_.repeats.end() || i + 1 != at(repeat->end)) continue;
            for (std::int64_t n = 1; n < repeat->times; ++n) again(*repeat);
            ++repeat;
        }
        for (Clocks& clock : streams_)
            for (std::int64_t& c : clock)
                if (c < 0) c = BodyCost::never;
        return streams_;
    }

private:
    // A clock that no path from the port reaches; far below any sum of durations.
    static constexpr std::int64_t unreached = std::int64_t{-1} << 61;
    void step(std::size_t n) {
        const Instruction& i = body_.code[n];
        Clocks& clock = streams_[static_cast<std::size_t>(i.stream)];
        if (i.kind == InstructionKind::wait) clock[input_port] = std::max(clock[input_port], std::int64_t{0});
        for (int w = 0; w < i.waits; ++w) join(clock, done_[at(i.wait[at(w)].instruction)]);
        for (std::int64_t& c : clock) c += times_[n].value;
        done_[n] = clock;
    }

    // The code once more: what stood one and two times back now stands where its waits look.
    void again(const CodeRepeat& r) {
        const auto begin = done_.begin() + r.begin, end = done_.begin() + r.end;
        const std::int32_t back = std::min(r.begin, 2 * (r.end - r.begin));
        std::copy(end - back, end, begin - back);
        for (std::int32_t i = r.begin; i < r.end; ++i) step(at(i));
    }

    const Body& body_;
    const std::vector<Time>& times_;
    Ways streams_{};
    std::vector<Clocks> done_;
};

BodyCost body_cost(const Body& body, const Stage& stage, InstructionDurations& durations, const RankGrid& grid,
                   const CostModel& cost) {
    BodyCost out;
    std::vector<Time> times(body.code.size());
    for (std::size_t n = 0; n < times.size(); ++n) times[n] = durations.of(body.code[n], cost);
    out.exit = ways_through(body, times);
    auto repeat = body.repeats.begin();
    for (std::size_t n = 0; n < body.code.size(); ++n) {
        const auto at = static_cast<std::int32_t>(n);
        while (repeat != body.repeats.end() && at >= repeat->end) ++repeat;
        const std::int64_t often = repeat != body.repeats.end() && at >= repeat->begin ? repeat->times : 1;
        count_work(out, body.code[n], stage, body.recomputed[n] != 0, times[n], often);
        count_wire(out, body.code[n], grid, often);
    }
    out.exit_without_messages = out.exit;
    if (out.messages > Time{}) {
        std::vector<Time> others = times;
        for (std::size_t n = 0; n < times.size(); ++n)
            if (is_message_stall(body.code[n])) others[n] = Time{};
        out.exit_without_messages = ways_through(body, others);
    }
    const auto exit_without = [&](Stream stream, const std::array<std::int64_t, body_ports>& as_before) {
        if (out.busy[static_cast<std::size_t>(stream)] == Time{0}) return as_before;
        for (std::size_t n = 0; n < times.size(); ++n)
            if (body.code[n].stream == stream) times[n] = Time{0};
        return ways_through(body, times)[0];
    };
    out.exit_without_host = exit_without(Stream::host, out.exit[0]);
    out.exit_without_either = exit_without(Stream::context, out.exit_without_host);
    return out;
}

}  // namespace

Ways ways_through(const Body& body, const std::vector<Time>& times) { return SymbolicRun(body, times).run(); }

std::vector<BodyCost> body_costs(const Stage& stage, std::int64_t stage_number, const RankGrid& grid,
                                 const CostModel& cost) {
    InstructionDurations durations;
    durations.begin_stage(stage.kernels, stage_number, 1);
    std::vector<BodyCost> out;
    for (const Body& body : stage.bodies) out.push_back(body_cost(body, stage, durations, grid, cost));
    return out;
}

}  // namespace foretrain
