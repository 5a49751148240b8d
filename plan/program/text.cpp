#include "plan/program/text.h"

#include <fmt/format.h>

#include "plan/program/access.h"
#include "plan/program/text_format.h"

namespace foretrain {

namespace {

using namespace text_format;

template <class Value>
void put(std::string& out, std::string_view name, const Value& value, const Value& left_out) {
    if (value != left_out) out += fmt::format(" {}={}", name, value);
}

void put(std::string& out, std::string_view name, Bytes value) { put(out, name, value.value, std::int64_t{0}); }

class StageWriter {
public:
    explicit StageWriter(const StageProgram& stage) : s_(stage) {
        for (const Buffer& b : s_.buffers) buffers_.add(b.name);
        for (const std::string& name : s_.sections) sections_.add(name);
        for (const std::string& name : s_.bodies) bodies_.add(name);
    }

    void write(std::string& out) const {
        out += fmt::format("\nstage {}\n", s_.stage);
        regions(out);
        for (std::size_t i = 0; i < s_.kernels.size(); ++i)
            out += fmt::format("kernel k{} {}\n", i, foretrain::to_text(s_.kernels[i]));
        table(out, "section s", s_.sections);
        table(out, "body y", s_.bodies);
        for (std::size_t i = 0; i < s_.buffers.size(); ++i) buffer(out, i);
        for (std::size_t i = 0; i < s_.units.size(); ++i) unit(out, i);
        for (const Parameter& p : s_.parameters) parameter(out, p);
        if (s_.loss != -1) out += fmt::format("loss buffer={}\n", buffers_.reference(s_.loss));
        for (std::size_t i = 0; i < s_.instructions.size(); ++i)
            out += fmt::format("%{} {}\n", i, line(s_.instructions[i]));
    }

    std::string line(const Instruction& i) const {
        std::string out(name_of(i.kind));
        subject(out, i);
        if (i.stream != Stream::compute) out += fmt::format(" stream={}", name_of(i.stream));
        if (i.axis != Axis::none) out += fmt::format(" axis={}", name_of(i.axis));
        if (i.reduction != Reduction::sum) out += " reduction=maximum";
        if (i.like != InstructionKind::kernel) out += fmt::format(" like={}", name_of(i.like));
        put(out, "share", i.share, Instruction::whole);
        put(out, "count", i.count, std::int64_t{0});
        if (i.type != DType::fp32) out += fmt::format(" type={}", name_of(i.type));
        put(out, "peer", i.peer, -1);
        put(out, "chunk", i.chunk, std::int16_t{0});
        put(out, "mb", i.microbatch, -1);
        if (i.section != -1) out += fmt::format(" at={}", sections_.reference(i.section));
        operands(out, i);
        for (int w = 0; w < used(i.waits, Instruction::max_waits); ++w) {
            const Wait& wait = i.wait[static_cast<std::size_t>(w)];
            out += fmt::format("{}%{}.{}", w == 0 ? " waits=" : ",", wait.instruction, name_of(wait.stream));
        }
        return out;
    }

private:
    static int used(std::uint8_t count, int most) { return count < most ? count : most; }

    void regions(std::string& out) const {
        for (std::size_t r = 0; r < region_count; ++r) {
            if (s_.region_bytes[r] == Bytes{} && s_.region_base[r] == Bytes{}) continue;
            out += fmt::format("region {}", name_of(static_cast<Region>(r)));
            put(out, "base", s_.region_base[r]);
            put(out, "bytes", s_.region_bytes[r]);
            out += '\n';
        }
    }

    static void table(std::string& out, std::string_view what, const std::vector<std::string>& names) {
        for (std::size_t i = 0; i < names.size(); ++i) out += fmt::format("{}{} {}\n", what, i, quoted(names[i]));
    }

    void buffer(std::string& out, std::size_t i) const {
        const Buffer& b = s_.buffers[i];
        out += fmt::format("buffer b{} {} region={} type={} elements={}", i, quoted(b.name), name_of(b.region),
                           name_of(b.type), b.elements);
        put(out, "offset", b.offset);
        if (b.axis != Axis::none) out += fmt::format(" axis={}", name_of(b.axis));
        put(out, "stride", b.stride);
        out += '\n';
    }

