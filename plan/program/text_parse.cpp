// Reads a program back. Tables come before the lines that refer to them, in the order in which they
// are printed; entries are numbered from 0 without gaps, so that a lost line is noticed.
#include <fmt/format.h>

#include "base/error.h"
#include "plan/program/access.h"
#include "plan/program/text.h"
#include "plan/program/text_format.h"

namespace foretrain {

namespace {

using namespace text_format;

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(separator, at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

class StageReader {
public:
    explicit StageReader(std::int32_t number) { s_.stage = number; }

    void read(Line& line, const std::string& what) {
        static const std::vector<std::string> known{"region", "kernel",    "section", "body", "buffer",
                                                    "unit",   "parameter", "loss",    "stage"};
        if (what.front() == '%') return instruction(line, what);
        if (what == "region") return region(line);
        if (what == "kernel") return numbered(line, "k", s_.kernels.size());
        if (what == "section") return name(line, "s", s_.sections, sections_);
        if (what == "body") return name(line, "y", s_.bodies, bodies_);
        if (what == "buffer") return buffer(line);
        if (what == "unit") return unit(line);
        if (what == "parameter") return parameter(line);
        if (what == "loss") return loss(line);
        line.fail(what, "region, kernel, section, body, buffer, unit, parameter, loss, stage or %<number>", known);
    }

    // The arguments of a kernel are a language of their own.
    void kernel(const Line& line, std::string_view arguments) {
        try {
            s_.kernels.push_back(kernel_args_from_text(arguments));
        } catch (const UserError& e) {
            UserErrorText text = e.text();
            text.file = std::string(origin);
            text.field = fmt::format("line {}: {}", line.number(), text.field);
            throw UserError(std::move(text));
        }
    }

    StageProgram take() { return std::move(s_); }

private:
    static void numbered(Line& line, std::string_view prefix, std::size_t next) {
        const std::string expected = fmt::format("{}{}", prefix, next);
        if (const std::string found = line.word(expected); found != expected) line.fail(found, expected);
    }

    static void name(Line& line, std::string_view prefix, std::vector<std::string>& table, Names& names) {
        numbered(line, prefix, table.size());
        table.push_back(line.word("a name"));
        names.add(table.back());
    }

    std::int32_t reference(const Line& line, const Names& names, std::string_view text, std::string_view what) const {
        if (const auto id = names.find(text)) return *id;
        line.fail(text, fmt::format("{} of the stage, by a name that only one has or name~number", what), names.all());
    }

    void region(Line& line) {
        const auto r = static_cast<std::size_t>(line.choice<Region>(line.word("a region"), region_count));
        line.read("base", s_.region_base[r]);
        line.read("bytes", s_.region_bytes[r]);
    }

    void buffer(Line& line) {
        numbered(line, "b", s_.buffers.size());
        Buffer b;
        b.name = line.word("the buffer's name");
        b.region = line.choice<Region>(line.required("region"), region_count);
        b.type = line.choice<DType>(line.required("type"), type_count);
        b.elements = line.number<std::int64_t>(line.required("elements"));
        line.read("offset", b.offset);
        line.read("axis", b.axis, static_cast<int>(axis_count));
        line.read("stride", b.stride);
        buffers_.add(b.name);
        s_.buffers.push_back(std::move(b));
    }

    void unit(Line& line) {
        numbered(line, "u", s_.units.size());
        Unit u;
        u.name = line.word("the unit's name");
        u.elements = line.number<std::int64_t>(line.required("elements"));
        for (const UnitField& f : unit_fields)
            if (const auto text = line.field(f.name)) u.*f.member = reference(line, buffers_, *text, "a buffer");
        line.read("tied_to", u.tied_to);
        s_.units.push_back(std::move(u));
    }

    void parameter(Line& line) {
        Parameter p;
        p.name = line.word("the parameter's name");
        p.unit = line.number<std::int32_t>(line.required("unit"));
        line.read("offset", p.unit_offset);
        line.read("outer", p.outer);
        line.read("sharded", p.sharded);
        line.read("inner", p.inner);
        if (const auto text = line.field("replicated")) {
            if (*text != "true" && *text != "false") line.fail(*text, "true or false");
            p.replicated = *text == "true";
        }
        if (const auto text = line.field("init")) p.init = init(line, *text);
        line.read("init_std", p.init_std);
        s_.parameters.push_back(std::move(p));
    }

    static std::int8_t init(const Line& line, const std::string& text) {
        for (std::size_t i = 0; i < init_names.size(); ++i)
            if (init_names[i] == text) return static_cast<std::int8_t>(i);
        return line.number<std::int8_t>(text, "normal, ones, zeros or a number");
    }

    void loss(Line& line) { s_.loss = reference(line, buffers_, line.required("buffer"), "a buffer"); }

    void instruction(Line& line, const std::string& id) {
        const std::string expected = fmt::format("%{}", s_.instructions.size());
        if (id != expected) line.fail(id, expected);
        Instruction i;
        i.kind = line.choice<InstructionKind>(line.word("an instruction's kind"), kind_count);
        subject(line, i);
        line.read("stream", i.stream, stream_count);
        line.read("axis", i.axis, static_cast<int>(axis_count));
        if (const auto text = line.field("reduction")) {
            if (*text != "sum" && *text != "maximum") line.fail(*text, "sum or maximum", {"sum", "maximum"});
            i.reduction = *text == "maximum" ? Reduction::maximum : Reduction::sum;
        }
        line.read("like", i.like, kind_count);
        line.read("share", i.share);
        line.read("count", i.count);
        line.read("type", i.type, type_count);
        line.read("peer", i.peer);
        line.read("chunk", i.chunk);
        line.read("mb", i.microbatch);
        if (const auto text = line.field("at")) i.section = reference(line, sections_, *text, "a section");
        operands(line, i);
        waits(line, i);
        s_.instructions.push_back(i);
    }

    void subject(Line& line, Instruction& i) {
        if (const auto text = line.word_if_any()) {
            const std::size_t dot = text->rfind(".k");
            if (dot == std::string::npos) line.fail(*text, "a kernel of the table, such as gemm.k3");
            i.kernel = line.number<std::int32_t>(std::string_view(*text).substr(dot + 2), "the number of a kernel");
            const bool there = has_kernel(i, s_);
            if (!there || name_of(kind_of(s_.kernels[static_cast<std::size_t>(i.kernel)])) != text->substr(0, dot))
                line.fail(*text, "a kernel of the table by its kind and number");
        } else {
            line.read("kernel", i.kernel);
        }
        if (const auto text = line.field("body")) i.body = reference(line, bodies_, *text, "a body");
    }

    std::vector<std::int32_t> buffers(Line& line, std::string_view name) {
        std::vector<std::int32_t> out;
        const auto text = line.field(name);
        if (!text) return out;
        for (std::string_view part : split(*text, ',')) out.push_back(reference(line, buffers_, part, "a buffer"));
        if (out.size() > Instruction::max_operands)
            line.fail(fmt::format("{} buffers", out.size()), fmt::format("at most {}", Instruction::max_operands));
        return out;
    }

    void operands(Line& line, Instruction& i) {
        const std::vector<std::int32_t> plain = buffers(line, "operands");
        const std::vector<std::int32_t> by_access[] = {buffers(line, "reads"), buffers(line, "writes"),
                                                       buffers(line, "updates")};
        const std::size_t count = by_access[0].size() + by_access[1].size() + by_access[2].size();
        for (std::int32_t b : plain) i.add_operand(b);
        if (count == 0) return;
        if (!plain.empty()) line.fail("operands=", "either operands= or reads=, updates= and writes=");
        std::size_t next[] = {0, 0, 0};
        const int taken =
            i.kind != InstructionKind::kernel || has_kernel(i, s_) ? operands_taken(i, s_).value_or(0) : 0;
        if (static_cast<std::size_t>(taken) != count)
            line.fail(fmt::format("{} buffers", count), fmt::format("{} of them", taken));
        for (int o = 0; o < taken; ++o) {
            const auto access = access_of(i, s_, o);
            if (!access) line.fail("reads=, updates= or writes=", "operands=");
            const auto kind = static_cast<std::size_t>(*access);
            if (next[kind] == by_access[kind].size()) line.fail("too few of them", wanted(i));
            i.add_operand(by_access[kind][next[kind]++]);
        }
    }

    std::string wanted(const Instruction& i) const {
        int count[] = {0, 0, 0};
        for (int o = 0; o < operands_taken(i, s_).value_or(0); ++o)
            if (const auto access = access_of(i, s_, o)) ++count[static_cast<std::size_t>(*access)];
        return fmt::format("{} reads, {} writes, {} updates", count[0], count[1], count[2]);
    }

    void waits(Line& line, Instruction& i) {
        const auto text = line.field("waits");
        if (!text) return;
        const std::vector<std::string_view> parts = split(*text, ',');
        if (parts.size() > Instruction::max_waits)
            line.fail(fmt::format("{} waits", parts.size()), fmt::format("at most {}", Instruction::max_waits));
        for (std::string_view part : parts) {
            const std::size_t dot = part.find('.');
            if (part.empty() || part.front() != '%' || dot == std::string_view::npos)
                line.fail(part, "%<number>.<stream>");
            const auto id = line.number<std::int32_t>(part.substr(1, dot - 1), "the number of an instruction");
            const auto stream = line.choice<Stream>(part.substr(dot + 1), stream_count);
            i.wait[i.waits++] = {id, stream};
        }
    }

    StageProgram s_;
    Names buffers_, sections_, bodies_;
};

void read_program(Line& line, Program& program) {
    if (const std::string found = line.required("format"); found != format) line.fail(found, format);
    line.read("tensor", program.grid.tensor);
    line.read("context", program.grid.context);
    line.read("data", program.grid.data);
    line.read("pipeline", program.grid.pipeline);
    line.read("shard", program.grid.shard);
    line.read("expert", program.grid.expert);
    line.read("expert_tensor", program.grid.expert_tensor);
    line.read("micro_batch_size", program.micro_batch_size);
    line.read("sequence_length", program.sequence_length);
    line.read("microbatches", program.microbatches);
    line.read("vocabulary", program.vocabulary);
    line.read("type", program.type, type_count);
}

// What stands behind the first two words of a kernel's line, without a comment.
std::string_view behind_number(std::string_view text) {
    std::size_t at = 0;
    for (int words = 0; words < 2; ++words) {
        at = std::min(text.find_first_not_of(" \t\r", at), text.size());
        at = std::min(text.find_first_of(" \t\r", at), text.size());
    }
    text = text.substr(at);
    text = text.substr(0, text.find(" #"));
    return text.substr(0, text.find_last_not_of(" \t\r") + 1);
}

class ProgramReader {
public:
    void read(std::string_view text, std::int64_t number) {
        Line line(text, number);
        if (line.empty()) return;
        const std::string what = line.word("a line that begins with a word");
        if (!begun_ && what != "program") line.fail(what, "program, before everything else", {"program"});
        if (what == "program") {
            if (begun_) line.fail(what, "one program");
            begun_ = true;
            read_program(line, program_);
        } else if (what == "stage") {
            stages_.emplace_back(line.number<std::int32_t>(line.word("the stage's number")));
        } else if (stages_.empty()) {
            line.fail(what, "stage, before its tables and instructions", {"stage"});
        } else {
            stages_.back().read(line, what.empty() ? std::string(" ") : what);
            if (what == "kernel") return stages_.back().kernel(line, behind_number(text));
        }
        line.finish();
    }

    Program take(std::int64_t lines) {
        if (!begun_) Line("", lines).fail("the end of the text", "program");
        for (StageReader& stage : stages_) program_.stages.push_back(stage.take());
        return std::move(program_);
    }

private:
    Program program_;
    std::vector<StageReader> stages_;
    bool begun_ = false;
};

}  // namespace

Program program_from_text(std::string_view text) {
    ProgramReader reader;
    std::int64_t number = 0;
    for (std::string_view line : split(text, '\n')) reader.read(line, ++number);
    return reader.take(number);
}

}  // namespace foretrain
