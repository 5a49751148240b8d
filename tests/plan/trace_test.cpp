#include "plan/program/trace.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace foretrain::test {
namespace {

Trace small_trace() {
    Trace trace;
    trace.kind = "measured";
    trace.program = "p";
    trace.peak_resident = Bytes{123};
    for (std::int64_t rank : {0, 1}) {
        RankTrace r;
        r.rank = rank;
        r.steps.push_back({Time{50}, {{0, Time{1}, Time{2}}, {7, Time{2}, Time{40}}}, 2.5});
        r.wire["data.all_reduce"] = Bytes{8};
        r.allocated["weights"] = Bytes{64};
        r.live_peak = Bytes{60};
        trace.ranks.push_back(r);
    }
    return trace;
}

std::string error_of(const std::string& text) {
    try {
        trace_from_json(Json::parse(text, "t.json"));
    } catch (const UserError& e) {
        return e.what();
    }
    return "";
}

// The text with its first `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = trace_to_json(small_trace()).dump(0);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Trace, RoundTrips) {
    const std::string text = trace_to_json(small_trace()).dump();
    EXPECT_EQ(trace_to_json(trace_from_json(Json::parse(text, "t.json"))).dump(), text);
    EXPECT_EQ(error_of(text), "");
}

TEST(Trace, RefusesWhatCannotHaveHappened) {
    EXPECT_NE(error_of(changed("\"rank\": 1", "\"rank\": 0")).find("ascending order"), std::string::npos);
    EXPECT_NE(error_of(changed("\"duration_ps\": 50", "\"duration_ps\": 9223372036854775807")), "");
    Trace backwards = small_trace();
    backwards.ranks[0].steps[0].spans[1].end = Time{1};
    EXPECT_NE(error_of(trace_to_json(backwards).dump()).find("after its start"), std::string::npos);
    Trace endless = small_trace();
    for (Span& s : endless.ranks[0].steps[0].spans) s.end = Time{std::int64_t{1} << 56};
    EXPECT_NE(error_of(trace_to_json(endless).dump()).find("more than a day"), std::string::npos);
}

}  // namespace
}  // namespace foretrain::test
