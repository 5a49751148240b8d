#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "cli/launch.h"
#include "hardware/cluster_file.h"
#include "plan/plan_file.h"
#include "plan/program/trace.h"
#include "sim/predict.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

// A folder with a foretrain-exec that notes its arguments and its plan, then does as told.
class FakeEngine {
public:
    explicit FakeEngine(const std::string& ending) : folder_(temporary_.file("")) {
        std::ofstream(exec()) << "#!/bin/sh\necho \"$@\" > '" << folder_ << "arguments'\n"
                              << "[ \"$2\" = --plan ] && cp \"$3\" '" << folder_ << "plan.json'\n"
                              << ending << "\n";
        std::filesystem::permissions(exec(), std::filesystem::perms::owner_all);
    }
    const std::string& folder() const { return folder_; }
    std::string arguments() const {
        std::ifstream in(folder_ + "arguments");
        std::string line;
        std::getline(in, line);
        return line;
    }
    Json plan() const { return Json::parse_file(folder_ + "plan.json"); }
    bool was_started() const { return std::filesystem::exists(folder_ + "arguments"); }

private:
    std::string exec() const { return folder_ + "foretrain-exec"; }
    TemporaryFolder temporary_;
    std::string folder_;
};

// A cluster with constants for fp32, which the engine runs.
std::string fp32_cluster(const TemporaryFolder& folder) {
    ClusterSpec c = read_cluster("dgx-h100");
    c.default_framework = "foretrain";
    const std::string path = folder.file("cluster.json");
    std::ofstream(path) << cluster_to_json(c).dump();
    return path;
}

// Calls a subcommand with a plan that can be run.
Outcome call_runnable(const std::string& subcommand, const FakeEngine& engine, const Arguments& further = {},
                      const std::string& model = "gpt2", const std::string& gpus = "2") {
    const TemporaryFolder folder;
    Arguments all{subcommand,
                  "--model",
                  model,
                  "--cluster",
                  fp32_cluster(folder),
                  "--gpus",
                  gpus,
                  "--precision",
                  "fp32",
                  "--global-batch-size",
                  "8",
                  "--sequence-length",
                  "128"};
    all.insert(all.end(), further.begin(), further.end());
    return call(all, engine.folder());
}

TEST(Run, HandsACompletedPlanOver) {
    const FakeEngine engine("exit 0");
    const Outcome o =
        call_runnable("run", engine, {"--steps", "3", "--seed", "7", "--trace", "t.json", "--", "--more", "x"});
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(engine.arguments(), "run --plan ")) << engine.arguments();
    EXPECT_TRUE(contains(engine.arguments(), "--steps 3 --trace t.json --seed 7 --more x")) << engine.arguments();
    EXPECT_EQ(engine.plan().at("parallelism").at("data").integer(0, 9), 2);
    EXPECT_TRUE(engine.plan().at("model").is_object()) << "model and cluster are inlined";
    EXPECT_TRUE(contains(o.err, "foretrain: wrote t.json")) << o.err;
}

TEST(Run, PassesTheEnginesExitCodeOn) {
    EXPECT_EQ(call_runnable("run", FakeEngine("exit 3")).code, run_failed);
    EXPECT_EQ(call_runnable("validate", FakeEngine("exit 2")).code, bad_input);
    const Outcome killed = call_runnable("run", FakeEngine("kill -9 $$"));
    EXPECT_EQ(killed.code, run_failed);
    EXPECT_TRUE(contains(killed.err, "signal 9")) << killed.err;
}

TEST(Run, RefusesWhatCannotRunBeforeStarting) {
    const FakeEngine engine("exit 0");
    const Outcome other = call(gpt2("run"), engine.folder());
    EXPECT_EQ(other.code, answer_is_no);
    EXPECT_TRUE(contains(other.err, "refused: framework = megatron-lm")) << other.err;
    EXPECT_EQ(call_runnable("run", engine, {"--tensor", "8"}).code, answer_is_no);
    EXPECT_FALSE(engine.was_started());
}

TEST(Run, RefusesWhatDoesNotFitUnlessForced) {
    const FakeEngine engine("exit 0");
    const Outcome refused = call_runnable("run", engine, {}, "gpt3-175b");
    EXPECT_EQ(refused.code, answer_is_no) << refused.err;
    EXPECT_TRUE(contains(refused.err, "--force")) << refused.err;
    EXPECT_FALSE(engine.was_started());
    EXPECT_EQ(call_runnable("run", engine, {"--force"}, "gpt3-175b").code, done);
    EXPECT_TRUE(engine.was_started());
}

// The trace that a perfect machine would have measured: the simulation's own.
std::string perfect_trace(const TemporaryFolder& folder, const std::string& plan_file) {
    Trace trace;
    simulate(plan_from_json(Json::parse_file(plan_file)), &trace);
    for (RankTrace& rank : trace.ranks) rank.steps.resize(3, rank.steps.front());
    const std::string path = folder.file("perfect.json");
    std::ofstream(path) << trace_to_json(trace).dump();
    return path;
}

