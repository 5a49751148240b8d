#include "reports/trust_report.h"

#include <gtest/gtest.h>

#include "reports/prediction_report.h"
#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

Prediction trusted() {
    Prediction p = examples::two_stages();
    StepInterval& i = p.interval;
    i.low = from_seconds(1.75);
    i.high = from_seconds(2.25);
    i.parts = {
        {.part = UncertainPart::software,
         .spread = 0.1,
         .of_step = true,
         .basis = Basis::fitted,
         .half_width = from_seconds(0.2)},
        {.part = UncertainPart::gemm, .time = from_seconds(1.5), .spread = 0.1, .half_width = from_seconds(0.15)},
        {.part = UncertainPart::links_between,
         .time = from_seconds(0.5),
         .spread = 0.25,
         .stated = false,
         .basis = Basis::assumed,
         .half_width = from_seconds(0.125)}};
    i.rests = {from_seconds(1.5), Time{}, Time{}, from_seconds(0.5)};
    p.host = {.checkpoint = Bytes{30 * GiB}, .batch = Bytes{MiB}, .capacity = Bytes{100 * GiB}};
    return p;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TrustReport, TheTableSaysHowFarAndWhy) {
    const std::string table = prediction_table(trusted());
    for (const char* part :
         {"2.000 s  1.750 s .. 2.250 s, 80 % interval", "80 % interval: 1.750 s to 2.250 s. Widest:",
          "the framework's profile (+-10 % of the step)", "GEMM\n    (+-10 % of 75.0 %)",
          "network (+-25 % of 25.0 %, assumed)", "Time rests on constants: 75.0 % measured, 25.0 % assumed.",
          "at most 30.00 GiB while a checkpoint is written", "it has 100.0 GiB"})
        EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
}

TEST(TrustReport, HostMemoryThatIsTooMuchIsSaid) {
    Prediction p = trusted();
    p.host.capacity = Bytes{20 * GiB};
    EXPECT_TRUE(contains(host_table(p), "TOO MUCH for its 20.00 GiB"));
    p.host.capacity = {};
    EXPECT_TRUE(contains(host_table(p), "its size is unknown"));
    p.host = {};
    EXPECT_EQ(host_table(p), "");
}

TEST(TrustReport, WithoutAnIntervalNothingIsSaidOfIt) {
    const Prediction p = examples::two_stages();
    EXPECT_EQ(interval_text(p), "");
    EXPECT_EQ(trust_table(p), "");
    EXPECT_FALSE(prediction_json(p).has("step_time_interval"));
}

TEST(TrustReport, JsonHasEveryPart) {
    const Json json = Json::parse(prediction_json(trusted()).dump(), "report");
    const Json interval = json.at("step_time_interval");
    EXPECT_EQ(interval.keys(),
              (std::vector<std::string>{"coverage", "low_s", "high_s", "weakest", "time_rests_on", "parts"}));
    EXPECT_DOUBLE_EQ(interval.at("low_s").number(0, 10), 1.75);
    EXPECT_EQ(interval.at("weakest").string(), "software");
    EXPECT_DOUBLE_EQ(interval.at("time_rests_on").at("measured").number(0, 1), 0.75);
    EXPECT_EQ(interval.at("parts").items()[1].keys(),
              (std::vector<std::string>{"part", "time_s", "spread", "of_step", "stated", "basis", "half_width_s"}));
    EXPECT_EQ(json.at("host_memory_per_node").at("needed_bytes").integer(0, 1LL << 60), 30 * GiB + MiB);
    EXPECT_FALSE(json.at("host_memory_per_node").at("too_much").boolean());
}

TEST(TrustReport, CsvHasTheEnds) {
    const std::string line = prediction_csv_line(trusted());
    EXPECT_TRUE(contains(line, ",1.75,2.25,software,")) << line;
}

}  // namespace
}  // namespace foretrain
