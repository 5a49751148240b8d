#include "cli/training_options.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

TEST(TrainingOptions, CountsAsPeopleWriteThem) {
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "15T"), 15e12);
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "300B"), 300e9);
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "300b"), 300e9);
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "1.4e12"), 1.4e12);
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "2.5M"), 2.5e6);
    EXPECT_DOUBLE_EQ(count_from_text("tokens", "7"), 7);
    for (const char* bad : {"", "T", "15 T", "15TT", "15X", "0", "-3B", "1e300", "nan", "inf", "1e17B"})
        EXPECT_THROW(count_from_text("tokens", bad), UserError) << bad;
}

TEST(TrainingOptions, SayWhatATrainingTakes) {
    const Outcome o = call(gpt2("estimate", {"--tokens", "10B", "--price", "2", "--format", "json"}));
    ASSERT_EQ(o.code, done) << o.err;
    const Json out = Json::parse(o.out, "out");
    const Json training = out.at("training");
    // 8 x 128 tokens a step, on 8 GPUs.
    const double hours = 10e9 / 1024 * out.at("step_time_s").number(0, 10) / 3600 * 8;
    EXPECT_NEAR(training.at("gpu_hours").number(0, 1e9) / hours, 1, 1e-12);
    EXPECT_NEAR(training.at("days").number(0, 1e9) / (hours / 8 / 24), 1, 1e-12);
    EXPECT_NEAR(training.at("money_usd").items()[0].number(0, 1e9) / (2 * hours), 1, 1e-12);
    EXPECT_NEAR(training.at("energy_mwh").number(0, 1e9) / (hours * 1275e-6), 1, 1e-12) << "of dgx-h100's 10.2 kW";
    ASSERT_EQ(training.at("assumed").items().size(), 1u);
    const Outcome table = call(gpt2("estimate", {"--tokens", "10B", "--power", "700"}));
    EXPECT_TRUE(contains(table.out, "Training            10.00 B tokens")) << table.out;
    EXPECT_TRUE(contains(table.out, "MWh, at 700 W a GPU")) << table.out;
}

TEST(TrainingOptions, NeedTheTokens) {
    for (const char* name : {"--price", "--power"}) {
        const Outcome o = call(gpt2("estimate", {name, "2"}));
        EXPECT_EQ(o.code, bad_input);
        EXPECT_TRUE(contains(o.err, "--tokens")) << o.err;
    }
    EXPECT_EQ(call(gpt2("estimate", {"--tokens", "1T", "--price", "0"})).code, bad_input);
    EXPECT_EQ(call(gpt2("estimate", {"--tokens", "1T", "--power", "-1"})).code, bad_input);
}

}  // namespace
}  // namespace foretrain::cli
