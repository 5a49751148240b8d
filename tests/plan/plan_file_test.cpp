#include "plan/plan_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/check.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

// A plan file with these members of training and of parallelism, and more at its top.
std::string file(const std::string& training, const std::string& parallelism, const std::string& more = "") {
    return R"({"model": "llama-3-8b", "cluster": "dgx-h100", "training": {"global_batch_size": 32, "sequence_length": 4096)" +
           training + R"(}, "parallelism": {)" + parallelism + "}" + more + "}";
}

Plan plan(const std::string& text) { return plan_from_json(Json::parse(text, "plan.json")); }

std::string refused_field(const std::string& text) {
    const UserErrorText t = refusal([&] { plan(text); });
    EXPECT_EQ(t.file, "plan.json");
    EXPECT_FALSE(t.found.empty());
    EXPECT_FALSE(t.expected.empty());
    return t.field;
}

void expect_equal(const Plan& a, const Plan& b) {
    EXPECT_EQ(a.model, b.model);
    EXPECT_EQ(a.cluster, b.cluster);
    EXPECT_EQ(a.framework, b.framework);
    EXPECT_EQ(a.training, b.training);
    EXPECT_EQ(a.parallelism, b.parallelism);
}

TEST(PlanFile, FillsInWhatIsLeftOut) {
    const Plan p = plan(file("", R"("tensor": 2)"));
    EXPECT_EQ(p.framework, "megatron-lm");
    EXPECT_EQ(p.training.precision, DType::bf16);
    EXPECT_EQ(p.parallelism.data, 4);
    EXPECT_TRUE(p.parallelism.sequence_parallel);  // the framework's default
    EXPECT_EQ(p.parallelism.schedule, Schedule::one_f_one_b);
    EXPECT_EQ(p.parallelism.recompute, Recompute{});
    EXPECT_TRUE(p.parallelism.overlap.gradient_reduce);
    EXPECT_FALSE(plan(file("", "")).parallelism.sequence_parallel);
    EXPECT_FALSE(plan(file("", R"("tensor": 2, "sequence_parallel": false)")).parallelism.sequence_parallel);
    EXPECT_FALSE(plan(file("", R"("tensor": 2)", R"(, "framework": "foretrain")")).parallelism.sequence_parallel);
    EXPECT_FALSE(plan(file("", R"("tensor": 3)")).parallelism.sequence_parallel);  // does not divide 4096
    EXPECT_EQ(plan(file("", R"("tensor": 3)")).parallelism.data, 1);               // check() refuses it
}

TEST(PlanFile, ReadsEveryField) {
    const Plan p = plan(file(
        R"(, "precision": "fp16", "learning_rate": 0.01, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-6, "weight_decay": 0)",
        R"("tensor": 2, "pipeline": 2, "data": 2, "sequence_parallel": true, "zero_stage": 1, "micro_batch_size": 4,
           "schedule": "gpipe", "recompute": {"segment_layers": 4}, "stage_layers": [20, 12],
           "overlap": {"gradient_reduce": false, "parameter_gather": false})",
        R"(, "framework": {"name": "foretrain"}, "format": "foretrain.plan/1")"));
    EXPECT_EQ(p.framework, "foretrain");
    EXPECT_EQ(p.training.precision, DType::fp16);
    EXPECT_EQ(p.training.learning_rate, 0.01);
    EXPECT_EQ(p.training.beta1, 0.8);
    EXPECT_EQ(p.training.beta2, 0.9);
    EXPECT_EQ(p.training.epsilon, 1e-6);
    EXPECT_EQ(p.training.weight_decay, 0);
    EXPECT_EQ(describe(p.parallelism), "tp 2 pp 2 dp 2 zero 1 mbs 4 gpipe sp recompute segment 4 layers 20,12");
    EXPECT_FALSE(p.parallelism.overlap.gradient_reduce);
    EXPECT_FALSE(p.parallelism.overlap.parameter_gather);
    EXPECT_EQ(plan(file("", R"("recompute": "full")")).parallelism.recompute.kind, Recompute::Kind::full);
    EXPECT_EQ(plan(file("", R"("recompute": {"block_layers": 3})")).parallelism.recompute,
              (Recompute{Recompute::Kind::block, 3}));
    EXPECT_EQ(plan(file("", R"("recompute": {"every": 2})")).parallelism.recompute,
              (Recompute{Recompute::Kind::every, 2}));
    expect_equal(p, plan(plan_to_json(p).dump()));
}

