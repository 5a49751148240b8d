// What is said to those who try a thing for the first time: the way out of a refusal, and one way alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "cli/launch.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

Arguments llama(const std::string& subcommand, const Arguments& further) {
    Arguments all{subcommand, "--model", "llama-3-8b", "--global-batch-size", "96", "--sequence-length", "8192"};
    all.insert(all.end(), further.begin(), further.end());
    return all;
}

std::size_t widest_line(const std::string& text) {
    std::size_t widest = 0, begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
        widest = std::max(widest, end - begin);
        begin = end + 1;
    }
    return widest;
}

TEST(Hints, APlanKeepsItsGpusOnAnotherCluster) {
    const TemporaryFolder folder;
    const std::string plan = folder.file("plan.json");
    ASSERT_EQ(call(llama("estimate", {"--cluster", "dgx-h100", "--nodes", "3", "--tensor", "8", "--zero-stage", "1",
                                      "--recompute", "full", "--save-plan", plan}))
                  .code,
              done);
    const Outcome same = call({"estimate", "--plan", plan, "--cluster", "dgx-a100", "--format", "json"});
    EXPECT_EQ(Json::parse(same.out, "out").at("plan").at("cluster").at("nodes").integer(1, 99), 3) << same.err;
    const Outcome other = call({"estimate", "--plan", plan, "--cluster", "dgx-2"});
    EXPECT_EQ(other.code, bad_input);
    EXPECT_TRUE(contains(other.err, "--cluster: found dgx-2 for the 24 GPUs of the plan")) << other.err;
    EXPECT_TRUE(contains(other.err, "(try --gpus 16 or 32)")) << other.err;
    EXPECT_TRUE(contains(call({"estimate", "--plan", plan, "--cluster", "dgx-2", "--gpus", "32"}).out, "32 GPUs"));
}

TEST(Hints, TokensOfLessThanAStepWereMeantInTrillions) {
    const Outcome o = call(gpt2("estimate", {"--tokens", "15"}));
    EXPECT_EQ(o.code, bad_input);
    EXPECT_TRUE(contains(o.err, "--tokens: found 15; expected at least the 1024 of one step")) << o.err;
    EXPECT_TRUE(contains(o.err, "(try 15T)")) << o.err;
    for (const char* command : {"sweep", "plan", "simulate"})
        EXPECT_EQ(call(gpt2(command, {"--tokens", "15"})).code, bad_input) << command;
    EXPECT_FALSE(contains(call(gpt2("estimate", {"--tokens", "1K"})).err, "(try")) << "a unit was given";
    EXPECT_EQ(call(gpt2("estimate", {"--tokens", "1024"})).code, done);
}

TEST(Hints, AZeroStageIsAnsweredWithTheFrameworksThatHaveIt) {
    const Outcome o = call(gpt2("estimate", {"--zero-stage", "3"}));
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out,
                         "must be something that megatron-lm does; megatron-fsdp, fsdp,\n    deepspeed do (allowed: 0, "
                         "1; try --framework megatron-fsdp)"))
        << o.out;
    EXPECT_TRUE(contains(o.out, "(allowed: 0, 1; try --framework megatron-fsdp)")) << o.out;
    const Outcome swept = call(gpt2("sweep", {"--zero-stage", "3"}));
    EXPECT_TRUE(contains(swept.out, "--framework megatron-fsdp)")) << swept.out;
}

TEST(Hints, OneFrameworkAtATime) {
    const Outcome o = call(gpt2("sweep", {"--framework", "fsdp,deepspeed"}));
    EXPECT_EQ(o.code, bad_input);
    EXPECT_TRUE(contains(o.err, "one framework at a time")) << o.err;
    EXPECT_TRUE(contains(call(gpt2("sweep", {"--framework", "torchtitan"})).err, "(try fsdp@torchtitan)"));
}

TEST(Hints, RangesAreSpelledOut) {
    const Outcome o = call(gpt2("sweep", {"--gpus", "64-512"}));
    EXPECT_EQ(o.code, bad_input);
    EXPECT_TRUE(contains(o.err, "A..B, which doubles from A to B")) << o.err;
    EXPECT_TRUE(contains(o.err, "(try 64..512)")) << o.err;
    const Outcome plan = call(gpt2("plan", {"--nodes", "8,16"}));
    EXPECT_EQ(plan.code, bad_input);
    EXPECT_TRUE(contains(plan.err, "(try foretrain sweep --nodes 8,16)")) << plan.err;
}

