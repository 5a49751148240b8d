#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "cli/launch.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(FrontDoor, HelpAndVersion) {
    for (const Arguments& ask : {Arguments{"--help"}, {"-h"}, {"help"}}) {
        const Outcome o = call(ask);
        EXPECT_EQ(o.code, done);
        for (const Command& c : commands()) EXPECT_TRUE(contains(o.out, std::string(c.name)));
    }
    EXPECT_EQ(call({"--version"}).out.rfind("foretrain ", 0), 0u);
    EXPECT_EQ(call({}).code, bad_input);
}

TEST(FrontDoor, EverySubcommandHasHelpWithAnExample) {
    for (const Command& c : commands()) {
        const std::string name(c.name);
        for (const Arguments& ask : {Arguments{name, "--help"}, {"help", name}, {name, "-h"}}) {
            const Outcome o = call(ask);
            EXPECT_EQ(o.code, done) << name;
            EXPECT_TRUE(contains(o.out, "Usage: foretrain " + name)) << o.out;
            EXPECT_TRUE(contains(o.out, "Examples:\n  foretrain " + name)) << o.out;
        }
    }
}

TEST(FrontDoor, BadInputIsOneLineAndCodeTwo) {
    for (const Arguments& bad : {Arguments{"estimat"},
                                 {"estimate"},
                                 {"estimate", "--tensr", "2"},
                                 gpt2("estimate", {"--tensor", "x"}),
                                 gpt2("estimate", {"--format", "xml"}),
                                 gpt2("sweep", {"--zero-stage", "4"}),
                                 gpt2("sweep", {"--max-memory", "0"}),
                                 gpt2("print", {"--stage", "1"}),
                                 {"models", "show", "gtp2"},
                                 {"models", "gpt2"},
                                 {"calibrate"},
                                 {"help", "sweap"}}) {
        const Outcome o = call(bad);
        EXPECT_EQ(o.code, bad_input) << o.err;
        EXPECT_EQ(lines(o.err), 1u) << o.err;
        EXPECT_EQ(o.err.rfind("foretrain: ", 0), 0u) << o.err;
        EXPECT_TRUE(o.out.empty()) << o.out;
    }
    EXPECT_TRUE(contains(call({"sweap"}).err, "(try sweep)"));
    EXPECT_TRUE(contains(call({"models", "show", "gtp2"}).err, "(try gpt2)"));
}

TEST(FrontDoor, ModelsAndClusters) {
    EXPECT_TRUE(contains(call({"models"}).out, "124.4 M"));
    EXPECT_TRUE(contains(call({"models", "show", "gpt2"}).out, "124.4 M"));
    const Json gpt = Json::parse(call({"models", "show", "gpt2", "--format", "json"}).out, "out");
    EXPECT_EQ(gpt.at("layers").integer(0, 99), 12);
    EXPECT_EQ(gpt.at("parameters").integer(0, 1LL << 40), 124439808);
    const TemporaryFolder folder;
    const std::string saved = folder.file("mine.json");
    const Outcome shown = call({"models", "show", "gpt2", "--format", "json", "--output", saved});
    EXPECT_EQ(shown.err, "foretrain: wrote " + saved + "\n");
    EXPECT_TRUE(contains(call({"models", "show", saved}).out, "124.4 M")) << "what is shown reads back";
    EXPECT_TRUE(contains(call({"clusters"}).out, "dgx-h100"));
    EXPECT_TRUE(contains(call({"clusters", "show", "dgx-h100"}).out, "8 h100-sxm-80gb"));
    EXPECT_TRUE(Json::parse(call({"clusters", "--format", "json"}).out, "out").is_array());
}

TEST(FrontDoor, EstimateInThreeForms) {
    for (const char* subcommand : {"estimate", "simulate"}) {
        const Outcome table = call(gpt2(subcommand));
        EXPECT_EQ(table.code, done) << table.err;
        EXPECT_TRUE(contains(table.out, "Step time")) << table.out;
        EXPECT_TRUE(table.err.empty()) << table.err;
        const Json json = Json::parse(call(gpt2(subcommand, {"--format", "json"})).out, "out");
        EXPECT_TRUE(json.at("feasible").boolean());
        EXPECT_EQ(json.at("plan").at("parallelism").at("data").integer(0, 99), 8);
        EXPECT_EQ(lines(call(gpt2(subcommand, {"--format", "csv"})).out), 2u);
    }
}

TEST(FrontDoor, AnInfeasiblePlanIsAnAnswerWithCodeOne) {
    const Outcome o = call(gpt2("estimate", {"--tensor", "8"}));
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out, "REFUSED")) << o.out;
    EXPECT_TRUE(contains(o.out, "attention_heads = 12")) << o.out;
    EXPECT_EQ(call(gpt2("print", {"--tensor", "8"})).code, answer_is_no);
    const Outcome huge = call({"estimate", "--model", "gpt3-175b", "--cluster", "dgx-h100", "--global-batch-size", "8",
                               "--sequence-length", "128"});
    EXPECT_EQ(huge.code, answer_is_no);
    EXPECT_TRUE(contains(huge.out, "DOES NOT FIT")) << huge.out;
    EXPECT_TRUE(contains(huge.out, "Out of memory")) << huge.out;
}

