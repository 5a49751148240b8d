#include "cli/plan_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cli/launch.h"
#include "plan/plan_file.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

Options parsed(const std::vector<OptionGroup>& groups, const Arguments& arguments) {
    std::ostringstream out, err;
    Console console{.out = out, .err = err, .folder = ""};
    const Syntax syntax{.usage = "foretrain try", .summary = "", .examples = {}, .groups = groups};
    return *parse(syntax, arguments, console);
}

Arguments with_gpt2(const Arguments& further) {
    const Arguments all = gpt2("", further);
    return {all.begin() + 1, all.end()};
}

Plan plan_of(const Arguments& arguments) { return plan_from_options(parsed(plan_option_groups(), arguments)); }

// A plan file that is there for one test.
class PlanFile {
public:
    explicit PlanFile(const std::string& text) : path_(folder_.file("plan.json")) { std::ofstream(path_) << text; }
    const std::string& path() const { return path_; }

private:
    TemporaryFolder folder_;
    std::string path_;
};

constexpr const char* file_text = R"({"model": "gpt2", "cluster": "dgx-h100", "framework": "foretrain",
    "training": {"global_batch_size": 64, "sequence_length": 256, "precision": "fp32"},
    "parallelism": {"tensor": 2, "data": 4, "zero_stage": 1, "recompute": {"block_layers": 2}}})";

TEST(PlanOptions, EveryFieldIsAnOption) {
    const Plan p = plan_of(with_gpt2({"--nodes",
                                      "2",
                                      "--framework",
                                      "foretrain",
                                      "--precision",
                                      "fp32",
                                      "--learning-rate",
                                      "0.01",
                                      "--beta1",
                                      "0.8",
                                      "--beta2",
                                      "0.9",
                                      "--epsilon",
                                      "1e-6",
                                      "--weight-decay",
                                      "0",
                                      "--tensor",
                                      "2",
                                      "--pipeline",
                                      "2",
                                      "--data",
                                      "4",
                                      "--sequence-parallel",
                                      "on",
                                      "--zero-stage",
                                      "2",
                                      "--micro-batch-size",
                                      "2",
                                      "--schedule",
                                      "gpipe",
                                      "--recompute",
                                      "segment 3",
                                      "--stage-layers",
                                      "7,5",
                                      "--overlap-gradient-reduce",
                                      "off",
                                      "--overlap-parameter-gather",
                                      "off",
                                      "--overlap-pipeline",
                                      "off"}));
    EXPECT_EQ(p.model.name, "gpt2");
    EXPECT_EQ(p.cluster.devices(), 16);
    EXPECT_EQ(p.framework, "foretrain");
    EXPECT_EQ(p.training, (Training{.global_batch_size = 8,
                                    .sequence_length = 128,
                                    .precision = DType::fp32,
                                    .learning_rate = 0.01,
                                    .beta1 = 0.8,
                                    .beta2 = 0.9,
                                    .epsilon = 1e-6,
                                    .weight_decay = 0}));
    EXPECT_EQ(p.parallelism, (Parallelism{.tensor = 2,
                                          .pipeline = 2,
                                          .data = 4,
                                          .sequence_parallel = true,
                                          .zero_stage = 2,
                                          .micro_batch_size = 2,
                                          .schedule = Schedule::gpipe,
                                          .recompute = {Recompute::Kind::segment, 3},
                                          .stage_layers = {7, 5},
                                          .overlap = {false, false, false}}));
}

TEST(PlanOptions, EveryStageLayoutIsAnOption) {
    const auto described = [](const Arguments& options) { return describe(plan_of(with_gpt2(options)).parallelism); };
    EXPECT_EQ(described({"--pipeline", "2", "--virtual-pipeline", "3"}),
              "tp 1 pp 2 v 3 dp 4 zero 0 mbs 1 1f1b recompute none");
    EXPECT_EQ(described({"--pipeline", "4", "--first-stage-layers", "2", "--last-stage-layers", "4"}),
              "tp 1 pp 4 dp 2 zero 0 mbs 1 1f1b recompute none first 2 last 4");
    EXPECT_EQ(described({"--pipeline", "2", "--embedding-and-head-as-layers", "on"}),
              "tp 1 pp 2 dp 4 zero 0 mbs 1 1f1b recompute none embedding and head as layers");
}

