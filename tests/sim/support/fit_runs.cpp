#include "tests/sim/support/fit_runs.h"

#include <cmath>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "sim/predict.h"

namespace foretrain::support {

std::vector<FitRun> predicted_runs() {
    std::vector<FitRun> runs;
    const auto add = [&](const char* source, const char* framework, const char* model, const char* cluster,
                         std::int64_t nodes, Parallelism p, std::int64_t batch, std::int64_t sequence) {
        Plan plan;
        plan.model = read_model(model);
        plan.cluster = read_cluster(cluster);
        scale_to_nodes(plan.cluster, nodes);
        plan.framework = framework;
        plan.training = {.global_batch_size = batch, .sequence_length = sequence};
        plan.parallelism = std::move(p);
        plan.parallelism.data = plan.cluster.devices() / (plan.parallelism.tensor * plan.parallelism.pipeline);
        runs.push_back({std::string(source) + "-" + std::to_string(runs.size()), source, std::move(plan), 0});
        runs.back().measured_s = seconds(estimated_step(runs.back().plan));
    };
    for (const std::int64_t tensor : {1, 2, 4, 8})
        for (const std::int64_t micro : {1, 2, 4})
            add("ours", "megatron-lm@2024", "llama-3-8b", "dgx-h100", 2,
                {.tensor = tensor, .sequence_parallel = tensor > 1, .zero_stage = 1, .micro_batch_size = micro}, 128,
                4096);
    for (const char* model : {"mpt-7b", "mpt-30b", "opt-1.3b"})
        for (const std::int64_t nodes : {1, 4})
            for (const std::int64_t micro : {1, 4})
                add("theirs", "fsdp@composer", model, "dgx-a100", nodes, {.zero_stage = 3, .micro_batch_size = micro},
                    256, 2048);
    add("theirs", "fsdp@composer", "mpt-7b", "dgx-a100", 1, {.zero_stage = 3}, 32, 16384);  // much attention
    return runs;
}

std::vector<FitRun> runs_as_if(const FitModel& model, const LogFactors& factors, double noise) {
    const std::vector<double> log_steps = model.log_steps(factors, model.all_rows());
    std::vector<FitRun> runs = model.runs();
    for (std::size_t i = 0; i < runs.size(); ++i)
        runs[i].measured_s = std::exp(log_steps[i]) * std::pow(noise, static_cast<double>(i % 3) - 1);
    return runs;
}

}  // namespace foretrain::support
