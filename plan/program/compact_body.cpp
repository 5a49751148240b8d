#include "plan/program/compact_body.h"

#include <algorithm>
#include <array>

#include "base/index.h"
#include "plan/program/body_passes.h"

namespace foretrain {

namespace {

// Where a merged instruction must begin, and where it must end.
struct Breaks {
    std::vector<std::uint8_t> before, after;

    Breaks(const Stage& stage, const Body& body) : before(body.code.size()), after(body.code.size()) {
        for (std::size_t i = 0; i < body.code.size(); ++i) {
            const Instruction& instruction = body.code[i];
            if (instruction.kind == InstructionKind::wait) before[i] = after[i] = 1;
            for (int w = 0; w < instruction.waits; ++w) {
                const std::int32_t other = instruction.wait[at(w)].instruction;
                if (body.code[at(other)].stream == instruction.stream) continue;
                before[i] = 1;
                after[at(other)] = 1;
            }
        }
        for (const UnitUse& use : weight_uses(stage, body)) before[at(use.first)] = after[at(use.last)] = 1;
        for (const UnitUse& use : gradient_uses(body)) before[at(use.first)] = after[at(use.last)] = 1;
    }
};

class Compactor {
public:
    Compactor(const Stage& stage, const Body& body) : body_(body), breaks_(stage, body) {
        out_.merged.assign(body.code.size(), -1);
        open_.fill(-1);
        out_.body.name = body.name;
        out_.body.kind = body.kind;
    }

    CompactBody run() {
        std::size_t cut = 0;
        for (std::size_t i = 0; i < body_.code.size(); ++i) {
            for (; cut < body_.cuts.size() && at(body_.cuts[cut].at) <= i; ++cut) {
                add_cut(body_.cuts[cut].layer);
                open_.fill(-1);  // what is after it belongs to another layer, on every stream
            }
            const Instruction& instruction = body_.code[i];
            if (instruction.kind == InstructionKind::alloc || instruction.kind == InstructionKind::free) continue;
            std::int32_t& open = open_[at(static_cast<std::int64_t>(instruction.stream))];
            if (breaks_.before[i] != 0) open = -1;
            if (open < 0) open = begin(instruction);
            out_.merged[i] = open;
            add_units(instruction, out_.body.code[at(open)]);
            if (breaks_.after[i] != 0) open = -1;
        }
        for (; cut < body_.cuts.size(); ++cut) add_cut(body_.cuts[cut].layer);
        return std::move(out_);
    }

private:
    void add_cut(std::int32_t layer) {
        out_.body.cuts.push_back({static_cast<std::int32_t>(out_.body.code.size()), layer});
    }

    std::int32_t begin(const Instruction& first) {
        Instruction merged;
        merged.kind = first.kind == InstructionKind::wait ? InstructionKind::wait : InstructionKind::kernel;
        merged.stream = first.stream;
        merged.body = static_cast<std::int32_t>(out_.body.code.size());
        for (int w = 0; w < first.waits; ++w) {
            const Wait& wait = first.wait[at(w)];
            if (body_.code[at(wait.instruction)].stream != first.stream)
                merged.add_wait({out_.merged[at(wait.instruction)], wait.stream});
        }
        out_.body.code.push_back(merged);
        out_.body.recomputed.push_back(0);
        return static_cast<std::int32_t>(out_.body.code.size()) - 1;
    }

    // One operand for each unit whose weights or gradients are used.
    void add_units(const Instruction& from, Instruction& to) {
        for (int o = 0; o < from.operands; ++o) {
            const BodyBuffer& b = body_.buffers[at(from.operand[at(o)])];
            if (b.home != Home::unit_weight && b.home != Home::unit_gradient) continue;
            const auto known = std::any_of(to.operand.begin(), to.operand.begin() + to.operands, [&](std::int32_t x) {
                const BodyBuffer& y = out_.body.buffers[at(x)];
                return y.home == b.home && y.unit == b.unit;
            });
            if (known) continue;
            to.add_operand(static_cast<std::int32_t>(out_.body.buffers.size()));
            out_.body.buffers.push_back(b);
        }
    }

    const Body& body_;
    Breaks breaks_;
    std::array<std::int32_t, stream_count> open_;  // by stream: the merged one that goes on, or -1
    CompactBody out_;
};

}  // namespace

CompactBody compact(const Stage& stage, const Body& body) { return Compactor(stage, body).run(); }

}  // namespace foretrain
