#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

namespace fs = std::filesystem;

class FitCommand : public testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / ("foretrain_fit_" + std::to_string(::getpid()));
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path(name)) << text;
        return path(name);
    }
    // Runs on one node; a run that no profile knows comes last.
    std::string runs() const {
        std::string lines;
        for (const auto& [id, tensor, seconds] : {std::tuple{"may-1", 1, 1.4}, {"may-2", 2, 1.6}, {"june-1", 4, 2.4}})
            lines +=
                R"({"id": ")" + std::string(id) +
                R"(", "framework": "megatron-lm@2024", "model": "gpt3-1.3b", "cluster": {"gpu": "a100-sxm-80gb", "gpus": 8}, )"
                R"("training": {"global_batch_size": 64, "sequence_length": 1024}, "parallelism": {"tensor": )" +
                std::to_string(tensor) + R"(}, "measured": {"step_time_s": )" + std::to_string(seconds) + "}}\n";
        lines += R"({"id": "may-9", "framework": "nobody", "model": "gpt2", "cluster": "dgx-a100", "training": )"
                 R"({"global_batch_size": 64, "sequence_length": 1024}, "measured": {"step_time_s": 1}})"
                 "\n";
        return write("runs.jsonl", lines);
    }
    fs::path folder_;
};

TEST_F(FitCommand, PrintsWhatEachConstantRestsOnAndWritesFilesThatOthersTake) {
    const std::string file = runs();
    const Outcome o = call({"fit", file, "--output", path("fitted")});
    ASSERT_EQ(o.code, done) << o.err;
    for (const char* part :
         {"fitted to 3 runs of 2 sources", "1 left out: framework nobody", "rests on", "before", "may"})
        EXPECT_TRUE(contains(o.out, part)) << part << " is missing in\n" << o.out;
    ASSERT_TRUE(fs::exists(path("fitted/megatron-lm.json"))) << o.err;
    const auto median = [](const Outcome& backtest) {
        return Json::parse(backtest.out, "out").at("summary").at("median_ape").number(0, 10);
    };
    const Outcome before = call({"backtest", file, "--format", "json"});
    const Outcome after = call({"backtest", file, "--format", "json", "--framework-file",
                                path("fitted/megatron-lm.json"), "--cluster-file", path("fitted/a100-sxm-80gb.json")});
    ASSERT_EQ(after.code, done) << after.err;
    EXPECT_LT(median(after), median(before) / 2);
    const Outcome plan = call({"estimate", "--model", "gpt3-1.3b", "--cluster", path("fitted/a100-sxm-80gb.json"),
                               "--framework", path("fitted/megatron-lm.json"), "--global-batch-size", "64",
                               "--sequence-length", "1024", "--save-plan", path("plan.json")});
    ASSERT_EQ(plan.code, done) << plan.err;
    EXPECT_TRUE(contains(plan.out, "own figures"));
    EXPECT_EQ(call({"estimate", "--plan", path("plan.json")}).out, plan.out) << "the saved plan keeps them";
}

TEST_F(FitCommand, TellsItInJsonAndCsv) {
    const std::string file = runs();
    const Outcome o = call({"fit", file, "--folds", "3", "--leave-one-source-out", "--given", "1", "--format", "json"});
    ASSERT_EQ(o.code, done) << o.err;
    const Json json = Json::parse(o.out, "out");
    EXPECT_EQ(json.at("rows").items().size(), 3U);
    EXPECT_EQ(json.at("constants").items().size(),
              static_cast<std::size_t>(json.at("free_constants").integer(1, 1000)));
    EXPECT_TRUE(json.at("errors").at("may").has("given_from_before"));
    EXPECT_FALSE(json.at("errors").at("june").has("given_from_before")) << "no run is left to judge";
    const Outcome csv = call({"fit", file, "--constants", "*.costs.stall.*", "--format", "csv"});
    ASSERT_EQ(csv.code, done) << csv.err;
    EXPECT_TRUE(contains(csv.out, "megatron-lm@2024.costs.stall.forward_us")) << csv.out;
    EXPECT_FALSE(contains(csv.out, "calibration"));
}

TEST_F(FitCommand, TakesAPlanAndItsLog) {
    const Outcome plan = call({"estimate", "--model", "gpt3-1.3b", "--cluster", "dgx-a100", "--global-batch-size", "64",
                               "--sequence-length", "1024", "--save-plan", path("plan.json")});
    ASSERT_EQ(plan.code, done) << plan.err;
    const std::string log = write("train.log",
                                  " iteration 1/ 2 | elapsed time per iteration (ms): 9000.0 |\n"
                                  " iteration 2/ 2 | elapsed time per iteration (ms): 2000.0 |\n");
    const Outcome o = call({"fit", "--plan", path("plan.json"), "--log", log});
    ASSERT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.out, "1 run of 1 source"));
    EXPECT_EQ(call({"fit", "--log", log}).code, bad_input);
    EXPECT_EQ(call({"fit", "--plan", path("plan.json")}).code, bad_input);
}

TEST_F(FitCommand, TakesWhatNcclTestsPrinted) {
    std::string text = "# Collective test starting: all_gather_perf\n";
    for (int r = 0; r < 8; ++r) text += "#  Rank  " + std::to_string(r) + " Group 0 Pid 1 on node-0 device 0 H100\n";
    const std::string file = write("out.txt", text + " 268435456 67108864 float none -1 700 380 333 0 700 380 333 0\n");
    const Outcome o = call({"fit", "--nccl", file, "--cluster", "dgx-h100", "--output", path("fitted")});
    ASSERT_EQ(o.code, done) << o.err;
    EXPECT_EQ(Json::parse_file(path("fitted/dgx-h100.json")).at("domain").at("ring_gbps").number(0, 1000), 333);
    EXPECT_EQ(call({"fit", "--nccl", file}).code, bad_input);
}

TEST_F(FitCommand, RefusesWhatItCannotDo) {
    const std::string file = runs();
    EXPECT_EQ(call({"fit"}).code, bad_input);
    EXPECT_EQ(call({"fit", file, "--constants", "nothing"}).code, bad_input);
    EXPECT_EQ(call({"fit", file, "--folds", "4"}).code, bad_input) << "more than runs";
    EXPECT_EQ(call({"fit", file, "--given", "1"}).code, bad_input);
    EXPECT_EQ(call({"fit", file, "--source", "may", "--leave-one-source-out"}).code, bad_input);
    EXPECT_EQ(call({"fit", file, "--framework", "nobody"}).code, answer_is_no);
}

}  // namespace
}  // namespace foretrain::cli