TEST(PlanOptions, ZeroMayShardOverAPartOfTheReplicas) {
    const auto described = [](const Arguments& options) { return describe(plan_of(with_gpt2(options)).parallelism); };
    EXPECT_EQ(described({"--zero-stage", "2", "--zero-shard-size", "4"}),
              "tp 1 pp 1 dp 8 zero 2/4 mbs 1 1f1b recompute none");
    EXPECT_EQ(described({"--zero-stage", "2", "--zero-shard-size", "0"}),
              "tp 1 pp 1 dp 8 zero 2 mbs 1 1f1b recompute none");
}

TEST(PlanOptions, OverrideTheFile) {
    const PlanFile file(file_text);
    const Plan from_file = plan_of({"--plan", file.path()});
    EXPECT_EQ(from_file.parallelism.tensor, 2);
    EXPECT_EQ(from_file.parallelism.recompute, (Recompute{Recompute::Kind::block, 2}));
    const Plan p =
        plan_of({"--plan", file.path(), "--recompute", "full", "--global-batch-size", "32", "--zero-stage", "3"});
    EXPECT_EQ(p.parallelism.recompute.kind, Recompute::Kind::full);
    EXPECT_EQ(p.parallelism.zero_stage, 3);
    EXPECT_EQ(p.parallelism.data, 4);
    EXPECT_EQ(p.training.global_batch_size, 32);
    EXPECT_EQ(p.training.sequence_length, 256);
}

TEST(PlanOptions, DataFollowsFromWhatAnOptionChanged) {
    const PlanFile file(file_text);
    EXPECT_EQ(plan_of({"--plan", file.path(), "--tensor", "4"}).parallelism.data, 2);
    EXPECT_EQ(plan_of({"--plan", file.path(), "--nodes", "2"}).parallelism.data, 8);
    EXPECT_EQ(plan_of({"--plan", file.path(), "--tensor", "4", "--data", "4"}).parallelism.data, 4);
}

TEST(PlanOptions, SavedPlansReadBack) {
    const Plan p = plan_of(with_gpt2({"--tensor", "2", "--recompute", "block 2"}));
    const TemporaryFolder folder;
    const std::string path = folder.file("saved.json");
    std::vector<OptionGroup> groups = plan_option_groups();
    groups.push_back({"Output", {save_plan_option()}});
    std::ostringstream out, err;
    Console console{.out = out, .err = err, .folder = ""};
    save_plan(parsed(groups, {"--save-plan", path}), console, p);
    EXPECT_EQ(err.str(), "foretrain: wrote " + path + "\n");
    const Plan back = plan_of({"--plan", path});
    EXPECT_EQ(plan_to_json(back).dump(), plan_to_json(p).dump());
}

TEST(PlanOptions, ASweepsBaseHasNoAxes) {
    const PlanFile file(file_text);
    const Plan p = sweep_base_from_options(parsed(sweep_base_option_groups(), {"--plan", file.path()}));
    EXPECT_EQ(p.parallelism.tensor, 1);
    EXPECT_EQ(p.parallelism.zero_stage, 0);
    EXPECT_EQ(p.parallelism.recompute.kind, Recompute::Kind::none);
    EXPECT_EQ(p.training.precision, DType::fp32);
}

TEST(PlanOptions, ASweepRefusesStagesOfItsOwn) {
    const PlanFile file(R"({"parallelism": {"pipeline": 2, "stage_layers": [7, 5]}})");
    try {
        sweep_base_from_options(parsed(sweep_base_option_groups(), {"--plan", file.path()}));
        ADD_FAILURE() << "it dropped them";
    } catch (const UserError& e) {
        EXPECT_EQ(e.text().field, "parallelism.stage_layers");
    }
}

std::string complaint(const Arguments& arguments) {
    try {
        plan_of(arguments);
    } catch (const UserError& e) {
        return e.what();
    }
    return "no complaint";
}

