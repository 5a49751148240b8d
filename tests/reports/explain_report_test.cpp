#include "reports/explain_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "reports/prediction_report.h"
#include "reports/recommendation_report.h"
#include "reports/sizes_report.h"
#include "reports/sweep_report.h"
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

void expect_parts(const std::string& table, const std::vector<std::string>& parts) {
    EXPECT_LE(widest_line(table), 100u) << table;
    for (const std::string& part : parts) EXPECT_TRUE(contains(table, part)) << part << " is missing in\n" << table;
}

Alternative at(double step, std::int64_t tensor) {
    Alternative a;
    a.parallelism = examples::two_stages().plan.parallelism;
    a.parallelism.tensor = tensor;
    a.step = from_seconds(step);
    a.peak = Bytes{GiB};
    return a;
}

Explanation explanation() {
    Explanation e;
    Alternative cannot;
    cannot.why_not = "memory of stage 0 = 90 GiB: must fit 80 GiB";
    e.what_if = {{.key = "inter_node_bandwidth_x2",
                  .change = "twice the bandwidth between nodes",
                  .then = at(1.5, 2),
                  .gain = from_seconds(0.5)},
                 {.key = "memory_x2",
                  .change = "twice the memory, the best plan then",
                  .then = at(1.9, 4),
                  .gain = from_seconds(0.1)},
                 {.key = "latency_half", .change = "half the latency of all links", .then = at(2, 2)},
                 {.key = "micro_batch_x2", .change = "micro-batch 2", .then = cannot}};
    e.links = {{.key = "inter_node",
                .link = "between nodes",
                .answer = LinkNeed::Answer::needs,
                .factor = 3.2,
                .gbps_now = 50,
                .free_step = from_seconds(1.4),
                .best_step = from_seconds(1.405)},
               {.key = "intra_node",
                .link = "inside a node",
                .answer = LinkNeed::Answer::cannot,
                .gbps_now = 240,
                .free_step = from_seconds(1.6),
                .best_step = from_seconds(1.8)}};
    e.largest_micro_batch = at(2.1, 2);
    e.largest_micro_batch->parallelism.micro_batch_size = 4;
    e.smallest = {.devices = 4, .nodes = 1, .searched_to = 8, .then = at(4, 2)};
    e.smallest_with_batch = {.devices = 0, .nodes = 0, .searched_to = 8, .then = {}};
    return e;
}

TEST(Limits, NameWhatComputesWhatWaitsAndTheLargestLoss) {
    // Of 2 s: 0.75 gemm, 0.25 attention, 0.15 head, 0.1 other, 0.25 recompute, 0.125 optimizer and tensor
    // exposed each, 0.05 data exposed, 0.075 messages, 0.125 bubble.
    const std::string text = limits_text(examples::two_stages());
    EXPECT_TRUE(contains(text, "Of 2.000 s, 81.2 % computes: gemm 37.5 %, ")) << text;
    EXPECT_TRUE(
        contains(text, "The rest: tensor exposed 6.2 %, bubble 6.2 %, pipeline exposed 3.8 %, data exposed 2.5 %"))
        << text;
    EXPECT_TRUE(contains(text, "computing again what memory could not keep costs it most")) << text;
    Prediction idle = examples::two_stages();
    idle.times[1].bubble = idle.times[1].pipeline_exposed = from_seconds(0.4);
    EXPECT_TRUE(contains(limits_text(idle), "more microbatches a step")) << limits_text(idle);
    Prediction busy = examples::two_stages();
    busy.times[1] = {.step = from_seconds(2), .forward = from_seconds(2), .gemm = from_seconds(2)};
    // Of 1.5 s and 2 s a stage, 1.75 s is the mean.
    EXPECT_TRUE(contains(limits_text(busy), "Stage 1 is busy 14.3 % longer than stages on average"))
        << limits_text(busy);
    busy.times[0] = busy.times[1];
    EXPECT_EQ(limits_text(busy),
              "Of 2.000 s, 100.0 % computes: gemm 100.0 %. Little else matters: the devices' arithmetic is what it is "
              "bound by.");
    EXPECT_EQ(limits_text(Prediction{}), "");
}