    void unit(std::string& out, std::size_t i) const {
        const Unit& u = s_.units[i];
        out += fmt::format("unit u{} {} elements={}", i, quoted(u.name), u.elements);
        for (const UnitField& f : unit_fields)
            if (u.*f.member != -1) out += fmt::format(" {}={}", f.name, buffers_.reference(u.*f.member));
        put(out, "tied_to", u.tied_to, -1);
        out += '\n';
    }

    static void parameter(std::string& out, const Parameter& p) {
        out += fmt::format("parameter {} unit={}", quoted(p.name), p.unit);
        put(out, "offset", p.unit_offset, std::int64_t{0});
        put(out, "outer", p.outer, std::int64_t{1});
        put(out, "sharded", p.sharded, std::int64_t{1});
        put(out, "inner", p.inner, std::int64_t{1});
        if (p.replicated) out += " replicated=true";
        const auto init = static_cast<std::size_t>(p.init);
        if (p.init < 0 || init >= init_names.size())
            out += fmt::format(" init={}", static_cast<int>(p.init));
        else if (p.init != 0)
            out += fmt::format(" init={}", init_names[init]);
        put(out, "init_std", p.init_std, 0.0);
        out += '\n';
    }

    // What it runs: a kernel by its kind and number, or a body.
    void subject(std::string& out, const Instruction& i) const {
        if (has_kernel(i, s_))
            out += fmt::format(" {}.k{}", name_of(kind_of(s_.kernels[static_cast<std::size_t>(i.kernel)])), i.kernel);
        else
            put(out, "kernel", i.kernel, -1);
        if (i.body != -1) out += fmt::format(" body={}", bodies_.reference(i.body));
    }

    void list(std::string& out, std::string_view name, const Instruction& i, std::optional<Access> only) const {
        bool begun = false;
        for (int o = 0; o < used(i.operands, Instruction::max_operands); ++o) {
            if (only && access_of(i, s_, o) != only) continue;
            out += begun ? "," : fmt::format(" {}=", name);
            out += buffers_.reference(i.operand[static_cast<std::size_t>(o)]);
            begun = true;
        }
    }

    // By access where that says all: the parser puts them back in the order of the kind's operands.
    void operands(std::string& out, const Instruction& i) const {
        const bool known = i.kind != InstructionKind::kernel || has_kernel(i, s_);
        const bool touches = known && i.operands > 0 && operands_taken(i, s_) == i.operands && access_of(i, s_, 0);
        if (!touches) return list(out, "operands", i, std::nullopt);
        list(out, "reads", i, Access::read);
        list(out, "updates", i, Access::update);
        list(out, "writes", i, Access::write);
    }

    const StageProgram& s_;
    Names buffers_, sections_, bodies_;
};

}  // namespace

std::string to_text(const Program& program) {
    std::string out = fmt::format("program format={}", format);
    put(out, "tensor", program.grid.tensor, std::int64_t{1});
    put(out, "context", program.grid.context, std::int64_t{1});
    put(out, "data", program.grid.data, std::int64_t{1});
    put(out, "pipeline", program.grid.pipeline, std::int64_t{1});
    put(out, "shard", program.grid.shard, std::int64_t{0});
    put(out, "expert", program.grid.expert, std::int64_t{1});
    put(out, "expert_tensor", program.grid.expert_tensor, std::int64_t{1});
    out += fmt::format(" micro_batch_size={} sequence_length={} microbatches={} vocabulary={} type={}\n",
                       program.micro_batch_size, program.sequence_length, program.microbatches, program.vocabulary,
                       name_of(program.type));
    for (const StageProgram& stage : program.stages) StageWriter(stage).write(out);
    return out;
}

std::string fingerprint(const Program& program) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : to_text(program)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return fmt::format("{:016x}", hash);
}

std::string to_text(const Instruction& instruction, const StageProgram& stage) {
    return StageWriter(stage).line(instruction);
}

}  // namespace foretrain