TEST(Validate, FindsNoErrorWhereThereIsNone) {
    const TemporaryFolder folder;
    const std::string plan = folder.file("saved.json");
    const FakeEngine engine("exit 0");
    ASSERT_EQ(call_runnable("estimate", engine, {"--pipeline", "2", "--save-plan", plan}).code, done);
    const Outcome o = call({"validate", "--plan", plan, "--measured", perfect_trace(folder, plan), "--format", "json"});
    EXPECT_EQ(o.code, done) << o.err;
    const Json json = Json::parse(o.out, "out");
    EXPECT_EQ(json.at("step_time_error").number(-1, 1), 0);
    EXPECT_EQ(json.at("memory_error_bytes").integer(0, 1LL << 60), 0);
    EXPECT_EQ(json.at("communication_error_bytes").integer(0, 1LL << 60), 0);
    EXPECT_TRUE(json.at("worst").items().empty());
}

TEST(Validate, ReadsTheTraceThatTheEngineWrote) {
    const TemporaryFolder folder;
    const std::string plan = folder.file("saved.json");
    ASSERT_EQ(call_runnable("estimate", FakeEngine("exit 0"), {"--save-plan", plan}, "gpt2", "1").code, done);
    const FakeEngine engine("cp '" + perfect_trace(folder, plan) + "' \"$7\"");  // after --trace
    const Outcome o = call({"validate", "--plan", plan, "--steps", "3"}, engine.folder());
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.out, "+0.0 %")) << o.out;
    EXPECT_EQ(call({"validate", "--plan", plan, "--warm-up", "3"}, engine.folder()).code, bad_input);
}

TEST(Validate, RefusesBeforeTheRunWhatWouldLoseIt) {
    const FakeEngine engine("exit 0");
    const std::vector<std::pair<Arguments, const char*>> cases = {
        {{"--steps", "3", "--warm-up", "3"}, "--warm-up: found 3; expected fewer than the 3 steps"},
        {{"--warm-up", "-1"}, "--warm-up: found \"-1\""},
        {{"--output", engine.folder() + "missing/report"}, "--output: found"},
    };
    for (const auto& [further, complaint] : cases) {
        const Outcome o = call_runnable("validate", engine, further);
        EXPECT_EQ(o.code, bad_input) << complaint;
        EXPECT_TRUE(contains(o.err, complaint)) << o.err;
    }
    EXPECT_FALSE(engine.was_started());
}

TEST(Validate, AMeasuredTraceLeavesNothingToRun) {
    for (const Arguments& further : {Arguments{"--steps", "3"}, {"--seed", "1"}, {"--force"}, {"--trace", "t.json"}}) {
        Arguments all{"--measured", "trace.json"};
        all.insert(all.end(), further.begin(), further.end());
        const Outcome o = call_runnable("validate", FakeEngine("exit 0"), all);
        EXPECT_EQ(o.code, bad_input);
        EXPECT_TRUE(contains(o.err, further.front() + ": found it beside --measured")) << o.err;
    }
}

TEST(Validate, ATimelineForPerfettoIsNoMeasurement) {
    const TemporaryFolder folder;
    const std::string timeline = folder.file("timeline.json");
    ASSERT_EQ(call(gpt2("simulate", {"--trace", timeline})).code, done);
    const Outcome o = call_runnable("validate", FakeEngine("exit 0"), {"--measured", timeline});
    EXPECT_EQ(o.code, bad_input);
    EXPECT_TRUE(contains(o.err, timeline + ": found a timeline for Perfetto")) << o.err;
}

TEST(Run, PassesATerminationOnAndCleansUp) {
    const FakeEngine engine("kill -TERM $PPID; exec sleep 20");
    const Outcome o = call_runnable("run", engine);
    EXPECT_EQ(o.code, run_failed);
    EXPECT_TRUE(contains(o.err, "signal 15")) << o.err;
    const std::string plan = engine.arguments().substr(11, engine.arguments().find(" --steps") - 11);
    EXPECT_TRUE(contains(plan, "foretrain-")) << plan;
    EXPECT_FALSE(std::filesystem::exists(plan)) << plan;
}

TEST(Run, ATemporaryFolderThatIsNoneIsBadInput) {
    const char* before = std::getenv("TMPDIR");
    const std::string kept = before == nullptr ? "" : before;
    const FakeEngine engine("exit 0");
    setenv("TMPDIR", (engine.folder() + "missing").c_str(), 1);
    EXPECT_THROW(TemporaryFolder{}, UserError);
    before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
}

TEST(Calibrate, PassesTheFileOn) {
    const FakeEngine engine("exit 0");
    EXPECT_EQ(call({"calibrate", "--output", "here.json"}, engine.folder()).code, done);
    EXPECT_EQ(engine.arguments(), "calibrate --output here.json");
    EXPECT_TRUE(contains(call({"calibrate", "--output", "here.json"}, engine.folder()).err, "wrote here.json"));
}

}  // namespace
}  // namespace foretrain::cli
