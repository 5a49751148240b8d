// Rules that look at one line at a time: every index is in range, every size fits.
#include <fmt/format.h>

#include <algorithm>

#include "plan/program/access.h"
#include "plan/program/verify_rules.h"

namespace foretrain::verify_rules {

namespace {

using Kind = InstructionKind;

constexpr std::int64_t most_elements = std::int64_t{1} << 52;  // their bytes, and sums of two, fit 64 bits
constexpr std::int64_t most_ranks = std::int64_t{1} << 40;

template <class Index, class Table>
bool within(Index index, const Table& table) {
    return index >= 0 && static_cast<std::size_t>(index) < table.size();
}

template <class Enum>
bool known(Enum value, Enum last) {
    return value <= last;
}

// offset + (size - 1) stride + bytes, or nothing where that does not fit.
std::optional<std::int64_t> span_end(const Buffer& b, const RankGrid& grid) {
    std::int64_t shift = 0, end = 0;
    if (__builtin_mul_overflow(b.stride.value, grid.size(b.axis) - 1, &shift)) return std::nullopt;
    if (__builtin_add_overflow(b.offset.value, b.bytes().value, &end)) return std::nullopt;
    if (__builtin_add_overflow(end, shift, &end)) return std::nullopt;
    return end;
}

class TableRules {
public:
    TableRules(const Program& program, const StageProgram& stage) : p_(program), s_(stage) {}

    std::string broken() const {
        for (const auto rule : {&TableRules::regions, &TableRules::buffers, &TableRules::units})
            if (std::string text = (this->*rule)(); !text.empty()) return text;
        return {};
    }

private:
    std::string regions() const {
        std::int64_t end = 0;
        for (std::size_t r = 0; r < region_count; ++r) {
            const std::int64_t base = s_.region_base[r].value, bytes = s_.region_bytes[r].value;
            if (bytes == 0) continue;
            if (base < end || bytes < 0 || bytes > 8 * most_elements || base > 8 * most_elements)
                return fmt::format("region {} at {} of {} bytes overlaps the one before it, which ends at {}",
                                   name_of(static_cast<Region>(r)), base, bytes, end);
            end = base + bytes;
        }
        return {};
    }

    std::string buffers() const {
        for (std::size_t i = 0; i < s_.buffers.size(); ++i) {
            const Buffer& b = s_.buffers[i];
            if (!known(b.region, Region::communication) || !known(b.type, DType::int32) ||
                !known(b.axis, Axis::expert_replica))
                return fmt::format("b{}: region, type or axis out of range", i);
            if (b.elements < 0 || b.elements > most_elements || b.offset.value < 0 || b.stride.value < 0)
                return fmt::format("b{} {}: elements, offset or stride out of range", i, b.name);
            const std::int64_t room = s_.region_bytes[static_cast<std::size_t>(b.region)].value;
            const auto end = span_end(b, p_.grid);
            if (!end || *end > room)
                return fmt::format("b{} {} reaches beyond region {} of {} bytes", i, b.name, name_of(b.region), room);
        }
        if (s_.loss != -1 && !within(s_.loss, s_.buffers)) return fmt::format("loss: there is no buffer {}", s_.loss);
        return {};
    }

    std::string units() const {
        for (const Unit& u : s_.units) {
            for (std::int32_t b :
                 {u.weight, u.weight_shard, u.gradient, u.gradient_shard, u.momentum, u.variance, u.master})
                if (b != -1 && !within(b, s_.buffers)) return fmt::format("unit {}: there is no buffer {}", u.name, b);
            if (u.tied_to != -1 && !within(u.tied_to, s_.units))
                return fmt::format("unit {}: there is no unit {}", u.name, u.tied_to);
        }
        for (const Parameter& p : s_.parameters)
            if (!within(p.unit, s_.units)) return fmt::format("parameter {}: there is no unit {}", p.name, p.unit);
        return {};
    }

    const Program& p_;
    const StageProgram& s_;
};

// What one instruction breaks, as rule and text.
class InstructionRules {
public:
    InstructionRules(const Program& program, const StageProgram& stage, std::int32_t id)
        : p_(program), s_(stage), id_(id), i_(stage.instructions[static_cast<std::size_t>(id)]) {}

