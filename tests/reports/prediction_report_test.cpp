#include "reports/prediction_report.h"

#include <gtest/gtest.h>

#include <sstream>

#include "reports/prediction_parts.h"
#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t widest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    return widest;
}

std::vector<std::string> cells(const std::string& line) {
    std::istringstream in(line.substr(0, line.size() - 1));
    std::vector<std::string> all;
    for (std::string cell; std::getline(in, cell, ',');) all.push_back(cell);
    return all;
}

TEST(Prediction, RatesFollowFromTheStep) {
    const Prediction p = examples::two_stages();
    EXPECT_DOUBLE_EQ(p.tokens_per_second(), 8000);
    EXPECT_DOUBLE_EQ(p.mfu(), 0.4);
    EXPECT_DOUBLE_EQ(p.mfu_causal(), 0.2);
    EXPECT_DOUBLE_EQ(p.hfu(), 0.5);
    EXPECT_DOUBLE_EQ(p.model_tflops_per_device(), 40);
    EXPECT_EQ(p.busiest_stage(), 1);
    EXPECT_EQ(p.largest_stage(), 1);
    EXPECT_EQ(p.peak_bytes(), Bytes{8 * GiB});
}

// The stage that waits least sets the pace, though another may end later.
TEST(Prediction, IsToldOfTheBusiestStage) {
    Prediction p = examples::two_stages();
    p.times[0] = {.step = from_seconds(2), .forward = from_seconds(1), .pipeline_exposed = from_seconds(1)};
    p.times[1] = {.step = from_seconds(1.75),
                  .forward = from_seconds(1.5),
                  .pipeline_exposed = from_seconds(0.25),
                  .bubble = from_seconds(0.125)};
    EXPECT_EQ(p.busiest_stage(), 1);
    const StageTime t = p.time_of_busiest();
    EXPECT_EQ(t.step, p.step);
    EXPECT_EQ(t.busy(), from_seconds(1.5));
    EXPECT_EQ(t.bubble, from_seconds(0.375)) << "and from its own end to that of the step";
    EXPECT_EQ(t.messages(), from_seconds(0.125));
}

TEST(Prediction, OfNothingIsNothing) {
    const Prediction p;
    EXPECT_EQ(p.tokens_per_second(), 0);
    EXPECT_EQ(p.mfu(), 0);
    EXPECT_EQ(p.peak_bytes(), Bytes{});
}

TEST(PredictionReport, BreakdownSumsToTheStep) {
    const Prediction p = examples::two_stages();
    Time sum;
    for (const TimePart& part : breakdown(p.times[1])) sum += part.time;
    EXPECT_EQ(sum, p.step);
}

TEST(PredictionReport, CommunicationIsTheBusiestStagesPerAxis) {
    const auto axes = communication_by_axis(examples::two_stages());
    ASSERT_EQ(axes.size(), 5u);
    EXPECT_EQ(axes[0], (std::pair<std::string, Bytes>("tensor", 10)));
    EXPECT_EQ(axes[1], (std::pair<std::string, Bytes>("data", 30)));
    EXPECT_EQ(axes[2], (std::pair<std::string, Bytes>("pipeline", 9)));  // the tied embedding's
    EXPECT_EQ(axes[3], (std::pair<std::string, Bytes>("context", 0)));
}

TEST(PredictionReport, TableSaysWhatMatters) {
    const std::string table = prediction_table(examples::two_stages());
    EXPECT_LE(widest_line(table), 100u) << table;
    for (const char* part :
         {"toy on bench: 8 GPUs, 1 node", "8 microbatches a step", "2.000 s", "1 000 per GPU", "40.0 %",
          "of 100 dense bf16 TFLOP/s", "on stage 1 of 2, the busiest", "750.0 ms", "37.5 %", "[########..]",
          "Fits: stage 1 needs 8.000 GiB of 10.00 GiB; 2.000 GiB (20.0 %) to spare."})
        EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
}

TEST(PredictionReport, TellsTightFromTooMuch) {
    Prediction p = examples::two_stages();
    p.capacity = Bytes{8 * GiB + 1};
    EXPECT_EQ(fit_of(p), Fit::tight);
    EXPECT_TRUE(contains(prediction_table(p), "Tight: "));
    p.capacity = Bytes{6 * GiB};
    p.rejections = {{.reason = "out_of_memory", .field = "memory", .found = "8 GiB", .rule = "must fit"}};
    EXPECT_EQ(fit_of(p), Fit::out_of_memory);
    const std::string table = prediction_table(p);
    EXPECT_TRUE(contains(table, "DOES NOT FIT")) << table;
    EXPECT_TRUE(contains(table, "2.000 GiB (33.3 %) too much.")) << table;
    EXPECT_TRUE(contains(table, "Step time")) << table;
    EXPECT_LE(widest_line(table), 100u) << table;
}