TEST(ExplanationReport, TableSaysWhatWouldMoveIt) {
    const Prediction best = examples::two_stages();
    expect_parts(
        explanation_table(explanation(), &best),
        {"twice the bandwidth between nodes          1.500 s  25.0 % shorter",
         "twice the memory, the best plan then       1.900 s  5.0 % shorter\n    tp 4",
         "half the latency of all links              2.000 s  as long", "micro-batch 2: cannot be. memory of stage 0",
         "between nodes would be hidden with 3.2 times the bandwidth, 160 GB/s",
         "No bandwidth hides the communication inside a node: latency alone leaves a step of 1.800 s",
         "Largest micro-batch of this plan that fits: 4, 2.100 s a step, 5.0 % longer.",
         "Fewest GPUs with any batch: 4 on 1 node (tp 2", "No size up to 8 GPUs has a plan with this batch."});
    const std::string none = explanation_table(explanation(), nullptr);
    EXPECT_TRUE(contains(none, "Fewest GPUs with any batch: 4")) << none;
    EXPECT_FALSE(contains(none, "What would move")) << none;
}

TEST(ExplanationReport, JsonHoldsTheNumbers) {
    const Prediction best = examples::two_stages();
    const Json json = Json::parse(explanation_json(explanation(), &best).dump(), "report");
    const std::vector<Json> changes = json.at("what_if").items();
    ASSERT_EQ(changes.size(), 4u);
    EXPECT_DOUBLE_EQ(changes[0].at("gain_s").number(-1, 1), 0.5);
    EXPECT_DOUBLE_EQ(changes[0].at("then").at("step_time_s").number(0, 9), 1.5);
    EXPECT_FALSE(changes[3].at("then").at("feasible").boolean());
    const std::vector<Json> links = json.at("links").items();
    EXPECT_DOUBLE_EQ(links[0].at("gbps_per_gpu_needed").number(0, 1e6), 160);
    EXPECT_EQ(links[1].at("answer").string(), "cannot");
    EXPECT_TRUE(links[1].at("factor").is_null());
    EXPECT_EQ(json.at("largest_micro_batch").integer(0, 99), 4);
    EXPECT_EQ(json.at("smallest_with_any_batch").at("gpus").integer(0, 99), 4);
    EXPECT_TRUE(json.at("smallest_with_this_batch").at("gpus").is_null());
}

TEST(ExplanationReport, StandsInTheSweeps) {
    SweepResult r;
    r.base = examples::two_stages().plan;
    r.best = {examples::two_stages()};
    EXPECT_TRUE(contains(sweep_table(r, 10), "What limits it\n  Of 2.000 s")) << sweep_table(r, 10);
    EXPECT_FALSE(contains(sweep_table(r, 10), "What would move"));
    r.explanation = explanation();
    EXPECT_TRUE(contains(sweep_table(r, 10), "What would move"));
    EXPECT_TRUE(sweep_json(r).has("explanation"));
    EXPECT_LE(widest_line(sweep_table(r, 10)), 100u);
    r.best.clear();
    EXPECT_TRUE(contains(sweep_table(r, 10), "How many GPUs it takes"));
}

TEST(NearestChanges, StandUnderAPlanThatDoesNotFit) {
    Prediction wish = examples::two_stages();
    wish.capacity = Bytes{6 * GiB};
    wish.rejections = {{.reason = "out_of_memory", .field = "memory", .found = "8 GiB", .rule = "must fit"}};
    wish.nearest.emplace();
    EXPECT_TRUE(contains(prediction_table(wish), "No change of one or two of its fields makes it fit."));
    wish.nearest->push_back(
        {.changes = {"recompute none -> full", "tensor 2 -> 4"}, .then = at(2.5, 4), .cost = from_seconds(0.5)});
    expect_parts(prediction_table(wish), {"recompute none -> full, tensor 2 -> 4", "2.500 s  25.0 % longer"});
    const Json json = prediction_json(wish).at("nearest_changes").items()[0];
    EXPECT_EQ(json.at("changes").items()[1].string(), "tensor 2 -> 4");
    EXPECT_DOUBLE_EQ(json.at("cost_s").number(0, 9), 0.5);
    EXPECT_FALSE(prediction_json(examples::two_stages()).has("nearest_changes"));
}

Recommendation recommendation() {
    Recommendation r;
    r.sweep.base = examples::two_stages().plan;
    r.sweep.enumerated = 100;
    r.sweep.feasible = 20;
    r.sweep.best = {examples::two_stages()};
    AxisReason tensor{.axis = "tensor", .value = "2", .other = "4", .alternative = at(2.2, 4)};
    AxisReason zero{.axis = "zero_stage", .value = "1", .other = "", .alternative = {}};
    zero.alternative.why_not = "too large";
    r.reasons = {tensor, {.axis = "pipeline", .value = "2", .other = "", .alternative = {}}, zero};
    r.thumb = {.rule = "under 10 B parameters: data-parallel only", .then = at(3, 1)};
    r.explanation = explanation();
    return r;
}