TEST(PlanOptions, SayWhatIsMissingOrWrong) {
    EXPECT_TRUE(contains(complaint({"--cluster", "dgx-h100"}), "command line: --model: found no model"));
    EXPECT_TRUE(contains(complaint({"--model", "gpt2"}), "command line: --cluster: found no cluster"));
    EXPECT_TRUE(contains(complaint({"--model", "gpt2", "--cluster", "dgx-h100"}),
                         "--global-batch-size: found no global_batch_size"));
    EXPECT_TRUE(contains(complaint({"--model", "gpt22"}), "command line: --model: found \"gpt22\""));
    EXPECT_TRUE(contains(complaint({"--model", "gpt2", "--cluster", "dgx-h1000"}), "(try dgx-h100)"));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--recompute", "ful"})), "--recompute: found \"ful\""));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--gpus", "12"})), "--gpus: found 12"));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--gpus", "8", "--nodes", "1"})), "one of the two"));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--expert-imbalance", "0.5"})), "--expert-imbalance: found 0.5"));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--context-method", "rings"})), "--context-method: found \"rings\""));
    EXPECT_TRUE(contains(complaint(with_gpt2({"--schedule", "1f2b"})), "1f1b"));
    EXPECT_TRUE(contains(complaint({"--plan", "/nowhere/plan.json"}), "/nowhere/plan.json"));
}

TEST(PlanOptions, AFilesMistypedKeyIsNamedBeforeWhatItLeavesOut) {
    const auto of = [](const std::string& text) {
        const PlanFile file(text);
        const std::string said = complaint({"--plan", file.path()});
        EXPECT_EQ(said.rfind(file.path() + ": ", 0), 0u) << said;
        return said;
    };
    EXPECT_TRUE(contains(of(R"({"model": "gpt2", "cluster": "dgx-h100",
                               "training": {"gobal_batch_size": 8, "sequence_length": 128}})"),
                         "training.gobal_batch_size: found an unknown key"));
    EXPECT_TRUE(contains(of(R"({"modle": "gpt2"})"), "(try model)"));
    EXPECT_TRUE(contains(of(R"({"model": "gpt2"})"), ": cluster: found no cluster"));
    EXPECT_TRUE(contains(of(R"({"model": "gpt2", "cluster": "dgx-h100", "training": {"sequence_length": 128}})"),
                         "training.global_batch_size: found no global_batch_size; expected a whole number, there or "
                         "with --global-batch-size"));
}

TEST(PlanOptions, OtherToolsNamesAreAnsweredWithOurs) {
    for (const auto& [theirs, ours] : {std::pair{"--tensor-model-parallel-size", "--tensor"},
                                       {"--tp", "--tensor"},
                                       {"--pipeline_model_parallel_size=2", "--pipeline"},
                                       {"--gbs", "--global-batch-size"},
                                       {"--seq-length", "--sequence-length"},
                                       {"--world-size", "--gpus"},
                                       {"--train_micro_batch_size_per_gpu", "--micro-batch-size"}}) {
        try {
            plan_of(with_gpt2({theirs, "2"}));
            ADD_FAILURE() << theirs;
        } catch (const UserError& e) {
            EXPECT_EQ(e.text().suggestion, ours) << theirs;
        }
    }
}

TEST(PlanOptions, EverySpellingOfRecomputeIsExplained) {
    const std::string help = call({"estimate", "--help"}).out;
    for (const char* spelling :
         {"none (", "selective (", "full (", "\"block N\" (", "\"segment N\" (", "\"every N\" ("})
        EXPECT_TRUE(contains(help, spelling)) << spelling << " in\n" << help;
    const Outcome no = call(gpt2("estimate", {"--recompute", "every 2"}));
    EXPECT_EQ(no.code, answer_is_no);
    EXPECT_TRUE(contains(no.out, "segment N")) << no.out;
    EXPECT_FALSE(contains(no.out, "segment_layers")) << no.out;
}

TEST(PlanOptions, AWrongValueIsNamedByItsOption) {
    EXPECT_EQ(complaint(with_gpt2({"--expert", "0"})).rfind("command line: --expert: found \"0\"", 0), 0u);
    for (const char* option : {"--precision", "--framework", "--schedule"}) {
        const std::string said = complaint(with_gpt2({option, "none-such"}));
        EXPECT_EQ(said.rfind(std::string("command line: ") + option + ": found \"none-such\"", 0), 0u) << said;
    }
    for (const char* option : {"--model", "--cluster"}) {
        const std::string said =
            complaint(std::string(option) == "--model" ? Arguments{option, "none-such"}
                                                       : Arguments{"--model", "gpt2", option, "none-such"});
        EXPECT_FALSE(contains(said, "object")) << said;
    }
    const PlanFile file(file_text);
    EXPECT_EQ(complaint({"--plan", file.path(), "--precision", "fp31"}).rfind("command line: --precision: ", 0), 0u);
}

}  // namespace
}  // namespace foretrain::cli