TEST(PredictionReport, ARefusedPlanShowsOnlyWhy) {
    Prediction p;
    p.plan.parallelism.data = 0;
    p.rejections = {
        {.reason = "tensor_divides_heads", .field = "parallelism.tensor", .found = "3", .rule = "must divide"}};
    const std::string table = prediction_table(p);
    EXPECT_TRUE(contains(table, "REFUSED")) << table;
    EXPECT_FALSE(contains(table, "Step time")) << table;
    const std::string csv = prediction_csv_line(p);
    EXPECT_FALSE(contains(csv, "nan"));
    EXPECT_TRUE(contains(csv, "false,tensor_divides_heads,,,")) << "no figure, not a figure of 0: " << csv;
}

TEST(PredictionReport, SaysHowTheVocabularyIsPadded) {
    Prediction p = examples::two_stages();
    p.plan.framework = "megatron-lm";
    p.plan.model.vocab_size = 50257;
    p.plan.parallelism.tensor = 2;
    EXPECT_TRUE(contains(prediction_table(p), "vocabulary 50257, padded to 50432")) << "a multiple of 128 x 2";
    EXPECT_EQ(prediction_json(p).at("memory").at("padded_vocab_size").integer(1, 1 << 20), 50432);
    p.plan.model.vocab_size = 151936;  // 1187 x 128: padded once to a multiple of 256, not times the tensor ranks
    EXPECT_EQ(prediction_json(p).at("memory").at("padded_vocab_size").integer(1, 1 << 20), 152064);
    p.plan.framework = "foretrain";
    EXPECT_EQ(prediction_json(p).at("memory").at("padded_vocab_size").integer(1, 1 << 20), 151936)
        << "divides by 2 as it is";
    EXPECT_FALSE(contains(prediction_table(p), "padded"));
    p.memory.clear();
    EXPECT_TRUE(prediction_json(p).at("memory").at("padded_vocab_size").is_null()) << "unknown of a refused plan";
}

TEST(PredictionReport, EqualStagesShareALine) {
    Prediction p = examples::two_stages();
    p.memory = {p.memory[0], p.memory[0], p.memory[0], p.memory[1]};
    EXPECT_TRUE(contains(memory_table(p), "\n  0-2 ")) << memory_table(p);
}

TEST(PredictionReport, SmallPlansAreShownInMebibytes) {
    Prediction p = examples::two_stages();
    p.memory = {{.weights = Bytes{3 * MiB}}};
    EXPECT_TRUE(contains(prediction_table(p), "MiB on each GPU")) << prediction_table(p);
}

TEST(PredictionReport, JsonHasTheDesignsForm) {
    const Json json = Json::parse(prediction_json(examples::two_stages()).dump(), "report");
    EXPECT_EQ(json.keys(),
              (std::vector<std::string>{"plan", "feasible", "rejections", "step_time_s", "tokens_per_second",
                                        "tokens_per_second_per_gpu", "model_tflops_per_gpu", "mfu", "mfu_causal", "hfu",
                                        "breakdown_s", "communication_bytes_per_gpu", "memory", "host_memory_per_node",
                                        "kernels_by_pass_s", "communication_by_collective", "framework_version"}));
    EXPECT_DOUBLE_EQ(json.at("step_time_s").number(0, 10), 2);
    EXPECT_DOUBLE_EQ(json.at("tokens_per_second_per_gpu").number(0, 1e9), 1000);
    double sum = 0;
    for (const std::string& key : json.at("breakdown_s").keys()) sum += json.at("breakdown_s").at(key).number(0, 10);
    EXPECT_NEAR(sum, 2, 1e-12);
    EXPECT_EQ(json.at("communication_bytes_per_gpu").keys(),
              (std::vector<std::string>{"tensor", "data", "pipeline", "context", "expert"}));
    EXPECT_EQ(json.at("memory").at("peak_bytes").integer(0, 1LL << 60), 8 * GiB);
    EXPECT_EQ(json.at("memory").at("stages").items()[1].keys(),
              (std::vector<std::string>{"stage", "weights", "gradients", "optimizer", "activations", "communication",
                                        "workspace", "reserved", "total", "live_peak"}));
}

TEST(PredictionReport, CsvHasACellForEveryHeading) {
    const std::vector<std::string> heading = cells(prediction_csv_heading());
    const std::vector<std::string> line = cells(prediction_csv_line(examples::two_stages()));
    ASSERT_EQ(heading.size(), line.size());
    const auto cell = [&](const std::string& name) {
        return line[static_cast<std::size_t>(std::find(heading.begin(), heading.end(), name) - heading.begin())];
    };
    EXPECT_EQ(cell("tensor"), "2");
    EXPECT_EQ(cell("virtual_pipeline"), "1");
    EXPECT_EQ(cell("first_stage_layers"), "");
    EXPECT_EQ(cell("step_time_s"), "2");
    EXPECT_EQ(cell("mfu"), "0.4");
    EXPECT_EQ(cell("backward_s"), "0.75");
    EXPECT_EQ(cell("data_bytes_per_gpu"), "30");
}

}  // namespace
}  // namespace foretrain