TEST(PlanFile, ReadsEveryStageLayout) {
    const auto read = [](const char* parallelism) {
        const Plan p = plan(file("", parallelism));
        expect_equal(p, plan(plan_to_json(p).dump()));
        return describe(p.parallelism);
    };
    EXPECT_EQ(read(R"("pipeline": 4, "virtual_pipeline": 2)"), "tp 1 pp 4 v 2 dp 2 zero 0 mbs 1 1f1b recompute none");
    EXPECT_EQ(read(R"("pipeline": 2, "virtual_pipeline": 2, "stage_layers": [9, 8, 8, 7])"),
              "tp 1 pp 2 v 2 dp 4 zero 0 mbs 1 1f1b recompute none layers 9,8,8,7");
    EXPECT_EQ(read(R"("pipeline": 4, "first_stage_layers": 7, "last_stage_layers": 5)"),
              "tp 1 pp 4 dp 2 zero 0 mbs 1 1f1b recompute none first 7 last 5");
    EXPECT_EQ(read(R"("pipeline": 2, "embedding_and_head_as_layers": true)"),
              "tp 1 pp 2 dp 4 zero 0 mbs 1 1f1b recompute none embedding and head as layers");
    EXPECT_EQ(refused_field(file("", R"("virtual_pipeline": 0)")), "parallelism.virtual_pipeline");
    EXPECT_EQ(refused_field(file("", R"("first_stage_layers": 0)")), "parallelism.first_stage_layers");
    EXPECT_EQ(refused_field(file("", R"("last_stage_layers": -1)")), "parallelism.last_stage_layers");
    EXPECT_EQ(refused_field(file("", R"("embedding_and_head_as_layers": 1)")),
              "parallelism.embedding_and_head_as_layers");
}

TEST(PlanFile, WhatIsWrittenStandsAlone) {
    Plan p = plan(file("", R"("tensor": 2, "pipeline": 4)"));
    p.cluster.nodes = 5;
    p.parallelism.data = 5;
    const Json written = plan_to_json(p);
    EXPECT_TRUE(written.at("model").is_object());
    EXPECT_TRUE(written.at("cluster").at("device").is_object());
    expect_equal(p, plan_from_json(Json::parse(written.dump(), "x")));
    EXPECT_EQ(plan_to_json(plan_from_json(Json::parse(written.dump(), "x"))).dump(), written.dump());
}

TEST(PlanFile, AcceptsNeutralValuesOfWhatIsNotBuiltYet) {
    const Plan p = plan(file(
        R"(, "precision": "bf16", "optimizer": "adamw", "flash_attention": true, "attention": null, "cross_entropy": null,
             "dropout": null, "gradient_dtype": null, "optimizer_dtype": null, "fused_gradient_accumulation": null,
             "compiled": false)",
        R"("virtual_pipeline": 1, "context": 1, "expert": 1, "sequence_parallel": null, "zero_shard_size": null,
           "schedule": null, "recompute": "none", "offload": null,
           "overlap": {"gradient_reduce": true, "parameter_gather": true, "tensor": false, "pipeline": null})"));
    expect_equal(p, plan(file("", "")));
    expect_equal(plan(file("", R"("overlap": null)")), p);
}

