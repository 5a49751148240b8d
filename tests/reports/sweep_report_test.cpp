#include "reports/sweep_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

SweepResult result() {
    SweepResult r;
    r.base = examples::two_stages().plan;
    r.enumerated = 1200;
    r.feasible = 20;
    r.estimated = 15;
    r.fell["tensor_divides_heads"] = {.count = 30, .example = "tp 3", .text = "tensor = 3: must divide 32"};
    r.fell["out_of_memory"] = {.count = 1150, .example = "tp 1", .text = "stage 0 needs 90 GiB"};
    Prediction slower = examples::two_stages();
    slower.step = from_seconds(4);
    slower.plan.parallelism.zero_stage = 3;
    r.best = {examples::two_stages(), slower};
    r.pareto = {examples::two_stages()};
    r.elapsed_s = 0.5;
    return r;
}

TEST(SweepReport, TableListsTheBestAndWhyTheRestFell) {
    const std::string table = sweep_table(result(), 10);
    for (const char* part :
         {"1 200 plans enumerated, 20 feasible, 15 estimated (5 excluded by their bound)", "Best 2 plans", "2000.00",
          "4000.00", "The best: tp 2 pp 2 dp 2 zero 1", "Pareto front", "Why the rest fell", "tp 3"})
        EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
    EXPECT_LT(table.find("out_of_memory"), table.find("tensor_divides_heads")) << "the commonest reason first";
    EXPECT_FALSE(contains(table, "0.5 s")) << "the same sweep prints the same bytes";
}

TEST(SweepReport, ContextHasAColumnWhereItIsUsed) {
    SweepResult r = result();
    EXPECT_FALSE(contains(sweep_table(r, 10), " cp "));
    r.best[0].plan.parallelism.context = 16;
    r.best[0].plan.parallelism.context_method = ContextMethod::all_to_all;
    r.best[0].plan.parallelism.virtual_pipeline = 16;
    const std::string table = sweep_table(r, 10);
    EXPECT_TRUE(contains(table, "16 a2a")) << table;
    EXPECT_TRUE(contains(table, " 1f1b v16 ")) << table;
    std::size_t widest = 0, begin = 0;
    for (std::size_t end = table.find('\n'); end != std::string::npos; end = table.find('\n', begin)) {
        widest = std::max(widest, end - begin);
        begin = end + 1;
    }
    EXPECT_LE(widest, 100U) << table;
}

TEST(SweepReport, TopLimitsTheTable) { EXPECT_FALSE(contains(sweep_table(result(), 1), "4000.00")); }

TEST(SweepReport, ALongFrontIsThinned) {
    SweepResult r = result();
    r.pareto.clear();
    // 1000, 990, 980, ... MiB: shown are 1000, 950, 900 and, as the smallest, 890.
    for (std::int64_t i = 0; i < 12; ++i) {
        r.pareto.push_back(examples::two_stages());
        r.pareto.back().step = from_seconds(static_cast<double>(2 + i));
        r.pareto.back().memory = {{.weights = Bytes{(1000 - 10 * i) * MiB}}};
    }
    const std::string table = sweep_table(r, 10);
    EXPECT_TRUE(contains(table, "peak MiB")) << table;
    EXPECT_TRUE(contains(table, "890.00")) << table;
    EXPECT_TRUE(contains(table, "each saves 5 % or more")) << table;
    EXPECT_TRUE(contains(table, "  and 8 more (--format json)\n")) << table;
    EXPECT_TRUE(contains(table, "7000.00")) << table;   // 950 MiB
    EXPECT_FALSE(contains(table, "6000.00")) << table;  // 960 MiB
    EXPECT_TRUE(contains(table, "13000.00")) << table;  // the smallest

    const std::string two = sweep_table(r, 2);  // the fastest and the smallest
    EXPECT_TRUE(contains(two, "  and 10 more (--format json)\n")) << two;
    EXPECT_TRUE(contains(two, "13000.00")) << two;
    EXPECT_FALSE(contains(two, "7000.00")) << two;
}

