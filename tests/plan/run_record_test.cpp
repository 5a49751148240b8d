#include "plan/run_record.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

// A record with these in place of its framework, model, training, parallelism and measurement.
struct Parts {
    std::string framework = R"("framework": "megatron-lm", "framework_release": "2021")";
    std::string model =
        R"("name": "GPT", "layers": 8, "hidden_size": 1024, "attention_heads": 16, "vocab_size": 51200)";
    std::string training = R"("global_batch_size": 32, "sequence_length": 2048, "precision": "fp16")";
    std::string parallelism = R"("tensor": 8, "zero_stage": 0)";
    std::string measured = R"("step_time_s": 2.5)";
    std::string gpu = "a100-sxm-80gb";
    std::string more = R"("notes": "kept", "anything": [1, 2])";
};

std::string line(const std::string& id, const Parts& p = {}) {
    return R"({"id": ")" + id + R"(", "source": "a paper", )" + p.framework + R"(, "model": {)" + p.model +
           R"(}, "cluster": {"gpu": ")" + p.gpu + R"(", "gpus": 8}, "training": {)" + p.training +
           R"(}, "parallelism": {)" + p.parallelism + R"(}, "measured": {)" + p.measured + "}, " + p.more + "}";
}

std::vector<RunRecord> records(const std::string& text) {
    std::vector<RunRecord> out;
    read_run_records(Json::parse_lines(text, "runs.jsonl"), out);
    return out;
}

RunRecord record(const Parts& p = {}) { return records(line("paper-t1-07", p)).at(0); }

TEST(RunRecord, IsAPlanWithWhatWasMeasured) {
    const RunRecord r =
        record({.measured = R"("step_time_s": 2.5, "peak_allocated_gib": 12, "peak_reserved_gib": null)"});
    EXPECT_EQ(r.id, "paper-t1-07");
    EXPECT_EQ(r.group, "paper-t1");
    EXPECT_EQ(r.source, "a paper");
    EXPECT_EQ(r.framework, "megatron-lm");
    EXPECT_EQ(r.place, "runs.jsonl:1");
    EXPECT_EQ(r.measured.step_time_s, 2.5);
    EXPECT_EQ(r.measured.peak_allocated_gib, 12);
    EXPECT_FALSE(r.measured.peak_reserved_gib.has_value());
    ASSERT_TRUE(r.plan.has_value()) << r.why;
    EXPECT_EQ(r.plan->framework, "megatron-lm@2021");
    EXPECT_EQ(r.plan->parallelism.tensor, 8);
    EXPECT_EQ(r.plan->training.precision, DType::fp16);
    EXPECT_TRUE(r.assumed.empty());
}

TEST(RunRecord, WhatAModelLeavesOutFollowsItsKind) {
    const ModelSpec gpt = record().plan->model;
    EXPECT_EQ(gpt.positions, Positions::learned);
    EXPECT_EQ(gpt.max_positions, 2048) << "as long as the sequence";
    EXPECT_EQ(gpt.norm, Norm::layernorm);
    EXPECT_TRUE(gpt.bias);
    Parts p;
    p.model += R"(, "gated_mlp": true, "ffn_hidden_size": 2816)";
    const ModelSpec llama = record(p).plan->model;
    EXPECT_EQ(llama.positions, Positions::rope);
    EXPECT_EQ(llama.norm, Norm::rmsnorm);
    EXPECT_EQ(llama.activation, Activation::silu);
    EXPECT_FALSE(llama.bias);
}

TEST(RunRecord, LayersThatDoNotDivideMayCountEmbeddingAndHead) {
    Parts p;
    p.model = R"("layers": 14, "hidden_size": 1024, "attention_heads": 16, "vocab_size": 51200)";
    p.parallelism = R"("pipeline": 8, "zero_stage": 0)";
    const RunRecord r = record(p);
    EXPECT_TRUE(r.plan->parallelism.embedding_and_head_as_layers);
    EXPECT_EQ(r.assumed.size(), 1u);
    p.parallelism += R"(, "first_stage_layers": 1, "last_stage_layers": 1)";
    EXPECT_FALSE(record(p).plan->parallelism.embedding_and_head_as_layers) << "it says how they are shared";
}