TEST(PlanFile, ContextRanksTakeTheirShareOfTheDevices) {
    const std::int64_t data = plan(file("", "")).parallelism.data;
    const Plan p = plan(file("", R"("context": 2, "context_method": "all-to-all")"));
    EXPECT_EQ(p.parallelism.context, 2);
    EXPECT_EQ(p.parallelism.context_method, ContextMethod::all_to_all);
    EXPECT_EQ(p.parallelism.data, data / 2);
    EXPECT_EQ(p.grid().size(Axis::replica), data);
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    EXPECT_EQ(plan(file("", R"("context": 2)")).parallelism.context_method, ContextMethod::ring);
    EXPECT_EQ(refused_field(file("", R"("context": 0)")), "parallelism.context");
    EXPECT_EQ(refused_field(file("", R"("context_method": "p2p")")), "parallelism.context_method");
}

TEST(PlanFile, ExpertsAreSharedOut) {
    const Plan p = plan(file(R"(, "expert_imbalance": 1.25)", R"("tensor": 2, "expert": 4, "expert_tensor": 2)"));
    EXPECT_EQ(p.parallelism.expert, 4);
    EXPECT_EQ(p.parallelism.expert_tensor, 2);
    EXPECT_EQ(p.training.expert_imbalance, 1.25);
    EXPECT_EQ(p.grid().size(Axis::expert), 4);
    EXPECT_EQ(p.grid().size(Axis::expert_tensor), 2);
    EXPECT_NE(describe(p.parallelism).find("tp 2 ep 4 etp 2 pp 1"), std::string::npos) << describe(p.parallelism);
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    const Plan none = plan(file("", ""));
    EXPECT_EQ(none.parallelism.expert, 1);
    EXPECT_EQ(none.parallelism.expert_tensor, 1);
    EXPECT_EQ(none.training.expert_imbalance, 0) << "the profile's";
    EXPECT_EQ(describe(none.parallelism).find(" ep"), std::string::npos);
    EXPECT_EQ(refused_field(file("", R"("expert": 0)")), "parallelism.expert");
    EXPECT_EQ(refused_field(file("", R"("expert_tensor": 1.5)")), "parallelism.expert_tensor");
    EXPECT_EQ(refused_field(file(R"(, "expert_imbalance": 0.5)", "")), "training.expert_imbalance");
}

TEST(PlanFile, MessagesMayHoldUpComputing) {
    const Plan all = plan(file("", "")), held = plan(file("", R"("overlap": {"pipeline": false})"));
    EXPECT_FALSE(held.parallelism.overlap.pipeline);
    EXPECT_TRUE(held.parallelism.overlap.gradient_reduce);
    expect_equal(all, plan(file("", R"("overlap": {"pipeline": true})")));
    expect_equal(held, plan(plan_to_json(held).dump()));
    EXPECT_EQ(refused_field(file("", R"("overlap": {"pipeline": 0})")), "parallelism.overlap.pipeline");
}

TEST(PlanFile, ZeroMayShardOverAPartOfTheReplicas) {
    const Plan p = plan(file("", R"("zero_stage": 3, "zero_shard_size": 4)"));
    EXPECT_EQ(p.parallelism.zero_shard_size, 4);
    EXPECT_EQ(p.grid().size(Axis::shard), 4);
    EXPECT_EQ(describe(p.parallelism), "tp 1 pp 1 dp 8 zero 3/4 mbs 1 1f1b recompute none");
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    const Plan all = plan(file("", R"("zero_stage": 3)"));
    expect_equal(all, plan(file("", R"("zero_stage": 3, "zero_shard_size": 0)")));
    expect_equal(all, plan(file("", R"("zero_stage": 3, "zero_shard_size": null)")));
    EXPECT_TRUE(plan_to_json(all).at("parallelism").at("zero_shard_size").is_null());
    for (const char* wrong : {"-1", "2.5", "\"4\"", "true", "[4]"})
        EXPECT_EQ(refused_field(file("", std::string("\"zero_shard_size\": ") + wrong)), "parallelism.zero_shard_size");
}

