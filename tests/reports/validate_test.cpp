#include "reports/validate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/program/text.h"
#include "reports/chrome_trace.h"
#include "reports/span_table.h"
#include "reports/validation_report.h"
#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

// The prediction, with the memory that the measured ranks hold.
Prediction predicted() {
    Prediction p = examples::two_stages();
    p.memory.assign(2, StageMemory{.weights = Bytes{1024}, .activations = Bytes{512}});
    return p;
}

Time us(double t) { return from_microseconds(t); }

Validation joined() {
    return join(predicted(), examples::message_and_reduction(), examples::simulated(), examples::measured(), 1);
}

KindError kind(const Validation& v, const std::string& name) {
    for (const KindError& k : v.by_kind)
        if (k.kind == name) return k;
    throw std::runtime_error("no kind " + name);
}

TEST(Median, IsTheLowerMiddle) {
    EXPECT_EQ(median({us(3), us(1), us(2)}), us(2));
    EXPECT_EQ(median({us(4), us(1)}), us(1));
}

TEST(Join, StepsAreTheSlowestRanksMedians) {
    const Validation v = joined();
    EXPECT_EQ(v.predicted_step, us(130));
    EXPECT_EQ(v.measured_step, us(195));  // ranks 2 and 3; the warm-up would have said 390
    EXPECT_NEAR(v.step_error(), 130.0 / 195 - 1, 1e-12);
    EXPECT_EQ(v.losses, (std::vector<double>{10, 9, 9}));
    EXPECT_EQ(v.peak_resident, Bytes{1 << 20});
}

TEST(Join, KernelsAreSummedOverRanks) {
    const KindError gemm = kind(joined(), "gemm");
    EXPECT_EQ(gemm.count, 4);
    EXPECT_EQ(gemm.predicted, us(400));
    EXPECT_EQ(gemm.measured, us(440));
}

TEST(Join, WaitingIsNotTransfer) {
    const Validation v = joined();
    // Receivers' spans of 60 us hold 48 us of waiting: the senders' 12 us stand for both sides.
    EXPECT_EQ(kind(v, wire_key(Axis::pipeline, InstructionKind::recv)).measured, us(24));
    EXPECT_EQ(kind(v, wire_key(Axis::pipeline, InstructionKind::send)).measured, us(24));
    // Rank 0 waited for rank 1: 25 us stand for all four ranks.
    EXPECT_EQ(kind(v, "data.all_reduce").measured, us(100));
    EXPECT_EQ(kind(v, "data.all_reduce").predicted, us(80));
}

TEST(Join, WhatIsNoInstructionsTimeIsWaitingOrIdle) {
    // Only the gemm is on the compute stream: 30 us of each rank's step are idle in the simulation,
    // and 82, 37, 85 and 85 us in the measurement.
    EXPECT_EQ(kind(joined(), "idle").predicted, us(4 * 30));
    EXPECT_EQ(kind(joined(), "idle").measured, us(82 + 37 + 85 + 85));
    Program program = examples::message_and_reduction();
    for (StageProgram& stage : program.stages) stage.instructions[2].stream = Stream::compute;
    const Validation v = join(predicted(), program, examples::simulated(), examples::measured(), 1);
    EXPECT_EQ(kind(v, "waiting").predicted, us(0));
    EXPECT_EQ(kind(v, "waiting").measured, us(70 - 25));
    EXPECT_EQ(kind(v, "idle").measured, us(12 + 12 + 60 + 60));
}

TEST(Join, WorstCallsComeOnceEach) {
    const Validation v = joined();
    // The gemm off by 10, the reduction by 5, the message by 2 on either side.
    ASSERT_EQ(v.worst.size(), 4u);
    EXPECT_EQ(v.worst[0].predicted, us(100));
    EXPECT_EQ(v.worst[0].measured, us(110));
    EXPECT_NE(v.worst[0].name.find("gemm"), std::string::npos) << v.worst[0].name;
    EXPECT_NE(v.worst[0].name.find("layer0, microbatch 0"), std::string::npos) << v.worst[0].name;
    EXPECT_NE(v.worst[1].name.find("data.all_reduce 6 fp32 (24 B)"), std::string::npos) << v.worst[1].name;
}

TEST(Join, BytesAreExactOrOff) {
    EXPECT_EQ(joined().memory_error, Bytes{0});
    EXPECT_EQ(joined().communication_error, Bytes{0});
    Trace trace = examples::measured();
    trace.ranks[3].allocated["weights"] = Bytes{1000};
    trace.ranks[1].allocated["elsewhere"] = Bytes{5};
    trace.ranks[2].live_peak = Bytes{3};
    trace.ranks[0].wire.erase("data.all_reduce");
    const Validation v = join(predicted(), examples::message_and_reduction(), examples::simulated(), trace, 1);
    EXPECT_EQ(v.memory_error, Bytes{24});
    EXPECT_EQ(v.communication_error, Bytes{24});
}

