#include "reports/backtest_report.h"

#include <gtest/gtest.h>

#include "reports/scatter.h"
#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A run of the example's plan, predicted to take `predicted` seconds in an interval of 10 % to both sides.
BacktestRow ran(const std::string& id, double predicted, double measured, std::int64_t micro_batch_size = 1) {
    BacktestRow row;
    row.run.id = id;
    row.run.group = id.substr(0, id.rfind('-'));
    row.run.measured.step_time_s = measured;
    row.prediction = examples::two_stages();
    Prediction& p = *row.prediction;
    p.plan.framework = "megatron-lm@2021";
    p.plan.parallelism.micro_batch_size = micro_batch_size;
    p.step = from_seconds(predicted);
    p.interval.low = from_seconds(0.9 * predicted);
    p.interval.high = from_seconds(1.1 * predicted);
    return row;
}

BacktestRow refused(const std::string& id, const std::string& reason) {
    BacktestRow row;
    row.run.id = id;
    row.run.group = id.substr(0, id.rfind('-'));
    row.run.measured.step_time_s = 1;
    row.refused = reason;
    row.why = "because of " + reason;
    return row;
}

// Five runs of one source, of which the fastest is predicted to be second; one of another; two refused.
std::vector<BacktestRow> rows() {
    std::vector<BacktestRow> all{ran("a-1", 2.2, 2, 1), ran("a-2", 2.1, 2.5, 2), ran("a-3", 3, 3, 4),
                                 ran("a-4", 4, 4, 8),   ran("a-5", 4.5, 5, 16),  ran("b-1", 12, 10)};
    all.push_back(refused("b-2", "moe"));
    all.push_back(refused("c-1", "moe"));
    return all;
}

TEST(BacktestSummary, SumsUpByName) {
    const std::vector<BacktestRow> all = rows();  // the summary points into it
    const BacktestSummary s = summary_of(all);
    EXPECT_EQ(s.rows, 8u);
    EXPECT_EQ(s.predicted, 6u);
    EXPECT_EQ(s.refused, 2u);
    EXPECT_EQ(s.step.count, 6u);
    EXPECT_DOUBLE_EQ(s.step.coverage, 3.0 / 6);  // 2 (of 2.2), 3 and 4; 5 is above 4.95
    EXPECT_EQ(s.by_source.at("a").errors.count, 5u);
    EXPECT_EQ(s.by_source.at("b").refused, 1u);
    EXPECT_EQ(s.by_source.at("c").errors.count, 0u);
    EXPECT_EQ(s.by_framework.at("megatron-lm@2021").errors.count, 6u);
    EXPECT_EQ(s.by_scale.at(0).errors.count, 6u) << "eight devices";
    EXPECT_EQ(s.refused_by_reason.at("moe").count, 2u);
    EXPECT_EQ(s.refused_by_reason.at("moe").example, "b-2");
    ASSERT_EQ(s.worst.size(), 6u);
    EXPECT_EQ(s.worst[0]->run.id, "b-1");
    EXPECT_EQ(s.worst[1]->run.id, "a-2");
}

TEST(BacktestSummary, RanksRunsThatAreAlike) {
    const Ranking r = summary_of(rows()).ranking;
    EXPECT_EQ(r.groups, 1u);
    EXPECT_EQ(r.rows, 5u);
    EXPECT_DOUBLE_EQ(r.tau, 0.8);  // nine pairs of ten
    EXPECT_DOUBLE_EQ(r.regret, 0.25);
    // Another sequence length or model is another question.
    std::vector<BacktestRow> apart = rows();
    apart[4].prediction->plan.training.sequence_length += 64;
    EXPECT_EQ(summary_of(apart).ranking.groups, 0u);
    apart = rows();
    apart[4].prediction->plan.model.hidden_size += 64;
    EXPECT_EQ(summary_of(apart).ranking.groups, 0u);
}

TEST(BacktestSummary, ThroughputIsRankedAndNotTheStep) {
    std::vector<BacktestRow> all = rows();
    for (BacktestRow& row : all)
        if (row.prediction && row.run.id == "a-5") row.prediction->plan.training.global_batch_size *= 100;
    const Ranking r = summary_of(all).ranking;
    EXPECT_EQ(r.groups, 1u);
    EXPECT_DOUBLE_EQ(r.regret, 0) << "the slowest step has the most tokens by far";
}