TEST(SweepReport, TightPlansAreMarkedAndTheMarkExplainedOnce) {
    SweepResult r = result();
    const std::string roomy = sweep_table(r, 10);
    EXPECT_FALSE(contains(roomy, "! tight")) << roomy;
    r.best[1].memory[1].activations = Bytes{4 * GiB + 6 * GiB / 10};  // 9.6 of 10 GiB
    r.pareto.push_back(r.best[1]);
    const std::string table = sweep_table(r, 10);
    EXPECT_TRUE(contains(table, "9.60!\n")) << table;
    EXPECT_FALSE(contains(table, "8.00!")) << table;
    const std::size_t note = table.find("! tight: less than a twentieth of the device to spare");
    EXPECT_NE(note, std::string::npos) << table;
    EXPECT_EQ(table.find("! tight", note + 1), std::string::npos) << table;
    r.best.pop_back();  // only the front has one
    EXPECT_TRUE(contains(sweep_table(r, 10), "! tight"));
}

TEST(SweepReport, SaysWhatTheBatchLeavesOut) {
    SweepResult r = result();
    EXPECT_FALSE(contains(sweep_table(r, 10), "Not tried"));
    r.left_out = {.combinations = 1200, .of = 1300, .batch = 24, .then_left_out = 7};
    const std::string table = sweep_table(r, 10);
    EXPECT_TRUE(contains(table, "Not tried: 1 200 of 1 300 combinations")) << table;
    EXPECT_TRUE(contains(table, "A batch of 24 would allow all but 7.")) << table;
    const Json space = Json::parse(sweep_json(r).dump(), "report").at("space");
    EXPECT_EQ(space.at("left_out_by_batch").at("batch").integer(0, 99), 24);
}

TEST(SweepReport, TheFirstTableHasALegend) {
    EXPECT_TRUE(contains(sweep_table(result(), 10), "  tp tensor, pp pipeline, dp data, v chunks/stage"));
}

TEST(SweepReport, WithoutAFeasiblePlanItSaysWhy) {
    SweepResult none = result();
    none.best.clear();
    none.pareto.clear();
    const std::string table = sweep_table(none, 10);
    EXPECT_TRUE(contains(table, ", 8 GPUs; batch ")) << table;
    EXPECT_TRUE(contains(table, "\nNo plan is feasible.")) << table;
    EXPECT_TRUE(contains(table, "out_of_memory")) << table;
}

TEST(SweepReport, WithoutAnyPlanItSaysWhatStandsInTheWay) {
    SweepResult r;
    EXPECT_FALSE(sweep_json(r).at("space").has("nothing"));
    r.nothing = "parallelism.tensor = 5: leaves no plan";
    EXPECT_TRUE(contains(sweep_table(r, 10), "Why there are none\n  parallelism.tensor = 5: leaves no plan"));
    EXPECT_EQ(sweep_json(r).at("space").at("nothing").string(), r.nothing);
}

TEST(SweepReport, JsonHasTheDesignsForm) {
    const Json json = Json::parse(sweep_json(result()).dump(), "report");
    EXPECT_EQ(json.keys(), (std::vector<std::string>{"space", "plans", "pareto", "elapsed_s"}));
    EXPECT_EQ(json.at("space").keys(), (std::vector<std::string>{"enumerated", "feasible", "estimated", "fell"}));
    EXPECT_EQ(json.at("space").at("fell").at("out_of_memory").at("count").integer(0, 9999), 1150);
    EXPECT_EQ(json.at("plans").items().size(), 2u);
    EXPECT_DOUBLE_EQ(json.at("plans").items()[1].at("step_time_s").number(0, 9), 4);
}

TEST(SweepReport, CsvHasOneLineAPlan) {
    const std::string csv = sweep_csv(result());
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

}  // namespace
}  // namespace foretrain