TEST(Hints, RanksThatDivideNeitherDevicesNorLayersHaveOneWayOut) {
    const Outcome o =
        call(llama("estimate", {"--cluster", "dgx-h100", "--nodes", "2", "--tensor", "8", "--pipeline", "3"}));
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out, "(try pipeline\n    2)")) << o.out;
    EXPECT_FALSE(contains(o.out, "2 or 4")) << o.out;
    EXPECT_FALSE(contains(o.out, " dp ")) << "nobody asked for a number of data ranks\n" << o.out;
    EXPECT_LE(widest_line(o.out), 100U) << o.out;
}

TEST(Hints, ADownloadedFolderIsAModel) {
    const TemporaryFolder folder;
    const std::string model = folder.file("Llama-Tiny");
    std::filesystem::create_directory(model);
    std::ofstream(model + "/config.json") << R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000})";
    const Outcome o = call({"models", "show", model});
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.out, "Llama-Tiny: ")) << o.out;
    EXPECT_TRUE(contains(call({"models", "show", model + "/"}).out, "Llama-Tiny: "));
    EXPECT_TRUE(contains(call({"models", "show", "meta-llama/Llama-3.1-70B"}).err, "(try llama-3.1-70b)"));
}

TEST(Hints, LinesFitAScreen) {
    for (const Arguments& arguments : std::initializer_list<Arguments>{{"clusters"},
                                                                       {"clusters", "show", "dgx-h100"},
                                                                       {"models"},
                                                                       {"models", "show", "gemma-2-9b"},
                                                                       {"frameworks"},
                                                                       {"frameworks", "show", "fsdp"}}) {
        const Outcome o = call(arguments);
        EXPECT_EQ(o.code, done) << o.err;
        EXPECT_LE(widest_line(o.out), 100U) << o.out;
    }
    for (const Command& command : commands()) {
        const Outcome o = call({std::string(command.name), "--help"});
        EXPECT_LE(widest_line(o.out), 100U) << o.out;
    }
    for (const char* what : {"clusters", "models", "frameworks"}) {
        const Outcome o = call({what, "none-such"});
        EXPECT_TRUE(contains(o.err, std::string("names that `foretrain ") + what + "` lists")) << o.err;
    }
}

TEST(Hints, FrameworksAreListedAndShown) {
    const std::string list = call({"frameworks"}).out;
    EXPECT_TRUE(contains(list, "torchtitan-compiled")) << list;
    EXPECT_TRUE(contains(list, "0 1 2 3")) << list;
    const std::string shown = call({"frameworks", "show", "megatron-lm"}).out;
    for (const char* part : {"megatron-lm (2024)", "versions      2021, 2022, 2024", "ZeRO          0, 1", "sources\n"})
        EXPECT_TRUE(contains(shown, part)) << part << " is missing in\n" << shown;
    const Json json = Json::parse(call({"frameworks", "show", "fsdp@composer", "--format", "json"}).out, "out");
    EXPECT_EQ(json.at("version").string(), "composer");
    EXPECT_EQ(json.at("zero_stages").items().size(), 3u);
    EXPECT_TRUE(Json::parse(call({"frameworks", "--format", "json"}).out, "out").is_array());
    EXPECT_TRUE(contains(call({"frameworks", "show", "torchtitan"}).err, "(try fsdp@torchtitan)"));
}

TEST(Hints, AResultSaysWhichVersionItIsOf) {
    EXPECT_TRUE(contains(call(gpt2("estimate")).out, "framework megatron-lm (2024)"));
    const Json json = Json::parse(call(gpt2("estimate", {"--format", "json"})).out, "out");
    EXPECT_EQ(json.at("framework_version").string(), "2024");
    EXPECT_TRUE(contains(call(gpt2("estimate", {"--format", "csv"})).out, ",framework_version\n"));
}

TEST(Hints, TheFrontOfASweepCarriesNoCopiesOfTheModel) {
    const Json json = Json::parse(call(gpt2("sweep", {"--format", "json"})).out, "out");
    EXPECT_TRUE(json.at("plans").items().front().at("plan").has("model"));
    EXPECT_EQ(json.at("pareto").items().front().at("plan").keys(),
              (std::vector<std::string>{"framework", "parallelism"}));
}

TEST(Hints, SeveralChunksAreCountedByPasses) {
    const Arguments chunks = llama("estimate", {"--cluster", "dgx-h100", "--nodes", "2", "--tensor", "4", "--pipeline",
                                                "2", "--virtual-pipeline", "4", "--recompute", "full"});
    const std::string table = call(chunks).out;
    EXPECT_TRUE(contains(table, " chunk passes in flight.")) << table;
    Arguments json = chunks;
    json.insert(json.end(), {"--format", "json"});
    const Json stage = Json::parse(call(json).out, "out").at("memory").at("stages").items().front();
    EXPECT_GT(stage.at("live_peak_at").at("passes_in_flight").integer(0, 99), 1);
}

}  // namespace
}  // namespace foretrain::cli
