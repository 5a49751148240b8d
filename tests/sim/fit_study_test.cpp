#include "sim/fit_study.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "hardware/cluster_file.h"
#include "plan/corrections.h"
#include "plan/framework_file.h"
#include "sim/fit_files.h"
#include "sim/predict.h"
#include "tests/sim/support/fit_runs.h"

namespace foretrain {
namespace {

using namespace support;

const FitModel& as_embedded() {
    static const FitModel model(predicted_runs(), constant_rules(), 2);
    return model;
}

// A cluster on which every constant of frameworks is off by some, and runs scatter by a percent.
const FitModel& another_cluster() {
    static const FitModel model = [] {
        LogFactors truth(as_embedded().constants().size(), 0.0);
        for (std::size_t c = 0; c < truth.size(); ++c)
            if (as_embedded().constants()[c].of_framework) truth[c] = c % 2 == 0 ? 0.35 : 0.2;
        return FitModel(runs_as_if(as_embedded(), truth, 1.01), constant_rules(), 2);
    }();
    return model;
}

TEST(FitStudy, FoldsJudgeEveryRowOnceAndAreTheSameForASeed) {
    const std::vector<Rows> folds = folds_of(as_embedded(), 5, 7);
    std::multiset<std::size_t> judged;
    for (const Rows& fold : folds) {
        judged.insert(fold.begin(), fold.end());
        EXPECT_GE(fold.size(), as_embedded().runs().size() / 5);
    }
    EXPECT_EQ(judged.size(), as_embedded().runs().size());
    EXPECT_EQ(std::set<std::size_t>(judged.begin(), judged.end()).size(), judged.size());
    EXPECT_EQ(folds_of(as_embedded(), 5, 7), folds);
    EXPECT_NE(folds_of(as_embedded(), 5, 8), folds);
}

// The split is written down: another machine, or a later version, has the same.
TEST(FitStudy, TheSplitOfASeedIsKnown) {
    EXPECT_EQ(folds_of(as_embedded(), 5, 1)[0], (Rows{1, 2, 5, 21, 22}));
    EXPECT_EQ(folds_of(as_embedded(), 5, 1)[4], (Rows{0, 6, 13, 18, 19}));
}

TEST(FitStudy, OneMeasuredStepImprovesTheOthers) {
    const FitModel& model = another_cluster();
    const Rows all = model.all_rows();
    const std::vector<double> before = model.log_steps(LogFactors(model.constants().size(), 0.0), all);
    for (const std::size_t given : {0U, 14U}) {
        const std::string& source = model.runs()[given].source;
        const std::vector<double> after = model.log_steps(fit_few(model, {given}, {}).factors, all);
        double error_before = 0, error_after = 0;
        for (const std::size_t row : all) {
            if (row == given || model.runs()[row].source != source) continue;
            const double measured = std::log(model.runs()[row].measured_s);
            error_before += std::fabs(before[row] - measured);
            error_after += std::fabs(after[row] - measured);
        }
        EXPECT_GT(error_before, 0.5) << "there is something to improve";
        EXPECT_LT(error_after, 0.8 * error_before) << source;
    }
}

TEST(FitStudy, TellsWhatEachConstantRestsOn) {
    LogFactors factors;
    const FitReport report = fit_study(another_cluster(), {.folds = 3, .without_source = true, .given = 1}, factors);
    EXPECT_EQ(report.rows.size(), another_cluster().runs().size());
    EXPECT_FALSE(report.constants.empty());
    EXPECT_LT(report.constants.size(), another_cluster().constants().size()) << "some rest on no run";
    for (const FittedConstant& c : report.constants) {
        EXPECT_GT(c.rows, 0U) << c.name;
        EXPECT_TRUE(c.fold_spread.has_value()) << c.name;
        double sum = 0;
        for (const auto& [source, share] : c.sources) sum += share;
        EXPECT_NEAR(sum, 1, 1e-9) << c.name;
        if (c.name == "attention of fsdp@composer") {
            EXPECT_TRUE(c.rests_on_one());
            EXPECT_EQ(c.sources.front().first, "theirs");
        }
    }
    double before = 0, after = 0, cold = 0, own = 0;
    for (const FitRow& row : report.rows) {
        ASSERT_TRUE(row.folded && row.cold && row.own) << row.id;
        before += std::fabs(row.before / row.measured - 1);
        after += std::fabs(row.after / row.measured - 1);
        cold += std::fabs(*row.cold / row.measured - 1);
        own += std::fabs(*row.own / row.measured - 1);
    }
    EXPECT_LT(after, before / 2);
    EXPECT_LT(own, cold);
    EXPECT_EQ(report.given_rows.size(), 10 * (report.rows.size() - 2)) << "ten draws, all but the one given of each";
}

// What is written reads back, and predicts as the fit did.
TEST(FitStudy, ItsFilesCarryTheFit) {
    const FitModel& model = another_cluster();
    const Fitted f = fit(model, model.all_rows(), {});
    Corrections corrections;
    for (const FitFile& file : fit_files(model, f.factors)) {
        const Json json = Json::parse(file.text, file.name);
        if (json.at("format").string() == "foretrain.framework/1")
            for (Framework& framework : frameworks_from_json(json)) corrections.frameworks.push_back(framework);
        else
            corrections.clusters.push_back(cluster_from_json(json));
    }
    EXPECT_EQ(corrections.frameworks.size(), 2U);
    EXPECT_EQ(corrections.clusters.size(), 2U);
    for (std::size_t i = 0; i < model.runs().size(); ++i) {
        Plan plan = model.runs()[i].plan;
        correct(plan, corrections);
        EXPECT_NEAR(std::log(seconds(estimated_step(plan))), f.log_steps[i], 1e-6) << model.runs()[i].id;
    }
    for (const Framework& framework : corrections.frameworks)
        EXPECT_NE(framework.sources.at("traffic").find("corrected by foretrain fit to"), std::string::npos);
}

}  // namespace
}  // namespace foretrain
