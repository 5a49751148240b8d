#include "reports/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "reports/validate.h"

namespace foretrain {

namespace {

std::string quoted(std::string_view text) { return Json(text).dump(); }

// Where each step begins on the common time line.
std::vector<Time> step_starts(const Trace& trace) {
    std::vector<Time> starts{Time{}};
    std::size_t steps = 0;
    for (const RankTrace& rank : trace.ranks) steps = std::max(steps, rank.steps.size());
    for (std::size_t i = 0; i < steps; ++i) {
        Time longest;
        for (const RankTrace& rank : trace.ranks)
            if (i < rank.steps.size()) longest = std::max(longest, rank.steps[i].duration);
        starts.push_back(starts.back() + longest);
    }
    return starts;
}

// Metadata that names a rank's process and the threads of the streams it uses.
void append_names(std::string& out, const StageProgram& stage, const RankTrace& rank) {
    fmt::format_to(
        std::back_inserter(out),
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0} (stage {1})\"}}}},\n",
        rank.rank, rank.stage);
    std::set<Stream> used;
    for (const Instruction& i : stage.instructions) used.insert(i.stream);
    for (Stream stream : used)
        fmt::format_to(
            std::back_inserter(out),
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}},\n",
            rank.rank, static_cast<int>(stream), name_of(stream));
}

void append_slice(std::string& out, const StageProgram& stage, const RankTrace& rank, std::size_t step, Time begin,
                  const Span& span) {
    FORETRAIN_CHECK(span.instruction >= 0 && static_cast<std::size_t>(span.instruction) < stage.instructions.size(),
                    "a span of an instruction that the program lacks");
    const Instruction& i = stage.instructions[static_cast<std::size_t>(span.instruction)];
    fmt::format_to(std::back_inserter(out),
                   "{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.6f},\"dur\":{:.6f},"
                   "\"args\":{{\"instruction\":{},\"step\":{},\"what\":{}}}}},\n",
                   quoted(kind_name(stage, i)), rank.rank, static_cast<int>(i.stream), microseconds(begin + span.start),
                   microseconds(span.end - span.start), span.instruction, step, quoted(describe(stage, i)));
}

}  // namespace

std::string chrome_trace(const Program& program, const Trace& trace) {
    const std::vector<Time> starts = step_starts(trace);
    std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (const RankTrace& rank : trace.ranks) {
        const StageProgram& stage = program.stages[static_cast<std::size_t>(rank.stage)];
        append_names(out, stage, rank);
        for (std::size_t step = 0; step < rank.steps.size(); ++step)
            for (const Span& span : rank.steps[step].spans) append_slice(out, stage, rank, step, starts[step], span);
    }
    if (out.ends_with(",\n")) out.erase(out.size() - 2);
    return out + "\n]}\n";
}

}  // namespace foretrain