TEST(RunRecord, AnInterleavedScheduleHasChunks) {
    Parts p;
    p.parallelism = R"("pipeline": 4, "virtual_pipeline": 2, "schedule": "interleaved-1f1b", "zero_stage": 0)";
    const RunRecord r = record(p);
    EXPECT_EQ(r.plan->parallelism.schedule, Schedule::one_f_one_b);
    EXPECT_EQ(r.plan->parallelism.virtual_pipeline, 2);
    p.parallelism = R"("pipeline": 4, "virtual_pipeline": 1, "schedule": "interleaved-1f1b")";
    const RunRecord plain = record(p);
    ASSERT_TRUE(plain.plan.has_value()) << plain.why;
    EXPECT_EQ(plain.plan->parallelism.virtual_pipeline, 1);
    EXPECT_EQ(plain.assumed.back(), "one chunk a stage, though the schedule is an interleaved one");
}

// DeepSpeed's partition_balanced on 9 layers with embedding and head over 4 stages: 3, 3, 3 and what is left.
TEST(RunRecord, LayersThatDoNotDivideFillStagesWhereTheFrameworkDoesSo) {
    Parts p;
    p.framework = R"("framework": "megatron-deepspeed", "framework_detail": "bigscience")";
    p.model = R"("layers": 9, "hidden_size": 64, "attention_heads": 4, "vocab_size": 128)";
    p.parallelism = R"("pipeline": 4)";
    const RunRecord filled = record(p);
    ASSERT_TRUE(filled.plan.has_value()) << filled.why;
    EXPECT_EQ(filled.plan->parallelism.stage_layers, (std::vector<std::int64_t>{2, 3, 3, 1}));
    p.framework = R"("framework": "megatron-lm")";
    EXPECT_TRUE(record(p).plan->parallelism.stage_layers.empty()) << "who wants to be told is refused by check";
}

TEST(RunRecord, ShardedParametersAreThoseOfTheFrameworkThatHasThem) {
    const RunRecord r = record({.framework = R"("framework": "megatron-lm", "framework_release": "2025-01")",
                                .parallelism = R"("data": 8, "zero_stage": 3)"});
    ASSERT_TRUE(r.plan.has_value()) << r.why;
    EXPECT_EQ(r.plan->framework, "megatron-fsdp@2025");
    EXPECT_EQ(r.framework, "megatron-lm") << "as the record says";
}

TEST(RunRecord, ExpertsReachThePlan) {
    Parts p;
    p.model += R"(, "gated_mlp": true, "ffn_hidden_size": null, "moe": {"experts": 8, "topk": 2, "moe_ffn": 256})";
    p.framework = R"("framework": "megatron-lm@2024")";
    p.parallelism = R"("expert": 4, "zero_stage": 1)";
    const RunRecord r = record(p);
    ASSERT_TRUE(r.plan.has_value()) << r.why;
    EXPECT_EQ(r.plan->model.moe.experts, 8);
    EXPECT_EQ(r.plan->parallelism.expert, 4);
    EXPECT_TRUE(r.assumed.empty()) << "of one tensor rank there is nothing to assume";
    p.parallelism = R"("tensor": 2, "expert": 4, "zero_stage": 1)";
    EXPECT_EQ(record(p).plan->parallelism.expert_tensor, 1);
    ASSERT_EQ(record(p).assumed.size(), 1u);
    EXPECT_NE(record(p).assumed[0].find("expert_tensor 1"), std::string::npos);
    p.parallelism += R"(, "expert_tensor": 2)";
    EXPECT_EQ(record(p).plan->parallelism.expert_tensor, 2);
    EXPECT_TRUE(record(p).assumed.empty());
}

TEST(RunRecord, OverlapAndShardsReachThePlan) {
    Parts p;
    p.framework = R"("framework": "fsdp", "framework_detail": "torchtitan, FSDP2")";
    p.training = R"("global_batch_size": 32, "sequence_length": 2048, "compiled": true, "flash_attention": true)";
    p.parallelism = R"("zero_stage": 3, "zero_shard_size": 4, "overlap": {"gradient_reduce": false, "tensor": false})";
    const RunRecord r = record(p);
    ASSERT_TRUE(r.plan.has_value()) << r.why;
    EXPECT_EQ(r.plan->framework, "fsdp@torchtitan-compiled");
    EXPECT_EQ(r.plan->parallelism.zero_shard_size, 4);
    EXPECT_FALSE(r.plan->parallelism.overlap.gradient_reduce);
    EXPECT_TRUE(r.plan->parallelism.overlap.parameter_gather) << "left out: the profile's";
}

