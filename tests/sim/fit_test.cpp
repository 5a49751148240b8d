#include "sim/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/sim/support/fit_runs.h"

namespace foretrain {
namespace {

using namespace support;

std::size_t number_of(const FitModel& model, const std::string& name) {
    for (std::size_t c = 0; c < model.constants().size(); ++c)
        if (model.constants()[c].name == name) return c;
    ADD_FAILURE() << "no constant " << name;
    return 0;
}

const FitModel& as_embedded() {
    static const FitModel model(predicted_runs(), constant_rules(), 2);
    return model;
}

TEST(Fit, LeavesTheConstantsAloneWhereTheyAreRight) {
    const Fitted f = fit(as_embedded(), as_embedded().all_rows(), {});
    for (std::size_t c = 0; c < f.factors.size(); ++c)
        EXPECT_NEAR(f.factors[c], 0, 1e-9) << as_embedded().constants()[c].name;
}

// Several constants move the same runs, so each is found as far as the fit itself says that it is.
TEST(Fit, FindsTheConstantsThatMadeTheRuns) {
    LogFactors truth(as_embedded().constants().size(), 0.0);
    const std::size_t attention = number_of(as_embedded(), "attention of fsdp@composer");
    const std::size_t stall = number_of(as_embedded(), "stall of a layer of megatron-lm@2024");
    const std::size_t across = number_of(as_embedded(), "overlap across nodes");
    truth[attention] = 0.25;
    truth[stall] = 0.6;
    truth[across] = -0.4;
    const FitModel model(runs_as_if(as_embedded(), truth), constant_rules(), 2);
    FitSettings settings;
    settings.noise = 0.002;
    const Fitted f = fit(model, model.all_rows(), settings);
    for (const std::size_t c : {attention, stall, across}) {
        EXPECT_NEAR(f.factors[c], truth[c], 2.5 * f.standard_error[c]) << model.constants()[c].name;
        EXPECT_GT(std::fabs(f.factors[c]), std::fabs(truth[c]) / 2) << model.constants()[c].name;
        EXPECT_LT(f.standard_error[c], model.constants()[c].prior / 2)
            << "the runs tell: " << model.constants()[c].name;
    }
    for (std::size_t i = 0; i < model.runs().size(); ++i)
        EXPECT_NEAR(f.log_steps[i], std::log(model.runs()[i].measured_s), 0.004) << model.runs()[i].id;
}

TEST(Fit, DoesNotDependOnTheNumberOfThreads) {
    LogFactors truth(as_embedded().constants().size(), 0.1);
    const std::vector<FitRun> runs = runs_as_if(as_embedded(), truth, 1.02);
    const FitModel one(runs, constant_rules(), 1), three(runs, constant_rules(), 3);
    EXPECT_EQ(fit(one, one.all_rows(), {}).factors, fit(three, three.all_rows(), {}).factors);
}

// One run in ten that took twice as long moves nothing much: beyond the bend it pulls no harder.
TEST(Fit, ARunThatContradictsTheOthersPullsLittle) {
    std::vector<FitRun> runs = predicted_runs();
    runs[3].measured_s *= 2;
    const FitModel model(runs, constant_rules(), 2);
    const Fitted f = fit(model, model.all_rows(), {});
    for (std::size_t i = 0; i < runs.size(); ++i) {
        if (i == 3) continue;
        EXPECT_NEAR(f.log_steps[i], std::log(runs[i].measured_s), 0.05) << runs[i].id;
    }
}

TEST(Fit, KeepsWhatIsFixedAndWhatNoRunTells) {
    LogFactors truth(as_embedded().constants().size(), 0.2);
    const FitModel model(runs_as_if(as_embedded(), truth), constant_rules(), 2);
    Rows ours;
    for (const std::size_t row : model.all_rows())
        if (model.runs()[row].source == "ours") ours.push_back(row);
    FitSettings settings;
    settings.fixed.assign(model.constants().size(), false);
    const std::size_t stall = number_of(model, "stall of a layer of megatron-lm@2024");
    settings.fixed[stall] = true;
    const Fitted f = fit(model, ours, settings);
    EXPECT_EQ(f.factors[stall], 0);
    EXPECT_EQ(f.factors[number_of(model, "attention of fsdp@composer")], 0) << "another framework's";
    EXPECT_TRUE(std::any_of(f.factors.begin(), f.factors.end(), [](double x) { return x > 0.05; }));
    for (std::size_t c = 0; c < f.factors.size(); ++c) {
        EXPECT_GE(f.factors[c], model.constants()[c].least);
        EXPECT_LE(f.factors[c], model.constants()[c].most);
    }
}

}  // namespace
}  // namespace foretrain
