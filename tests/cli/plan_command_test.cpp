// `foretrain plan`, `sweep --explain` and sweeps over a range of sizes, from the command line.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/sweep_options.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

TEST(PlanCommand, RecommendsWhatTheSweepFindsBest) {
    const Outcome table = call(gpt2("plan"));
    ASSERT_EQ(table.code, done) << table.err;
    for (const char* part : {"Recommended: ", "Why\n", "Rule of thumb", "What limits it", "What would move it most"})
        EXPECT_TRUE(contains(table.out, part)) << part << table.out;
    const Json plan = Json::parse(call(gpt2("plan", {"--format", "json"})).out, "out");
    const Json sweep = Json::parse(call(gpt2("sweep", {"--format", "json", "--top", "1"})).out, "out");
    EXPECT_EQ(plan.at("recommended").at("plan").at("parallelism").dump(),
              sweep.at("plans").items()[0].at("plan").at("parallelism").dump());
    EXPECT_EQ(plan.at("reasons").items().size(), 7u);
}

TEST(PlanCommand, WithoutAPlanSaysHowManyGpusItTakes) {
    const Outcome o = call({"plan", "--model", "llama-3.1-70b", "--cluster", "dgx-h100", "--global-batch-size", "8",
                            "--sequence-length", "4096", "--save-plan", "never.json"});
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out, "There is no plan to recommend")) << o.out;
    EXPECT_TRUE(contains(o.out, "Fewest GPUs with any batch: ")) << o.out;
    EXPECT_TRUE(contains(o.err, "never.json was not written")) << o.err;
}

TEST(SweepCommand, ExplainsItsBestIfAsked) {
    EXPECT_FALSE(contains(call(gpt2("sweep")).out, "What would move"));
    const Outcome o = call(gpt2("sweep", {"--explain", "--tokens", "1B"}));
    ASSERT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.out, "What would move it most")) << o.out;
    EXPECT_TRUE(contains(o.out, "Fewest GPUs with this batch: 1 on 1 node")) << o.out;
    EXPECT_TRUE(contains(o.out, "Training            1.00 B tokens")) << o.out;
}

TEST(SweepCommand, SweepsEachSizeOfARange) {
    const Outcome o = call(gpt2("sweep", {"--gpus", "2..8", "--format", "json"}));
    ASSERT_EQ(o.code, done) << o.err;
    const Json json = Json::parse(o.out, "out");
    const std::vector<Json> sizes = json.at("sizes").items();
    ASSERT_EQ(sizes.size(), 3u);
    for (std::size_t n = 0; n < 3; ++n) {
        const std::int64_t gpus = std::int64_t{2} << n;
        EXPECT_EQ(sizes[n].at("gpus").integer(1, 99), gpus);
        const Json alone =
            Json::parse(call(gpt2("sweep", {"--gpus", std::to_string(gpus), "--format", "json"})).out, "out");
        EXPECT_EQ(sizes[n].at("step_time_s").number(0, 9), alone.at("plans").items()[0].at("step_time_s").number(0, 9));
    }
    EXPECT_TRUE(contains(call(gpt2("sweep", {"--nodes", "1,2"})).out, "16 GPUs: ")) << "a size without a plan or with";
}

TEST(SweepCommand, RefusesWhatBelongsToOneSize) {
    for (const Arguments& bad : {Arguments{"--save-plan", "x.json"}, {"--explain"}, {"--top", "3"}}) {
        Arguments arguments = gpt2("sweep", {"--nodes", "1,2"});
        arguments.insert(arguments.end(), bad.begin(), bad.end());
        const Outcome o = call(arguments);
        EXPECT_EQ(o.code, bad_input);
        EXPECT_TRUE(contains(o.err, bad[0] + ": found it beside several sizes")) << o.err;
    }
}

TEST(SweepOptions, RangesOfSizes) {
    EXPECT_EQ(sizes_in("gpus", "64..512"), (std::vector<std::int64_t>{64, 128, 256, 512}));
    EXPECT_EQ(sizes_in("gpus", "8..8"), (std::vector<std::int64_t>{8}));
    EXPECT_EQ(sizes_in("nodes", "32,8,16"), (std::vector<std::int64_t>{8, 16, 32}));
    for (const char* bad : {"", ",", "8,", "8,,16", "8,8", "0,8", "64..500", "64..32", "..", "8..", "a,b", "1.5",
                            "-8,8", "1..99999999999999999999", "8...16"})
        EXPECT_THROW(sizes_in("gpus", bad), UserError) << bad;
}

TEST(EstimateCommand, OfWhatDoesNotFitTheNearestThatDoes) {
    const Arguments wish{
        "estimate", "--model",           "llama-3.1-8b", "--cluster",    "dgx-h100", "--global-batch-size",
        "32",       "--sequence-length", "8192",         "--zero-stage", "1",        "--micro-batch-size",
        "2"};
    const Outcome o = call(wish);
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out, "Nearest that fits")) << o.out;
    Arguments json = wish;
    json.insert(json.end(), {"--format", "json"});
    const std::vector<Json> nearest = Json::parse(call(json).out, "out").at("nearest_changes").items();
    ASSERT_FALSE(nearest.empty());
    EXPECT_TRUE(nearest[0].at("then").at("feasible").boolean());
}

}  // namespace
}  // namespace foretrain::cli
