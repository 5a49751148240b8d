#include "plan/program/trace.h"

#include <fmt/format.h>

#include <limits>

namespace foretrain {

namespace {

constexpr const char* format_name = "foretrain.trace/1";
constexpr std::int64_t most = std::int64_t{1} << 56;  // of a time in picoseconds (20 hours) or bytes
// Of all spans of a step together, so that sums over a few dozen ranks stay within 64 bits.
constexpr double most_in_a_step = 1e17;

// A span is three numbers in a row: instruction, start, end. There are tens of thousands in a file.
Json step_to_json(const RankStep& step) {
    Json spans = Json::array();
    for (const Span& s : step.spans) {
        spans.push(Json(std::int64_t{s.instruction}));
        spans.push(Json(s.start.value));
        spans.push(Json(s.end.value));
    }
    Json out = Json::object();
    out.set("duration_ps", step.duration.value);
    out.set("loss", step.loss);
    out.set("spans", std::move(spans));
    return out;
}

RankStep step_from_json(const Json& value) {
    value.only_keys({"duration_ps", "loss", "spans"});
    RankStep step;
    step.duration = Time{value.at("duration_ps").integer(0, most)};
    // A loss that is no number is written as null, and diverged.
    step.loss = value.has("loss")
                    ? value.at("loss").number(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max())
                    : std::numeric_limits<double>::quiet_NaN();
    const std::vector<Json> spans = value.at("spans").items();
    if (spans.size() % 3 != 0)
        value.at("spans").fail(fmt::format("{} numbers", spans.size()), "instruction, start and end of each span");
    double total = 0;
    for (std::size_t i = 0; i < spans.size(); i += 3) {
        Span s;
        s.instruction = static_cast<std::int32_t>(spans[i].integer(0, std::numeric_limits<std::int32_t>::max()));
        s.start = Time{spans[i + 1].integer(-most, most)};
        s.end = Time{spans[i + 2].integer(-most, most)};
        if (s.end < s.start) spans[i + 2].fail(spans[i + 2].found(), "an end after its start");
        total += static_cast<double>((s.end - s.start).value);
        step.spans.push_back(s);
    }
    if (total > most_in_a_step) value.at("spans").fail("spans of more than a day together", "one step's");
    return step;
}

Json bytes_to_json(const std::map<std::string, Bytes>& amounts) {
    Json out = Json::object();
    for (const auto& [name, bytes] : amounts) out.set(name, bytes.value);
    return out;
}

std::map<std::string, Bytes> bytes_from_json(const Json& value) {
    std::map<std::string, Bytes> amounts;
    for (const std::string& key : value.keys()) amounts[key] = Bytes{value.at(key).integer(0, most)};
    return amounts;
}

Json rank_to_json(const RankTrace& rank) {
    Json out = Json::object();
    out.set("rank", rank.rank);
    out.set("stage", rank.stage);
    out.set("wire_bytes", bytes_to_json(rank.wire));
    out.set("allocated_bytes", bytes_to_json(rank.allocated));
    out.set("live_peak_bytes", rank.live_peak.value);
    Json steps = Json::array();
    for (const RankStep& step : rank.steps) steps.push(step_to_json(step));
    out.set("steps", std::move(steps));
    return out;
}

RankTrace rank_from_json(const Json& value) {
    value.only_keys({"rank", "stage", "wire_bytes", "allocated_bytes", "live_peak_bytes", "steps"});
    RankTrace rank;
    rank.rank = value.at("rank").integer(0, most);
    rank.stage = value.at("stage").integer(0, most);
    rank.wire = bytes_from_json(value.at("wire_bytes"));
    rank.allocated = bytes_from_json(value.at("allocated_bytes"));
    rank.live_peak = Bytes{value.at("live_peak_bytes").integer(0, most)};
    for (const Json& step : value.at("steps").items()) rank.steps.push_back(step_from_json(step));
    return rank;
}

}  // namespace

std::string wire_key(Axis axis, InstructionKind kind) { return fmt::format("{}.{}", name_of(axis), name_of(kind)); }

Json trace_to_json(const Trace& trace) {
    Json out = Json::object();
    out.set("format", format_name);
    out.set("kind", trace.kind);
    if (!trace.program.empty()) out.set("program", trace.program);
    out.set("peak_resident_bytes", trace.peak_resident.value);
    Json ranks = Json::array();
    for (const RankTrace& rank : trace.ranks) ranks.push(rank_to_json(rank));
    out.set("ranks", std::move(ranks));
    return out;
}

Trace trace_from_json(const Json& value) {
    if (value.is_object() && value.has("traceEvents"))  // what `simulate --trace` writes
        value.fail("a timeline for Perfetto", "a measured trace, as `foretrain run --trace FILE` writes");
    value.only_keys({"format", "kind", "program", "peak_resident_bytes", "ranks"});
    if (value.has("format")) value.at("format").one_of({format_name});
    Trace trace;
    trace.kind = value.at("kind").string();
    if (value.has("program")) trace.program = value.at("program").string();
    trace.peak_resident = Bytes{value.at("peak_resident_bytes").integer(0, most)};
    for (const Json& rank : value.at("ranks").items()) {
        trace.ranks.push_back(rank_from_json(rank));
        const std::size_t n = trace.ranks.size();
        if (n > 1 && trace.ranks[n - 1].rank <= trace.ranks[n - 2].rank)
            rank.at("rank").fail(rank.at("rank").found(), "ranks in ascending order, each once");
    }
    return trace;
}

}  // namespace foretrain