    Verdict broken() {
        fields() && indices() && waits() && kernel() && transfers() && added() && last();
        if (text_.empty()) return std::nullopt;
        return Failure{s_.stage, id_, rule_, text_};
    }

private:
    bool fail(std::string rule, std::string text) {
        rule_ = std::move(rule);
        text_ = std::move(text);
        return false;
    }

    const Buffer& buffer(int o) const {
        return s_.buffers[static_cast<std::size_t>(i_.operand[static_cast<std::size_t>(o)])];
    }

    bool fields() {
        if (!is_known(i_.kind) || !known(i_.stream, Stream::recv_next) || !known(i_.axis, Axis::expert_replica) ||
            !known(i_.reduction, Reduction::maximum) || !known(i_.type, DType::int32) || !is_known(i_.like))
            return fail("index", "kind, stream, axis, reduction or type is out of range");
        if (i_.operands > Instruction::max_operands || i_.waits > Instruction::max_waits)
            return fail("index", "more operands or waits than an instruction has");
        return true;
    }

    bool indices() {
        if (i_.section != -1 && !within(i_.section, s_.sections))
            return fail("index", fmt::format("there is no section {}", i_.section));
        if (names_body(i_.kind) != within(i_.body, s_.bodies) || (i_.body != -1 && !names_body(i_.kind)))
            return fail("index",
                        fmt::format("body {} of {}: chunk passes name one, others do not", i_.body, s_.bodies.size()));
        if ((i_.kind == Kind::kernel) != within(i_.kernel, s_.kernels) || (i_.kernel != -1 && i_.kind != Kind::kernel))
            return fail("index",
                        fmt::format("kernel {} of {}: kernels name one, others do not", i_.kernel, s_.kernels.size()));
        if (i_.microbatch < -1 || i_.microbatch >= p_.microbatches)
            return fail("index", fmt::format("microbatch {} of {}", i_.microbatch, p_.microbatches));
        for (int o = 0; o < i_.operands; ++o)
            if (const std::int32_t b = i_.operand[static_cast<std::size_t>(o)]; !within(b, s_.buffers))
                return fail("index", fmt::format("operand {} is buffer {} of {}", o, b, s_.buffers.size()));
        const auto taken = operands_taken(i_, s_);
        if (taken && *taken != i_.operands)
            return fail("index", fmt::format("{} operands, of which it takes {}", i_.operands, *taken));
        return true;
    }

    bool waits() {
        for (int w = 0; w < i_.waits; ++w) {
            const Wait wait = i_.wait[static_cast<std::size_t>(w)];
            if (wait.instruction < 0 || wait.instruction >= id_)
                return fail("index",
                            fmt::format("it waits for %{}, which is no earlier instruction", wait.instruction));
            if (!known(wait.stream, Stream::recv_next) ||
                !occupies(s_.instructions[static_cast<std::size_t>(wait.instruction)], wait.stream))
                return fail("index",
                            fmt::format("it waits for %{} on a stream where that does not run", wait.instruction));
        }
        return true;
    }

    // The tensors that a kernel expects are those that it gets.
    bool kernel() {
        if (i_.kind != Kind::kernel) return true;
        const KernelArgs& args = s_.kernels[static_cast<std::size_t>(i_.kernel)];
        for (int o = 0; o < i_.operands; ++o) {
            const Buffer& b = buffer(o);
            const std::int64_t elements = operand_elements(args, o);
            const DType type = operand_type(args, o);
            if (b.elements != elements || b.type != type)
                return fail("size", fmt::format("operand {} ({}) is {} x {}, the kernel takes {} x {}", o, b.name,
                                                b.elements, name_of(b.type), elements, name_of(type)));
        }
        return true;
    }