TEST(Join, PredictsTheWireOfEveryRank) {
    const Program program = examples::message_and_reduction();
    EXPECT_EQ(predicted_wire(program, 1).at("data.all_reduce"), Bytes{24});
    EXPECT_EQ(predicted_wire(program, 1).at(wire_key(Axis::pipeline, InstructionKind::send)), Bytes{400});
    EXPECT_EQ(predicted_wire(program, 2).size(), 1u) << "who only receives sends nothing";
}

TEST(Join, RefusesForeignTraces) {
    const auto join_with = [](const Trace& trace, std::size_t warm_up) {
        return join(predicted(), examples::message_and_reduction(), examples::simulated(), trace, warm_up);
    };
    EXPECT_THROW(join_with(examples::measured(), 3), UserError);
    Trace missing = examples::measured();
    for (RankStep& step : missing.ranks[0].steps) step.spans.erase(step.spans.begin());
    EXPECT_THROW(join_with(missing, 1), UserError);
    Trace unknown = examples::measured();
    unknown.ranks[0].steps[1].spans[0].instruction = 99;
    EXPECT_THROW(join_with(unknown, 1), UserError);
    Trace elsewhere = examples::measured();
    elsewhere.ranks[0].stage = 1;
    EXPECT_THROW(join_with(elsewhere, 1), UserError);
    EXPECT_THROW(join_with(Trace{}, 0), UserError);
    Trace another = examples::measured();  // whose instructions have the same ids
    another.program = fingerprint(examples::message_and_reduction());
    EXPECT_NO_THROW(join_with(another, 1));
    another.program = "0123456789abcdef";
    EXPECT_THROW(join_with(another, 1), UserError);
}

TEST(Meetings, MatchAcrossStagesInOrder) {
    Program program = examples::message_and_reduction();
    auto& first = program.stages[0].instructions;
    auto& second = program.stages[1].instructions;
    first.insert(first.begin() + 2, first[1]);     // a second message, #2
    second.insert(second.begin() + 2, second[0]);  // received as #2
    const Meetings meetings(program);
    const auto participants = meetings.participants(1, 2);
    ASSERT_EQ(participants.size(), 2u);
    EXPECT_EQ(participants[0].rank, 1);
    EXPECT_EQ(participants[1].rank, 3);
    EXPECT_EQ(participants[1].instruction, 2);
    EXPECT_TRUE(meetings.participants(0, 0).empty());
}

TEST(ValidationReport, JsonHasTheDesignsForm) {
    const Json json = Json::parse(validation_json(joined()).dump(), "report");
    EXPECT_EQ(json.keys(), (std::vector<std::string>{"predicted", "measured", "step_time_error", "memory_error_bytes",
                                                     "communication_error_bytes", "by_kind", "worst"}));
    EXPECT_DOUBLE_EQ(json.at("measured").at("step_time_s").number(0, 1), 195e-6);
    EXPECT_EQ(json.at("by_kind").items()[0].at("kind").string(), "gemm");  // most of the time first
    EXPECT_NEAR(json.at("by_kind").items()[0].at("error").number(-1, 1), 400.0 / 440 - 1, 1e-9);
}

TEST(ValidationReport, TableNamesTheErrors) {
    const std::string table = validation_table(joined());
    EXPECT_NE(table.find("measured is the slowest rank's median step, warm-up left out"), std::string::npos) << table;
    for (const char* part : {"predicted 130.0 us, measured 195.0 us: -33.3 %", "exact",
                             "10.00000 in the first of 3 steps", "gemm", "-10.00 us"})
        EXPECT_NE(table.find(part), std::string::npos) << part << " is missing in\n" << table;
}

TEST(ChromeTrace, IsJsonWithRanksAndStreams) {
    const Json json = Json::parse(chrome_trace(examples::message_and_reduction(), examples::measured()), "trace");
    std::size_t slices = 0;
    double second_step = 0;
    for (const Json& event : json.at("traceEvents").items()) {
        if (event.at("ph").string() != "X") continue;
        ++slices;
        const Json args = event.at("args");
        if (event.at("pid").integer(0, 9) == 0 && args.at("step").integer(0, 9) == 1 &&
            args.at("instruction").integer(0, 9) == 0)
            second_step = event.at("ts").number(0, 1e9);
    }
    EXPECT_EQ(slices, 4u * 3 * 3);
    EXPECT_DOUBLE_EQ(second_step, 390) << "after the slowest rank's first step";
}

}  // namespace
}  // namespace foretrain
