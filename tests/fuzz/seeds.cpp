// Writes what the fuzzers begin with, a folder for each: small examples of every form, made by the
// writers themselves.
//
//   fuzz_seeds FOLDER
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "models/hugging_face.h"
#include "models/model_file.h"
#include "plan/framework.h"
#include "plan/framework_file.h"
#include "plan/plan_file.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "plan/program/trace.h"
#include "sim/predict.h"
#include "tests/fuzz/support/fuzz.h"
#include "tests/plan/support/small_plans.h"

using namespace foretrain;
using namespace foretrain::testing;

namespace {

class Seeds {
public:
    explicit Seeds(std::filesystem::path root) : root_(std::move(root)) {}
    void add(const std::string& target, const std::string& text) {
        const std::filesystem::path folder = root_ / target;
        std::filesystem::create_directories(folder);
        std::ofstream(folder / fmt::format("seed{}", number_++), std::ios::binary) << text;
    }

private:
    std::filesystem::path root_;
    int number_ = 0;
};

Plan two_stages() { return fuzz::linked(small_plan(small_gpt(true), {.pipeline = 2})); }

void add_models(Seeds& seeds) {
    for (const char* name : {"gpt2", "llama-3-8b", "gemma-2-9b", "falcon-7b", "bloom-560m"}) {
        const std::vector<std::string> names = model_preset_names();
        if (std::find(names.begin(), names.end(), name) == names.end()) continue;
        seeds.add("model", model_to_json(read_model(name)).dump());
    }
    seeds.add("model", model_to_json(small_llama()).dump());
    seeds.add("model", R"({"layers": 4, "hidden_size": 16, "attention_heads": 4, "vocab_size": 60})");
    seeds.add("model", R"("gpt2")");
}

// Every type with its class's own sizes, with those that most files state, and with GPT-2's names of them.
void add_configs(Seeds& seeds) {
    for (const std::string& type : supported_model_types()) {
        seeds.add("hugging_face", fmt::format(R"({{"model_type": "{}"}})", type));
        seeds.add("hugging_face", fmt::format(R"({{"model_type": "{}", "hidden_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 500,
 "max_position_embeddings": 128, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}})",
                                              type));
        seeds.add("hugging_face", fmt::format(R"({{"architectures": ["XForCausalLM"], "model_type": "{}", "n_embd": 64,
 "n_layer": 2, "n_head": 8, "n_inner": null, "n_positions": 128, "vocab_size": 500}})",
                                              type));
        seeds.add("hugging_face",
                  fmt::format(R"({{"model_type": "llava", "text_config": {{"model_type": "{}"}}}})", type));
    }
    seeds.add("hugging_face", R"({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2, "expansion_ratio": 4,
 "attn_config": {"alibi": true, "attn_type": "grouped_query_attention", "kv_n_heads": 2, "attn_impl": "torch"}})");
    seeds.add("hugging_face", R"({"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 6,
 "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 256, "rope_scaling": {"factor": 8}})");
}