TEST(PlanFile, OffloadIsSavedAsItWasStated) {
    const Plan p = plan(file("", R"("offload": {"optimizer": "cpu", "activation_layers": 3})"));
    EXPECT_TRUE(p.parallelism.optimizer_on_host);
    EXPECT_EQ(p.parallelism.recompute, (Recompute{Recompute::Kind::offload, 3}));
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    expect_equal(plan(file("", "")), plan(file("", R"("offload": null)")));
    const Plan operators = plan(file("", R"("recompute": "selective_op")"));
    expect_equal(operators, plan_from_json(Json::parse(plan_to_json(operators).dump(), "x")));
}

// One word says what the products of the layers compute in, over tensors in bf16.
TEST(PlanFile, QuantisedPrecisionsAreOneWord) {
    for (const DType type : {DType::fp8, DType::mxfp8, DType::nvfp4}) {
        const std::string word(name_of(type));
        const Plan p = plan(file(R"(, "precision": ")" + word + '"', ""));
        EXPECT_EQ(p.training.precision, DType::bf16);
        EXPECT_EQ(p.training.products, type);
        EXPECT_EQ(plan_to_json(p).at("training").at("precision").string(), word);
        expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    }
    EXPECT_EQ(plan(file(R"(, "precision": "fp16")", "")).training.products, std::nullopt);
}

TEST(PlanFile, TensorOverlapIsTheFrameworksUnlessStated) {
    const std::string bridge = R"(, "framework": "megatron-lm@2025-bridge")";
    EXPECT_FALSE(plan(file("", "")).parallelism.overlap.tensor);
    EXPECT_TRUE(plan(file("", "", bridge)).parallelism.overlap.tensor);
    EXPECT_FALSE(plan(file("", R"("overlap": {"tensor": false})", bridge)).parallelism.overlap.tensor);
    const Plan p = plan(file("", R"("tensor": 2, "overlap": {"tensor": true})"));
    EXPECT_TRUE(p.parallelism.overlap.tensor);
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
}

TEST(PlanFile, WhatAProfileLeavesOpenMayBeSaid) {
    const Plan p = plan(file(R"(, "attention": "cudnn", "cross_entropy": "native", "dropout": {"hidden": 0.1},
                                 "gradient_dtype": "bf16", "fused_gradient_accumulation": false, "compiled": true,
                                 "software": {"deterministic": true, "attention_mask": false})",
                             ""));
    EXPECT_EQ(p.training.attention, AttentionKind::cudnn);
    EXPECT_EQ(p.training.cross_entropy, CrossEntropy::native);
    EXPECT_EQ(p.training.hidden_dropout, 0.1);
    EXPECT_EQ(p.training.attention_dropout, std::nullopt);
    EXPECT_EQ(p.training.gradient_type, DType::bf16);
    EXPECT_EQ(p.training.fused_gradient_accumulation, false);
    EXPECT_EQ(p.training.compiled, true);
    EXPECT_TRUE(p.training.software.deterministic);
    EXPECT_EQ(p.training.software.attention_mask, false);
    expect_equal(p, plan_from_json(Json::parse(plan_to_json(p).dump(), "x")));
    EXPECT_EQ(plan(file(R"(, "flash_attention": false)", "")).training.attention, AttentionKind::unfused);
    EXPECT_EQ(plan(file(R"(, "dropout": 0.2)", "")).training.attention_dropout, 0.2);
}