TEST(RecommendationReport, GivesReasonsInSentences) {
    Recommendation r = recommendation();
    expect_parts(recommendation_table(r),
                 {"Recommended: tp 2 pp 2 dp 2 zero 1",
                  "Tensor 2: inside a node of 8 GPUs; waiting for its collectives is 6.2 % of the step. The best plan",
                  "takes 2.200 s, 10.0 % longer (tp 4", "optimizer state is shared out over 2 data ranks",
                  "Its best takes 3.000 s, 50.0 % longer (tp 1", "What limits it", "Memory  "});
    const Prediction& best = r.sweep.best.front();
    EXPECT_TRUE(reason_text(r.reasons[1], best).ends_with("There is no other choice."));
    EXPECT_TRUE(reason_text(r.reasons[2], best).ends_with("With any other, no plan is feasible: too large"));
    r.thumb.then = {
        .parallelism = examples::two_stages().plan.parallelism, .step = from_seconds(2), .peak = {}, .why_not = ""};
    EXPECT_TRUE(contains(recommendation_table(r), "That is the recommended plan."));
    r.sweep.best.clear();
    r.reasons.clear();
    r.sweep.fell["out_of_memory"] = {.count = 100, .example = "tp 1", .text = "stage 0 needs 90 GiB"};
    expect_parts(recommendation_table(r), {"There is no plan to recommend: none of 100 is feasible.",
                                           "100 fell for out_of_memory, e.g. tp 1: stage 0 needs 90 GiB"});
    EXPECT_TRUE(recommendation_json(r).at("recommended").is_null());
}

TEST(RecommendationReport, JsonHoldsPlanReasonsAndRule) {
    const Json json = Json::parse(recommendation_json(recommendation()).dump(), "report");
    EXPECT_TRUE(json.at("feasible").boolean());
    EXPECT_DOUBLE_EQ(json.at("recommended").at("step_time_s").number(0, 9), 2);
    const std::vector<Json> reasons = json.at("reasons").items();
    EXPECT_EQ(reasons[0].at("axis").string(), "tensor");
    EXPECT_DOUBLE_EQ(reasons[0].at("alternative").at("step_time_s").number(0, 9), 2.2);
    EXPECT_TRUE(reasons[1].at("alternative").is_null());
    EXPECT_EQ(reasons[2].at("alternative").at("why_not").string(), "too large");
    EXPECT_DOUBLE_EQ(json.at("rule_of_thumb").at("step_time_s").number(0, 9), 3);
}

RangeResult range() {
    RangeResult r;
    r.base = examples::two_stages().plan;
    SizeResult small{.nodes = 1, .devices = 8, .enumerated = 100, .feasible = 10};
    small.best = examples::two_stages();
    small.best->training = TrainingCost{
        .tokens = 1e9, .days = 1.5, .device_hours = 288, .price = {2, 3}, .money_least = 576, .money_most = 864};
    small.fewest = small.least_hours = true;
    SizeResult none{.nodes = 2, .devices = 16, .enumerated = 50, .feasible = 0};
    none.why_not = "batch_divides: 8 must be a multiple of 16";
    r.sizes = {small, none};
    return r;
}

TEST(SizesReport, ListsEverySizeAndTheFronts) {
    expect_parts(sizes_table(range()),
                 {"speed, hours     8   2.000", "576 to 864", "16 GPUs: batch_divides: 8 must be", "none"});
    const Json json = Json::parse(sizes_json(range()).dump(), "report");
    EXPECT_EQ(json.at("space").at("enumerated").integer(0, 999), 150);
    EXPECT_EQ(json.at("plans").items().size(), 1u);
    EXPECT_EQ(json.at("pareto").items().size(), 1u);
    EXPECT_EQ(json.at("sizes").items()[1].at("why_not").string(), range().sizes[1].why_not);
    EXPECT_DOUBLE_EQ(json.at("sizes").items()[0].at("gpu_hours_per_step").number(0, 1), 2.0 * 8 / 3600);
    const std::string csv = sizes_csv(range());
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
}

}  // namespace
}  // namespace foretrain