struct Refused {
    const char* reason;
    Parts parts;
};

TEST(RunRecord, WhatNoPlanCanSayIsRefusedWithTheReason) {
    const std::string training = Parts{}.training;
    const std::vector<Refused> cases{
        {"offload.optimizer nvme", {.parallelism = R"("offload": {"optimizer": "nvme"})"}},
        {"recompute.modules", {.parallelism = R"("recompute": {"modules": ["mlp"]})"}},
        {"framework colossalai", {.framework = R"("framework": "colossalai")"}},
        {"framework release", {.framework = R"("framework": "deepspeed", "framework_release": "0.7.2")"}},
        {"attention", {.training = training + R"(, "flash_attention": true)"}},
        {"compiled", {.training = training + R"(, "compiled": true)"}},
        {"gpu gtx-1080", {.gpu = "gtx-1080"}},
    };
    for (const Refused& c : cases) {
        const RunRecord r = record(c.parts);
        EXPECT_FALSE(r.plan.has_value()) << c.reason;
        EXPECT_EQ(r.refused, c.reason);
        EXPECT_FALSE(r.why.empty()) << c.reason;
        EXPECT_EQ(r.measured.step_time_s, 2.5) << "what was measured is kept";
    }
    const RunRecord bert = records(R"({"test": "bert/a", "env": "a100", "args": {"bf16": "true"}})").at(0);
    EXPECT_EQ(bert.refused, "BERT");
}

TEST(RunRecord, WhatAPlanDoesNotSayIsToldApart) {
    const RunRecord r = record({.training = Parts{}.training + R"(, "gradient_dtype": "bf16")"});
    ASSERT_TRUE(r.plan.has_value());
    EXPECT_TRUE(r.assumed.empty());
    EXPECT_EQ(r.plan->training.gradient_type, DType::bf16) << "as the run's";
    const RunRecord newest = record({.framework = R"("framework": "megatron-lm")"});
    EXPECT_EQ(newest.plan->framework, "megatron-lm@2024");
    EXPECT_EQ(newest.assumed.size(), 1u);
    EXPECT_TRUE(record({.framework = R"("framework": "megatron-lm@2022")"}).assumed.empty()) << "named";
}

// Each names the file, the line and the field.
TEST(RunRecord, WhatIsWrongIsAnError) {
    const auto error = [](const std::string& second) {
        const UserErrorText t = refusal([&] { records(line("a-1") + "\n\n" + second); });
        EXPECT_EQ(t.file, "runs.jsonl:3") << second;
        return t;
    };
    EXPECT_EQ(error("{\"id\": \"a-2\",}").field, "column 14");
    EXPECT_EQ(error("[]").field, "");
    EXPECT_EQ(error(line("a-1")).field, "id");
    EXPECT_NE(error(line("a-1")).expected.find("runs.jsonl:1"), std::string::npos);
    EXPECT_EQ(error(line("")).field, "id");
    EXPECT_EQ(error(R"({"id": "a-2"})").found, "no key \"measured\"");
    EXPECT_EQ(error(R"({"id": "a-2", "measured": {"step_time_s": 1}})").found, "no key \"model\"");
    EXPECT_EQ(error(line("a-2", {.measured = R"("step_time_s": "2.5")"})).field, "measured.step_time_s");
    EXPECT_EQ(error(line("a-2", {.measured = R"("step_time_s": 0)"})).field, "measured.step_time_s");
    EXPECT_EQ(error(line("a-2", {.measured = R"("peak_allocated_gib": -1)"})).field, "measured.peak_allocated_gib");
    EXPECT_EQ(error(line("a-2", {.parallelism = R"("tensr": 8)"})).suggestion, "tensor");
    EXPECT_EQ(error(line("a-2", {.model = R"("layers": 8, "hidden_sise": 4)"})).field, "model.hidden_sise");
    EXPECT_EQ(error(line("a-2", {.parallelism = R"("tensor": 0)"})).field, "parallelism.tensor");
    EXPECT_EQ(error(line("a-2", {.training = R"("global_batch_size": 32)"})).field, "training");
}

TEST(RunRecord, AnIdWithoutPartsBelongsToItsSource) { EXPECT_EQ(records(line("monday")).at(0).group, "a paper"); }

}  // namespace
}  // namespace foretrain