TEST(PlanFile, RefusesByNameWhatIsNotBuiltYet) {
    EXPECT_EQ(refused_field(file("", R"("offload": {"optimizer": "nvme"})")), "parallelism.offload.optimizer");
    EXPECT_EQ(refused_field(file("", R"("offload": {"parameters": "cpu"})")), "parallelism.offload.parameters");
    EXPECT_EQ(refused_field(file("", R"("recompute": "full", "offload": {"activation_layers": 2})")),
              "parallelism.offload.activation_layers");
    EXPECT_EQ(refused_field(file("", R"("schedule": "interleaved-1f1b")")), "parallelism.schedule");
    EXPECT_EQ(refused_field(file("", R"("recompute": {"modules": ["mlp"]})")), "parallelism.recompute.modules");
    EXPECT_EQ(refused_field(file(R"(, "attention": "flash4")", "")), "training.attention");
    EXPECT_EQ(refused_field(file(R"(, "attention": "cudnn", "flash_attention": false)", "")),
              "training.flash_attention");
    EXPECT_EQ(refused_field(file(R"(, "cross_entropy": "liger")", "")), "training.cross_entropy");
    EXPECT_EQ(refused_field(file(R"(, "dropout": 1)", "")), "training.dropout");
    EXPECT_EQ(refused_field(file(R"(, "optimizer_dtype": "bf16")", "")), "training.optimizer_dtype");
    EXPECT_EQ(refused_field(file(R"(, "software": {"fast": true})", "")), "training.software.fast");
    EXPECT_EQ(refused_field(file(R"(, "optimizer": "sgd")", "")), "training.optimizer");
    EXPECT_EQ(refused_field(file(R"(, "precision": "fp4")", "")), "training.precision");
    EXPECT_EQ(refused_field(file("", "", R"(, "framework": {"name": "foretrain", "overrides": {"a": 1}})")),
              "framework.overrides.a");
}

TEST(PlanFile, RefusesUnknownKeysAndWrongValues) {
    EXPECT_EQ(refused_field(file("", R"("tensr": 2)")), "parallelism.tensr");
    EXPECT_EQ(refused_field(file(R"(, "lr": 2)", "")), "training.lr");
    EXPECT_EQ(refused_field(file("", "", R"(, "paralelism": {})")), "paralelism");
    EXPECT_EQ(refused_field(file("", R"("overlap": {"gradient": true})")), "parallelism.overlap.gradient");
    EXPECT_EQ(refused_field(file("", R"("tensor": 0)")), "parallelism.tensor");
    EXPECT_EQ(refused_field(file("", R"("tensor": -1)")), "parallelism.tensor");
    EXPECT_EQ(refused_field(file("", R"("tensor": 1.5)")), "parallelism.tensor");
    EXPECT_EQ(refused_field(file("", R"("tensor": "2")")), "parallelism.tensor");
    EXPECT_EQ(refused_field(file("", R"("data": 1000000000000000000)")), "parallelism.data");
    EXPECT_EQ(refused_field(file("", R"("zero_stage": 4)")), "parallelism.zero_stage");
    EXPECT_EQ(refused_field(file("", R"("sequence_parallel": 1)")), "parallelism.sequence_parallel");
    EXPECT_EQ(refused_field(file("", R"("schedule": "1f1")")), "parallelism.schedule");
    EXPECT_EQ(refused_field(file("", R"("recompute": {})")), "parallelism.recompute");
    EXPECT_EQ(refused_field(file("", R"("recompute": 3)")), "parallelism.recompute");
    EXPECT_EQ(refused_field(file("", R"("recompute": {"block_layers": 1, "every": 2})")), "parallelism.recompute");
    EXPECT_EQ(refused_field(file("", R"("recompute": {"block_layers": 0})")), "parallelism.recompute.block_layers");
    EXPECT_EQ(refused_field(file("", R"("stage_layers": [16, 0])")), "parallelism.stage_layers[1]");
    EXPECT_EQ(refused_field(file("", R"("stage_layers": 16)")), "parallelism.stage_layers");
    EXPECT_EQ(refused_field(file(R"(, "precision": "bf61")", "")), "training.precision");
    EXPECT_EQ(refused_field(file(R"(, "beta1": 1)", "")), "training.beta1");
    EXPECT_EQ(refused_field(file(R"(, "learning_rate": -1)", "")), "training.learning_rate");
    EXPECT_EQ(refused_field(file("", "", R"(, "framework": "megatron")")), "framework");
    EXPECT_EQ(refused_field(file("", "", R"(, "framework": {"name": "foretrain", "version": "9"})")),
              "framework.version");
    EXPECT_EQ(refused_field(file("", "", R"(, "format": "foretrain.plan/2")")), "format");
    refusal([] { plan("[]"); });
    refusal([] { plan("{}"); });
    refusal([] { plan(R"({"model": "llama-3-8b", "cluster": "dgx-h100"})"); });
    EXPECT_EQ(refused_field(R"({"model": "llama-3-8", "cluster": "dgx-h100", "training": {}})"), "model");
    EXPECT_EQ(refused_field(R"({"model": "llama-3-8b", "cluster": "dgx", "training": {}})"), "cluster");
}