TEST(FrontDoor, ShowsWhatFewModelsHave) {
    const std::string gemma = call({"models", "show", "gemma-2-9b"}).out;
    EXPECT_TRUE(contains(gemma, "4096 tokens, but on each layer whose number is a multiple of 2")) << gemma;
    EXPECT_TRUE(contains(gemma, "post norms")) << gemma;
    const std::string phi = call({"models", "show", "phi-2"}).out;
    EXPECT_TRUE(contains(phi, "attention and MLP in parallel, behind one norm")) << phi;
    EXPECT_TRUE(contains(phi, "turns 32 elements of 80")) << phi;
    EXPECT_FALSE(contains(call({"models", "show", "llama-3-8b"}).out, "note"));
    const std::string maverick = call({"models", "show", "llama-4-maverick"}).out;
    EXPECT_TRUE(contains(maverick, "(400 711 848 960), 17.18 B of them active")) << maverick;
    EXPECT_TRUE(contains(maverick, "1 of 128, each 8192 wide, SiLU, gated, in 24 of 48 layers")) << maverick;
    const std::string deepseek = call({"models", "show", "deepseek-v3"}).out;
    EXPECT_TRUE(contains(deepseek, "128 heads of 128 + 64 with rope, values of 128")) << deepseek;
    EXPECT_TRUE(contains(deepseek, "multi-token prediction are not planned")) << deepseek;
    const Json gpt_oss = Json::parse(call({"models", "show", "gpt-oss-20b", "--format", "json"}).out, "out");
    EXPECT_EQ(gpt_oss.at("active_parameters").integer(1, 1'000'000'000'000), 4'187'440'704);
    EXPECT_TRUE(gpt_oss.at("moe").at("router_bias").boolean());
}

TEST(FrontDoor, SaysWhatItMadeOfAModel) {
    const TemporaryFolder folder;
    const std::string path = folder.file("config.json");
    std::ofstream(path) << R"({"model_type": "llava", "text_config": {"model_type": "llama"}})";
    const Outcome o = call({"estimate", "--model", path, "--cluster", "dgx-h100", "--global-batch-size", "8",
                            "--sequence-length", "128", "--tensor", "8"});
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.err, "note: model")) << o.err;
    EXPECT_TRUE(contains(o.err, "the language model of a llava")) << o.err;
}

TEST(FrontDoor, OutputGoesToAFile) {
    const TemporaryFolder folder;
    const std::string path = folder.file("front_door_test.json");
    const Outcome o = call(gpt2("estimate", {"--format", "json", "--output", path}));
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(o.out.empty());
    EXPECT_TRUE(Json::parse_file(path).at("feasible").boolean());
    EXPECT_EQ(call(gpt2("estimate", {"--output", "/nowhere/at/all"})).code, bad_input);
}

TEST(FrontDoor, SimulateWritesATimeline) {
    const TemporaryFolder folder;
    const std::string path = folder.file("front_door_trace.json");
    EXPECT_EQ(call(gpt2("simulate", {"--trace", path})).code, done);
    EXPECT_TRUE(Json::parse_file(path).at("traceEvents").is_array());
}

TEST(FrontDoor, SweepAnswersAndSavesTheBest) {
    const TemporaryFolder folder;
    const std::string path = folder.file("front_door_best.json");
    const Outcome o = call(gpt2("sweep", {"--tensor", "1,2", "--recompute", "none,full", "--save-plan", path}));
    EXPECT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(contains(o.out, "Pareto front")) << o.out;
    EXPECT_TRUE(contains(o.err, "plans in")) << "the elapsed time is a message, not a result";
    EXPECT_EQ(call({"estimate", "--plan", path}).code, done);
    const Json json = Json::parse(call(gpt2("sweep", {"--tensor", "2", "--format", "json"})).out, "out");
    for (const Json& plan : json.at("plans").items())
        EXPECT_EQ(plan.at("plan").at("parallelism").at("tensor").integer(0, 99), 2);
    const std::string none = folder.file("none.json");
    const Outcome no = call(gpt2("sweep", {"--tensor", "8", "--save-plan", none}));
    EXPECT_EQ(no.code, answer_is_no);
    EXPECT_TRUE(contains(no.err, none + " was not written")) << no.err;
}

TEST(FrontDoor, PrintsTheProgramOfAStage) {
    const Outcome all = call(gpt2("print", {"--pipeline", "2"}));
    const Outcome one = call(gpt2("print", {"--pipeline", "2", "--stage", "1"}));
    const Outcome chunks = call(gpt2("print", {"--pipeline", "2", "--chunks"}));
    EXPECT_EQ(all.code, done) << all.err;
    EXPECT_LT(one.out.size(), all.out.size());
    EXPECT_FALSE(chunks.out.empty());
}

}  // namespace
}  // namespace foretrain::cli