    bool transfers() {
        if (is_message(i_.kind)) return message();
        if (is_collective(i_.kind)) return collective();
        if (i_.kind == Kind::copy && (buffer(0).elements != buffer(1).elements || buffer(0).type != buffer(1).type))
            return fail("size", "it copies between buffers of different size or type");
        if (i_.kind == Kind::load_batch && (buffer(0).type != DType::int32 || buffer(1).type != DType::int32))
            return fail("size", "it loads tokens, which are int32, into another type");
        if (i_.kind == Kind::fill && i_.count > buffer(0).elements)
            return fail("size", fmt::format("it clears {} of {} elements", i_.count, buffer(0).elements));
        return true;
    }

    // What a framework adds is a time, of this or of a collective that could stand here.
    bool added() {
        constexpr std::int64_t longest = 1'000'000'000'000'000;  // picoseconds: a quarter of an hour
        if (i_.share < 0 || (i_.share != Instruction::whole && !is_collective(i_.kind) && i_.kind != Kind::stall))
            return fail("added",
                        fmt::format("a share of {} per mille: of a collective, or of what one takes", i_.share));
        if (i_.like != Kind::kernel && (i_.kind != Kind::stall || !is_collective(i_.like)))
            return fail("added", fmt::format("like {}: only a stall is like another, a collective", name_of(i_.like)));
        if (!is_added(i_.kind)) return true;
        if ((i_.stream == Stream::host) != (i_.kind == Kind::launch) ||
            (i_.kind == Kind::stall && i_.stream != Stream::compute))
            return fail("added", "a launch is on the host's stream, a stall on the compute stream");
        if (i_.count < 0 || i_.count > (i_.like == Kind::kernel ? longest : most_elements))
            return fail("added", fmt::format("count {} is out of range", i_.count));
        return true;
    }

    bool message() {
        // Chunks may go around: the last stage's next is the first.
        const auto stages = static_cast<std::int32_t>(p_.stages.size());
        const bool next = stages > 1 && i_.peer == (s_.stage + 1) % stages;
        const bool previous = stages > 1 && i_.peer == (s_.stage + stages - 1) % stages;
        if (!next && !previous) return fail("index", fmt::format("peer {} is no neighbour of the stage", i_.peer));
        const bool sends = i_.kind == Kind::send;
        const Stream to_next = sends ? Stream::send_next : Stream::recv_next;
        const Stream to_previous = sends ? Stream::send_prev : Stream::recv_prev;
        if (!(next && i_.stream == to_next) && !(previous && i_.stream == to_previous))
            return fail("index",
                        fmt::format("messages of its kind and peer have the stream {}",
                                    next && previous ? fmt::format("{} or {}", name_of(to_next), name_of(to_previous))
                                                     : name_of(next ? to_next : to_previous)));
        return fits(0, i_.count, false);
    }

    bool collective() {
        const bool at_an_end = s_.stage == 0 || static_cast<std::size_t>(s_.stage) + 1 == p_.stages.size();
        if (i_.axis == Axis::none || i_.axis == Axis::pipeline || (i_.axis == Axis::embedding && !at_an_end))
            return fail("index", fmt::format("there is no group along {} here", name_of(i_.axis)));
        if (i_.kind == Kind::all_reduce) return fits(0, i_.count, false);
        const int part = i_.kind == Kind::all_gather ? 0 : 1;
        const std::int64_t size = p_.grid.size(i_.axis);
        if (i_.count < 1 || i_.count > most_elements / size)
            return fail("size", fmt::format("count {} is out of range", i_.count));
        if (i_.kind == Kind::all_to_all || i_.kind == Kind::ring_shift) {
            const std::int64_t elements = i_.kind == Kind::all_to_all ? i_.count * size : i_.count;
            return fits(0, elements, true) && fits(1, elements, true) && apart();
        }
        return fits(part, i_.count, true) && fits(1 - part, i_.count * size, true) && in_place(part);
    }

    bool fits(int operand, std::int64_t elements, bool exactly) {
        const Buffer& b = buffer(operand);
        const bool right = exactly ? elements == b.elements : elements <= b.elements;
        if (!right || elements < 1)
            return fail("size", fmt::format("operand {} ({}) has {} elements, of which it moves {}", operand, b.name,
                                            b.elements, elements));
        if (b.type != i_.type)
            return fail("size", fmt::format("operand {} ({}) is {}, the elements moved are {}", operand, b.name,
                                            name_of(b.type), name_of(i_.type)));
        return true;
    }

