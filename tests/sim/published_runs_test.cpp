// Predictions of whole steps against runs that others published, which live outside the repository
// (FORETRAIN_REFERENCE): dense models in 16 bits, in the profile of the software that ran them. The profiles'
// figures rest in part on the same runs, so this says that the program applies them, not how well they
// predict a run never seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "base/error.h"
#include "plan/plan_file.h"
#include "sim/predict.h"
#include "tests/sim/support/reference.h"

namespace foretrain {
namespace {

using namespace support;

// Which profile ran the records whose ids begin so.
const std::map<std::string, std::string> profiles{{"korthikanti", "megatron-lm@2022"},
                                                  {"sc21-t1", "megatron-lm@2021"},
                                                  {"vtrain-single", "megatron-deepspeed@2022"},
                                                  {"vtrain-multi", "megatron-deepspeed@2022"},
                                                  {"bloom-prequel", "megatron-deepspeed@2022-bigscience"},
                                                  {"simumax-b200", "megatron-lm@2024"},
                                                  {"mlm-golden", "megatron-lm@2024"},
                                                  {"torchtitan", "fsdp@torchtitan"},
                                                  {"llmfoundry", "fsdp@composer"}};

std::string source_of(const std::string& id) { return id.substr(0, id.rfind('-')); }

// Records leave out what a model file states; by the rest they are GPTs or Llamas.
Json model_of(const Json& record, std::int64_t sequence) {
    Json model = Json::object();
    for (const std::string& key : record.keys())
        if (record.has(key)) model.set(key, record.at(key));
    const bool llama = record.at("gated_mlp").boolean();
    model.set("positions", llama ? "rope" : "learned").set("norm", llama ? "rmsnorm" : "layernorm");
    model.set("activation", llama ? "silu" : "gelu").set("bias", !llama);
    if (!llama) model.set("max_positions", std::max<std::int64_t>(sequence, 2048));
    return model;
}

Json parallelism_of(const Json& record, std::int64_t layers) {
    Json p = Json::object();
    for (const std::string& key : record.keys())
        if (record.has(key) && key != "zero_shard_size" && key != "overlap") p.set(key, record.at(key));
    if (p.has("schedule")) p.set("schedule", "1f1b");
    const std::int64_t chunks = record.at("pipeline").integer(1, 1000) * record.at("virtual_pipeline").integer(1, 1000);
    if (layers % chunks != 0 && (layers + 2) % chunks == 0) p.set("embedding_and_head_as_layers", true);
    if (!record.has("overlap")) return p;
    Json overlap = Json::object();
    for (const char* key : {"gradient_reduce", "parameter_gather"})
        if (record.at("overlap").has(key)) overlap.set(key, record.at("overlap").at(key));
    return p.set("overlap", std::move(overlap));
}

// Nothing where a plan cannot say it.
std::optional<Plan> plan_of(const Json& record) {
    const auto profile = profiles.find(source_of(record.at("id").string()));
    const Json training = record.at("training"), model = record.at("model");
    if (profile == profiles.end() || model.has("moe") || !record.at("measured").has("step_time_s")) return {};
    Json t = Json::object();
    for (const char* key : {"global_batch_size", "sequence_length", "precision"}) t.set(key, training.at(key));
    const std::int64_t sequence = training.at("sequence_length").integer(1, 1 << 30);
    Json root = Json::object();
    root.set("model", model_of(model, sequence))
        .set("cluster", record.at("cluster"))
        .set("framework", profile->second)
        .set("training", std::move(t))
        .set("parallelism", parallelism_of(record.at("parallelism"), model.at("layers").integer(1, 1000)));
    try {
        return plan_from_json(Json::parse(root.dump(), record.at("id").string()));
    } catch (const UserError&) {
        return {};  // fp8, operator-level recompute, experts: not described yet
    }
}

TEST(PublishedRuns, StepsAreAsMeasured) {
    const auto path = reference_file("published_runs.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with published_runs.jsonl: steps NOT checked";
    std::map<std::string, std::vector<double>> by_source;
    std::vector<double> errors, with_stages;
    std::ifstream lines(*path);
    for (std::string line; std::getline(lines, line);) {
        const Json record = Json::parse(line, *path);
        const std::optional<Plan> plan = plan_of(record);
        if (!plan) continue;
        const Prediction p = estimate(*plan);
        if (p.step == Time{}) continue;  // refused
        const double error = seconds(p.step) / record.at("measured").at("step_time_s").number(0, 1e6) - 1;
        by_source[source_of(record.at("id").string())].push_back(std::fabs(error));
        errors.push_back(std::fabs(error));
        if (plan->parallelism.pipeline > 1) with_stages.push_back(std::fabs(error));
    }
    for (const auto& [source, of] : by_source)
        std::printf("%-14s %3zu runs, median error %4.1f %%\n", source.c_str(), of.size(), 100 * median(of));
    std::printf("all            %3zu runs, median error %4.1f %%\n", errors.size(), 100 * median(errors));
    std::printf("with pipelines %3zu runs, median error %4.1f %%\n", with_stages.size(), 100 * median(with_stages));
    EXPECT_GT(errors.size(), 300U);
    EXPECT_LT(median(errors), 0.08);
    for (const auto& [source, of] : by_source) EXPECT_LT(median(of), 0.2) << source;
}

}  // namespace
}  // namespace foretrain
