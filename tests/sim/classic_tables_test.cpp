// Steps that the papers on Megatron-LM publish, plan by plan, against predictions in the profile of their time. The
// profiles' figures rest in part on the same runs: this holds them to what they were fitted to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/plan_file.h"
#include "sim/predict.h"

namespace foretrain {
namespace {

// A GPT of four times the hidden size in its MLPs, 51200 tokens in its vocabulary and 2048 in a sequence, in fp16 on
// nodes of eight A100 with eight HDR links.
struct Run {
    const char* name;
    std::int64_t layers, hidden_size, heads;
    std::int64_t devices, batch, micro_batch;
    std::int64_t tensor, pipeline, chunks;
    double measured_s;
};

double predicted_s(const Run& run, const char* framework, const char* more) {
    const std::string text = fmt::format(
        R"({{"model": {{"name": "gpt", "layers": {}, "hidden_size": {}, "attention_heads": {}, "ffn_hidden_size": {},
                        "gated_mlp": false, "vocab_size": 51200, "tied_embeddings": true, "max_positions": 2048}},
            "cluster": {{"gpu": "a100-sxm-80gb", "gpus": {}, "gpus_per_node": 8, "intra_node": "nvlink3",
                         "inter_node_gbps_per_node": 1600}},
            "framework": "{}",
            "training": {{"global_batch_size": {}, "sequence_length": 2048, "precision": "fp16"}},
            "parallelism": {{"tensor": {}, "pipeline": {}, "virtual_pipeline": {}, "micro_batch_size": {}, {}}}}})",
        run.layers, run.hidden_size, run.heads, 4 * run.hidden_size, run.devices, framework, run.batch, run.tensor,
        run.pipeline, run.chunks, run.micro_batch, more);
    const Prediction p = estimate(plan_from_json(Json::parse(text, run.name)));
    EXPECT_FALSE(p.times.empty()) << run.name;
    return seconds(p.step);
}

void expect_near(const std::vector<Run>& runs, const char* framework, const char* more, double within) {
    for (const Run& run : runs) {
        const double error = predicted_s(run, framework, more) / run.measured_s - 1;
        EXPECT_LT(std::fabs(error), within) << fmt::format("{} in {}: {:+.1f} %", run.name, framework, 100 * error);
    }
}

// arXiv:2104.04473 table 1, weak scaling. The times follow from its rounded TFLOP/s by its equation 3, the chunks
// from github:NVIDIA/Megatron-LM@d98e8a64 examples/academic_paper_scripts/sc21/run_table_1.sh.
TEST(ClassicTables, WeakScalingOfMegatron) {
    expect_near({{"7.5B", 36, 4096, 32, 128, 512, 16, 4, 1, 1, 3.696},
                 {"39B", 40, 6144, 48, 256, 1024, 8, 8, 1, 1, 9.399},
                 {"310B", 96, 16384, 128, 1920, 2160, 1, 8, 16, 2, 37.614},
                 {"530B", 105, 20480, 128, 2520, 2520, 1, 8, 35, 3, 54.085},
                 {"1T", 128, 25600, 160, 3072, 3072, 1, 8, 64, 1, 102.63}},
                "megatron-lm@2021", R"("recompute": "full")", 0.08);
}

// arXiv:2205.05198 table 5: full recompute, and sequence parallelism with selective recompute.
TEST(ClassicTables, ActivationRecomputation) {
    expect_near(
        {{"175B", 96, 12288, 96, 64, 64, 1, 8, 8, 3, 18.13}, {"1T", 105, 20480, 128, 280, 280, 1, 8, 35, 3, 49.05}},
        "megatron-lm@2022", R"("sequence_parallel": false, "recompute": "full")", 0.05);
    expect_near(
        {{"175B", 96, 12288, 96, 64, 64, 1, 8, 8, 3, 13.75}, {"1T", 105, 20480, 128, 280, 280, 1, 8, 35, 3, 37.83}},
        "megatron-lm@2022", R"("sequence_parallel": true, "recompute": "selective")", 0.05);
}

}  // namespace
}  // namespace foretrain