TEST(BacktestSummary, ComparesTheMemoryThatWasMeasured) {
    std::vector<BacktestRow> all{ran("a-1", 2, 2), ran("a-2", 2, 2), ran("a-3", 2, 2)};
    const double predicted = 6;  // GiB of the larger stage without what is reserved
    for (BacktestRow& row : all) {
        row.prediction->memory.assign(2, {});
        row.prediction->memory[1].weights = Bytes{6 * GiB};
        row.prediction->memory[1].reserved = Bytes{GiB};
    }
    all[0].run.measured.peak_allocated_gib = 2 * predicted;
    all[0].run.measured.peak_reserved_gib = 3 * predicted;
    all[1].run.measured.peak_reserved_gib = predicted;
    all[1].run.measured.step_time_s.reset();
    all.push_back(refused("a-4", "moe"));
    all.back().run.measured.peak_reserved_gib = 1;
    const MemoryErrors m = summary_of(all).memory;
    EXPECT_EQ(m.allocated.count, 1u);
    EXPECT_DOUBLE_EQ(m.allocated.bias, -0.5);
    EXPECT_EQ(m.reserved.count, 2u);
    EXPECT_EQ(m.either.count, 2u) << "the third did not measure any";
    EXPECT_DOUBLE_EQ(m.either.mape, 0.25);
    EXPECT_EQ(m.refused, 1u);
    EXPECT_EQ(m.by_framework.at("megatron-lm@2021, reserved").errors.count, 2u);
    EXPECT_EQ(m.by_source.at("a").errors.count, 2u);
    EXPECT_EQ(m.by_source.at("a").refused, 1u);
    EXPECT_EQ(summary_of(all).step.count, 2u) << "no step was measured of the second";
    const std::string table = backtest_rows_table(all);
    EXPECT_TRUE(contains(table, "6.00 reserved")) << table;
}

TEST(BacktestReport, TableHasALineForEachRun) {
    const std::string table = backtest_rows_table(rows());
    for (const char* part :
         {"a-1", "2.200 s", "2.000 s", "+10.0 %", "+-10 %", "out", "refused: moe", "tp2 pp2 dp2 z1 m8"})
        EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
    EXPECT_FALSE(contains(table, "GiB")) << "no memory was measured";
}

TEST(BacktestReport, SummaryTellsErrorsRankingAndRefusals) {
    const std::string table = backtest_summary_table(summary_of(rows()));
    for (const char* part :
         {"8 runs, 6 predicted, 2 refused", "by source", "megatron-lm@2021", "1 to 9", "Kendall's tau 0.800",
          "costs 25.0 % a token", "2  moe", "e.g. b-2: because of moe", "The worst", "+20.0 %"})
        EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
    const std::string none = backtest_summary_table(summary_of({refused("a-1", "moe")}));
    EXPECT_TRUE(contains(none, "1 runs, 0 predicted, 1 refused")) << none;
    EXPECT_FALSE(contains(none, "by source"));
}

TEST(BacktestReport, JsonHasTheFormThatIsDescribed) {
    const Json json = backtest_json(rows());
    const std::vector<Json> list = json.at("rows").items();
    ASSERT_EQ(list.size(), 8u);
    EXPECT_EQ(list[0].at("id").string(), "a-1");
    EXPECT_DOUBLE_EQ(list[0].at("measured_s").number(0, 9), 2);
    EXPECT_DOUBLE_EQ(list[0].at("predicted_s").number(0, 9), 2.2);
    EXPECT_NEAR(list[0].at("error").number(-1, 9), 0.1, 1e-12);
    EXPECT_TRUE(list[0].at("refused").is_null());
    EXPECT_EQ(list[6].at("refused").string(), "moe");
    const Json s = json.at("summary");
    for (const char* key : {"median_ape", "mape", "p90_ape", "bias", "kendall_tau", "regret", "coverage"})
        EXPECT_TRUE(s.at(key).is_number()) << key;
    EXPECT_EQ(s.at("count").integer(0, 99), 6);
    EXPECT_EQ(s.at("refused").integer(0, 99), 2);
    EXPECT_EQ(s.at("by_source").at("a").at("count").integer(0, 9), 5);
    EXPECT_EQ(s.at("memory").at("count").integer(0, 9), 0);
    EXPECT_TRUE(backtest_json({}).at("summary").at("kendall_tau").is_null());
}

TEST(BacktestReport, CsvHasAsManyCellsInEachLine) {
    const std::string csv = backtest_csv(rows());
    std::size_t lines = 0, commas = 0, begin = 0;
    for (std::size_t end = csv.find('\n'); end != std::string::npos; end = csv.find('\n', begin)) {
        std::size_t n = 0;
        bool quoted = false;
        for (std::size_t i = begin; i < end; ++i) {
            if (csv[i] == '"') quoted = !quoted;
            n += csv[i] == ',' && !quoted ? 1 : 0;
        }
        if (lines++ == 0) commas = n;
        EXPECT_EQ(n, commas) << csv.substr(begin, end - begin);
        begin = end + 1;
    }
    EXPECT_EQ(lines, 9u);
}

TEST(Scatter, ShowsEachRunWithAStep) {
    std::vector<BacktestRow> all = rows();
    all[0].run.id = "<a> & b-1";
    const std::string svg = scatter_svg(all);
    std::size_t points = 0;
    for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++points;
    EXPECT_EQ(points, 6u);
    EXPECT_TRUE(contains(svg, "&lt;a&gt; &amp; b-1")) << svg;
    EXPECT_TRUE(contains(svg, "megatron-lm@2021 (6)"));
    EXPECT_TRUE(contains(svg, "6 runs; 2 without a step time or refused"));
    EXPECT_TRUE(contains(scatter_svg({}), "</svg>")) << "nothing to show is no error";
}

}  // namespace
}  // namespace foretrain