void add_hardware(Seeds& seeds) {
    const ClusterSpec small = two_stages().cluster;
    seeds.add("cluster", cluster_to_json(small).dump());
    seeds.add("device", device_to_json(small.device).dump());
    seeds.add("cluster", R"("dgx-a100")");
    seeds.add("cluster", R"({"like": "dgx-h100", "nodes": 4, "network": {"fabric": "roce", "nics_per_node": 4,
 "nic_bytes_per_second": 50e9, "oversubscription": 2, "leaf_nodes": 16, "measured_bus_gbps": {"all_reduce": 171, "source": "x"}},
 "domain": {"measured_bus_gbps": {"all_reduce": 465, "all_gather": 352, "pairwise": 310, "source": "x", "spread": 0.1}}})");
    seeds.add("cluster", R"({"gpu": "h100-sxm-80gb", "gpus": 16, "gpus_per_node": 8, "intra_node": "nvlink4",
 "inter_node_gbps_per_node": 3200, "fabric": "roce", "oversubscription": 2, "leaf_nodes": 8})");
    seeds.add("cluster",
              R"({"gpu": "gb200-186gb", "gpus": 144, "gpus_per_node": 4, "inter_node_gbps_per_node": 1600})");
    seeds.add("cluster",
              R"({"device": {"name": "x", "memory_bytes": 8589934592, "memory_bandwidth_bytes_per_second": 1e12,
 "peak_flops_per_second": {"bf16": 1e14}}, "nodes": 1})");
    seeds.add("device", R"({"name": "x", "memory_bytes": 8589934592, "memory_bandwidth_bytes_per_second": 1e12,
 "peak_flops_per_second": {"bf16": 1e14, "fp32": 1e13}, "calibration": {"like": "h100-sxm-80gb", "spread": 0.06, "reason": "y"}})");
    seeds.add("device", R"({"name": "x", "memory_bytes": 8589934592, "memory_bandwidth_bytes_per_second": 1e12,
 "peak_flops_per_second": {"bf16": 1e14, "fp32": 1e13}, "calibration": {"gemm": [
  {"dtype": "fp16", "like": "a100-sxm-80gb", "spread": 0.15, "reason": "y", "sustained": 0},
  {"dtype": "fp32", "like": "fp16", "spread": 0.25, "reason": "z"},
  {"dtype": "bf16", "efficiency": 0.9, "tiles": [[128, 256], [64, 64]], "splits": [1, 2, 4]}]}})");
}

void add_plans(Seeds& seeds) {
    const std::vector<Plan> plans = varied_plans();
    for (std::size_t i = 0; i < plans.size(); i += 11) {
        Plan plan = fuzz::linked(plans[i]);
        plan.training.global_batch_size = plan.parallelism.micro_batch_size * plan.parallelism.data;
        seeds.add("plan", plan_to_json(plan).dump(-1));
    }
    seeds.add("plan", R"({"format": "foretrain.plan/1", "model": "gpt2", "cluster": {"like": "dgx-h100", "nodes": 2},
 "framework": "megatron-lm", "training": {"global_batch_size": 16, "sequence_length": 128, "precision": "bf16"},
 "parallelism": {"tensor": 4, "pipeline": 2, "sequence_parallel": true, "zero_stage": 1, "micro_batch_size": 1,
 "schedule": "1f1b", "recompute": {"block_layers": 1}, "overlap": {"gradient_reduce": true, "parameter_gather": false}}})");
    std::string record = R"({"id": "a-1", "source": "b", "framework": "megatron-lm", "framework_release": "25.09",
 "framework_detail": "TE 2.1", "model": {"layers": 4, "hidden_size": 64, "attention_heads": 4, "vocab_size": 60},
 "cluster": {"gpu": "h100-sxm-80gb", "gpus": 8}, "training": {"global_batch_size": 16, "sequence_length": 128,
 "flash_attention": true, "compiled": false, "gradient_dtype": "bf16"}, "parallelism": {"tensor": 2, "pipeline": 2,
 "virtual_pipeline": 2, "schedule": "interleaved-1f1b"}, "measured": {"step_time_s": 1.5, "peak_allocated_gib": 2}})";
    std::replace(record.begin(), record.end(), '\n', ' ');  // one a line
    seeds.add("run_record", record);
    seeds.add("run_record", R"({"args": {"bf16": "true"}, "world_size": 8})");
    for (const char* words :
         {"estimate\n--model\ngpt2\n--cluster\ndgx-a100\n--global-batch-size\n8\n--sequence-length\n64",
          "estimate\n--model=gpt-mini\n--cluster=dgx-h100\n--nodes=2\n--global-batch-size=32\n"
          "--sequence-length=64\n--tensor=2\n--pipeline=2\n--data=4\n--zero-stage=1\n"
          "--recompute=block 1\n--sequence-parallel=on\n--precision=bf16\n--stage-layers=2,2",
          "estimate\n--model\nllama-mini\n--cluster\ndgx-a100\n--gpus\n4\n--framework\nforetrain\n"
          "--schedule\ngpipe\n--global-batch-size\n8\n--sequence-length\n64\n"
          "--overlap-gradient-reduce\noff\n--learning-rate\n0.1",
          "sweep\n--model\ngpt2\n--cluster\ndgx-a100\n--global-batch-size\n8\n--sequence-length\n64",
          "models\nshow\ngpt2", "clusters\nshow\ndgx-a100\n--format\njson", "help\nestimate"})
        seeds.add("options", words);
}