    bool overlap(const Buffer& a, const Buffer& b) const {
        return a.region == b.region && a.offset.value < *span_end(b, p_.grid) && b.offset.value < *span_end(a, p_.grid);
    }

    // What others send arrives while this rank's own is still being read.
    bool apart() {
        const Buffer &from = buffer(0), &to = buffer(1);
        if (!overlap(from, to)) return true;
        return fail("size", fmt::format("{}, which it sends, overlaps {}, where it receives", from.name, to.name));
    }

    // Where part and whole share addresses, the part is this rank's own place in the whole.
    bool in_place(int part_operand) {
        const Buffer& part = buffer(part_operand);
        const Buffer& whole = buffer(1 - part_operand);
        if (!overlap(part, whole)) return true;
        if (part.axis == i_.axis && part.offset == whole.offset && part.stride == part.bytes()) return true;
        return fail("size", fmt::format("{} overlaps {} but is not this rank's part of it", part.name, whole.name));
    }

    bool last() {
        const bool is_last = static_cast<std::size_t>(id_) + 1 == s_.instructions.size();
        if ((i_.kind == Kind::step_end) == is_last) return true;
        return fail("end", "a stage's instructions end with its only step_end");
    }

    const Program& p_;
    const StageProgram& s_;
    std::int32_t id_;
    const Instruction& i_;
    std::string rule_, text_;
};

}  // namespace

bool occupies(const Instruction& i, Stream stream) {
    if (!names_body(i.kind)) return i.stream == stream;
    return static_cast<std::size_t>(stream) < body_streams;
}

Verdict check_tables(const Program& program) {
    const RankGrid& g = program.grid;
    for (std::int64_t n : {g.tensor, g.context, g.data, g.pipeline})
        if (n < 1 || n > most_ranks) return Failure{-1, -1, "index", fmt::format("the grid has a side of {} ranks", n)};
    std::int64_t world = g.tensor;
    for (const std::int64_t n : {g.context, g.data, g.pipeline})
        if (__builtin_mul_overflow(world, n, &world))
            return Failure{-1, -1, "index", "the grid has more ranks than 64 bits count"};
    if (g.shard < 0 || (g.shard > 0 && g.size(Axis::replica) % g.shard != 0))
        return Failure{
            -1, -1, "index",
            fmt::format("groups of {} do not make up the grid's {} replicas", g.shard, g.size(Axis::replica))};
    std::int64_t experts = 0;
    for (const std::int64_t n : {g.expert, g.expert_tensor})
        if (n < 1 || n > most_ranks) return Failure{-1, -1, "index", fmt::format("{} ranks share out experts", n)};
    if (__builtin_mul_overflow(g.expert, g.expert_tensor, &experts) || g.stride(Axis::pipeline) % experts != 0)
        return Failure{-1, -1, "index",
                       fmt::format("{} x {} ranks that share out experts do not make up a stage's {}", g.expert,
                                   g.expert_tensor, g.stride(Axis::pipeline))};
    if (program.stages.size() != static_cast<std::size_t>(g.pipeline))
        return Failure{-1, -1, "index",
                       fmt::format("{} stages stand in a grid of {}", program.stages.size(), g.pipeline)};
    for (std::size_t i = 0; i < program.stages.size(); ++i) {
        const StageProgram& stage = program.stages[i];
        const auto number = static_cast<std::int32_t>(i);
        if (stage.stage != number)
            return Failure{number, -1, "index", fmt::format("it calls itself stage {}", stage.stage)};
        if (std::string text = TableRules(program, stage).broken(); !text.empty())
            return Failure{number, -1, "region", std::move(text)};
        if (stage.instructions.empty()) return Failure{number, -1, "end", "it has no step_end"};
    }
    return std::nullopt;
}

Verdict check_instructions(const Program& program) {
    for (const StageProgram& stage : program.stages)
        for (std::size_t id = 0; id < stage.instructions.size(); ++id)
            if (Verdict wrong = InstructionRules(program, stage, static_cast<std::int32_t>(id)).broken()) return wrong;
    return std::nullopt;
}

}  // namespace foretrain::verify_rules