TEST(PlanFile, ARunRecordKeepsWhatItLikesAtItsTop) {
    expect_equal(plan(file("", "", R"(, "id": "run-1", "measured": {"step_time_s": 1}, "anything": [1])")),
                 plan(file("", "")));
    EXPECT_EQ(refused_field(file("", R"("anything": 1)", R"(, "id": "run-1")")), "parallelism.anything");
}

TEST(PlanFile, PathsAreRelativeToThePlan) {
    const auto folder = std::filesystem::temp_directory_path() / "foretrain_plan_file_test";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "m.json") << model_to_json(read_model("gpt2")).dump();
    std::ofstream(folder / "c.json") << cluster_to_json(read_cluster("dgx-a100")).dump();
    std::ofstream(folder / "plan.json")
        << R"({"model": "m.json", "cluster": "./c.json", "training": {"global_batch_size": 8, "sequence_length": 1024}})";
    const Plan p = plan_from_json(Json::parse_file((folder / "plan.json").string()));
    EXPECT_EQ(p.model, read_model("gpt2"));
    EXPECT_EQ(p.cluster, read_cluster("dgx-a100"));
    EXPECT_EQ(p.parallelism.data, 8);
    std::filesystem::remove_all(folder);
}

// Whatever is done to a file, it reads or is refused by UserError; nothing else escapes.
TEST(PlanFile, SurvivesBrokenFiles) {
    const std::string whole = plan_to_json(plan(file("", R"("tensor": 2, "recompute": {"block_layers": 2})"))).dump();
    for (std::size_t cut = 0; cut < whole.size(); cut += 7) refusal([&] { plan(whole.substr(0, cut)); });
    std::mt19937 random(1);
    constexpr char raw[] = "0123456789-+.eE\"{}[]:,nulltrue \n\0\xff";
    const std::string bytes(raw, sizeof raw - 1);
    int read = 0;
    for (int i = 0; i < 3000; ++i) {
        std::string text = whole;
        for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
            text[random() % text.size()] = bytes[random() % bytes.size()];
        try {
            const Plan p = plan(text);
            check(p);
            plan_to_json(p).dump();
            ++read;
        } catch (const UserError& e) {
            EXPECT_NE(std::string(e.what()), "");
        }
    }
    EXPECT_GT(read, 0);
}

TEST(PlanFile, ReadsTheWordsOfTheCommandLine) {
    EXPECT_EQ(recompute_from_text("none"), Recompute{});
    EXPECT_EQ(recompute_from_text("selective").kind, Recompute::Kind::selective);
    for (const Recompute& r : {Recompute{Recompute::Kind::block, 2}, Recompute{Recompute::Kind::segment, 4},
                               Recompute{Recompute::Kind::every, 3}, Recompute{Recompute::Kind::full, 0}})
        EXPECT_EQ(recompute_from_text(describe(r)), r);
    for (const char* text :
         {"", "block", "block 0", "block -1", "block x", "block 2x", "block 99999999999999999999", "blok 2", "full 2"})
        refusal([&] { recompute_from_text(text); });
    EXPECT_EQ(schedule_from_text("gpipe"), Schedule::gpipe);
    EXPECT_EQ(schedule_from_text("1f1b"), Schedule::one_f_one_b);
    EXPECT_EQ(refusal([] { schedule_from_text("gpip"); }).suggestion, "gpipe");
}

}  // namespace
}  // namespace foretrain