void add_programs(Seeds& seeds) {
    const auto add = [&](const Parallelism& parallelism, const ModelSpec& model) {
        Plan plan = small_plan(model, parallelism);
        plan.model.layers = parallelism.pipeline;
        plan.training.global_batch_size = parallelism.data;
        const Skeleton skeleton = make_skeleton(plan);
        const Program program = lower(skeleton);
        seeds.add("program", to_text(program));
        seeds.add("program", to_text(unroll(skeleton)));
        for (const StageProgram& stage : program.stages)
            for (const KernelArgs& args : stage.kernels) seeds.add("kernel_args", to_text(args));
    };
    add({}, small_gpt(true));
    add({.pipeline = 2}, small_gpt(true));
    add({.tensor = 2, .sequence_parallel = true}, small_llama());
    add({.data = 2, .zero_stage = 3, .recompute = {Recompute::Kind::full, 0}}, small_gpt(false));
    add({.data = 4, .zero_stage = 2, .zero_shard_size = 2}, small_gpt(false));
}

void add_traces(Seeds& seeds) {
    Trace trace;
    simulate(two_stages(), &trace);
    seeds.add("trace", trace_to_json(trace).dump(-1));
    for (RankTrace& rank : trace.ranks)
        for (RankStep& step : rank.steps) step.spans.resize(std::min<std::size_t>(step.spans.size(), 3));
    seeds.add("trace", trace_to_json(trace).dump(-1));
}

void add_measurements(Seeds& seeds) {
    seeds.add("training_log",
              " iteration 1/ 500 | elapsed time per iteration (ms): 7421.5 | global batch size:   128 |\n"
              " iteration 2/ 500 | elapsed time per iteration (s): 7.4 | global batch size:   128 |\n");
    seeds.add("training_log", "[titan] step: 10  loss: 8.5  memory: 59.02GiB(74.5%)  tps: 6,123  mfu: 39.40%\n");
    seeds.add("training_log", "steps: 10 loss: 5.40 iter time (s): 3.123 samples/sec: 40.99\n");
    seeds.add("training_log", "RunningAvgSamplesPerSec=40.9, CurrSamplesPerSec=41.2, MemAllocated=20.1GB\n");
    for (const char* collective : {"all_reduce", "all_gather", "sendrecv"})
        seeds.add("nccl_tests",
                  fmt::format("# Collective test starting: {}_perf\n"
                              "#  Rank  0 Group  0 Pid  1 on   node-0 device  0 [0x07] H100\n"
                              "   268435456 67108864 float sum -1 1010.00 265.78 350.5 0 1009 266 465 0\n",
                              collective));
}

void add_frameworks(Seeds& seeds) {
    for (const char* reference : {"megatron-lm@2024", "fsdp@composer", "megatron-lm@2021"})
        seeds.add("framework", framework_file_json({framework_named(reference)}).dump());
    seeds.add("framework", R"({"format": "foretrain.framework/1", "name": "x", "versions": [{"version": "1",
 "like": "megatron-lm@2024", "costs": {"host": {"operation_us": {"1": 20}}}, "sources": {"host": "y"}}]})");
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        fmt::print(stderr, "usage: fuzz_seeds FOLDER\n");
        return 2;
    }
    Seeds seeds(arguments[1]);
    seeds.add("json", R"({"a": [1, -2.5e3, "\u00e9", null, true, {"b": {}}], "c": 9223372036854775807})");
    add_models(seeds);
    add_configs(seeds);
    add_hardware(seeds);
    add_plans(seeds);
    add_programs(seeds);
    add_traces(seeds);
    add_measurements(seeds);
    add_frameworks(seeds);
    return 0;
}
