#include "sim/body_cost.h"

#include <algorithm>
#include <variant>

#include "sim/durations.h"

namespace foretrain {

namespace {

using Clocks = std::array<std::int64_t, body_ports>;
constexpr std::size_t input_port = 3;

void join(Clocks& a, const Clocks& b) {
    for (std::size_t p = 0; p < body_ports; ++p) a[p] = std::max(a[p], b[p]);
}

void count_wire(BodyCost& out, const Instruction& i, const RankGrid& grid) {
    const Bytes bytes = wire_bytes(i, grid.size(i.axis), 0);
    if (bytes.value == 0) return;
    const std::string key = wire_key(i.axis, i.kind);
    for (auto& [known, sum] : out.wire)
        if (known == key) {
            sum += bytes;
            return;
        }
    out.wire.emplace_back(key, bytes);
}

// Attention over all pairs, or over all of a window: what the mask leaves and what it hides.
template <class Args>
Flops in_full(const Args& a, std::int64_t products) {
    const std::int64_t keys = a.window > 0 ? std::min(a.window, a.sequence) : a.sequence;
    return Flops{products * 2 * a.batch * a.heads * a.sequence * keys * a.head_dim};
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
    if (std::holds_alternative<AttentionForwardArgs>(args) || std::holds_alternative<AttentionBackwardArgs>(args))
        out.attention += time;
}

void count_work(BodyCost& out, const Instruction& i, const Stage& stage, bool again, Time time) {
    if (i.kind == InstructionKind::kernel) {
        const KernelArgs& args = stage.kernels[static_cast<std::size_t>(i.kernel)];
        if (std::holds_alternative<GemmArgs>(args)) out.gemm_flops += work(args).flops;
        if (const auto* a = std::get_if<AttentionForwardArgs>(&args)) out.attention_flops += in_full(*a, 2);
        if (const auto* a = std::get_if<AttentionBackwardArgs>(&args)) out.attention_flops += in_full(*a, 5);
    }
    out.busy[static_cast<std::size_t>(i.stream)] += time;
    if (i.stream != Stream::compute) return;
    if (i.axis == Axis::tensor)
        out.tensor += time;
    else if (again)
        out.recompute += time;
    else {
        out.kernels += time;
        count_kind(out, i, stage, time);
    }
}

}  // namespace

std::array<Time, body_streams> BodyCost::apply(const std::array<Time, body_ports>& entry) const {
    std::array<Time, body_streams> out{};
    for (std::size_t s = 0; s < body_streams; ++s) {
        std::int64_t latest = 0;
        for (std::size_t p = 0; p < body_ports; ++p)
            if (exit[s][p] != never) latest = std::max(latest, entry[p].value + exit[s][p]);
        out[s] = Time{latest};
    }
    return out;
}

namespace {

BodyCost body_cost(const Body& body, const Stage& stage, InstructionDurations& durations, const RankGrid& grid,
                   const CostModel& cost) {
    // A clock that no path from the port reaches; far below any sum of durations.
    constexpr std::int64_t unreached = std::int64_t{-1} << 61;
    BodyCost out;
    std::array<Clocks, body_streams> streams;
    for (std::size_t s = 0; s < body_streams; ++s) {
        streams[s].fill(unreached);
        streams[s][s] = 0;
    }
    std::vector<Clocks> done(body.code.size());
    for (std::size_t n = 0; n < body.code.size(); ++n) {
        const Instruction& i = body.code[n];
        Clocks& clock = streams[static_cast<std::size_t>(i.stream)];
        if (i.kind == InstructionKind::wait) clock[input_port] = std::max(clock[input_port], std::int64_t{0});
        for (int w = 0; w < i.waits; ++w)
            join(clock, done[static_cast<std::size_t>(i.wait[static_cast<std::size_t>(w)].instruction)]);
        const Time time = durations.of(i, cost);
        for (std::int64_t& c : clock) c += time.value;
        done[n] = clock;
        count_work(out, i, stage, body.recomputed[n] != 0, time);
        count_wire(out, i, grid);
    }
    for (std::size_t s = 0; s < body_streams; ++s)
        for (std::size_t p = 0; p < body_ports; ++p)
            out.exit[s][p] = streams[s][p] < 0 ? BodyCost::never : streams[s][p];
    return out;
}

}  // namespace

std::vector<BodyCost> body_costs(const Stage& stage, std::int64_t stage_number, const RankGrid& grid,
                                 const CostModel& cost) {
    InstructionDurations durations;
    durations.begin_stage(stage.kernels, stage_number, 1);
    std::vector<BodyCost> out;
    for (const Body& body : stage.bodies) out.push_back(body_cost(body, stage, durations, grid, cost));
    return out;
}

}  // namespace foretrain
