#include "tests/plan/support/small_plans.h"

#include <fmt/format.h>

namespace foretrain::testing {

ModelSpec small_gpt(bool tied) {
    return {.name = tied ? "gpt" : "gpt-untied",
            .layers = 4,
            .hidden_size = 16,
            .attention_heads = 4,
            .kv_heads = 4,
            .head_dim = 4,
            .ffn_hidden_size = 64,
            .gated_mlp = false,
            .vocab_size = 60,
            .tied_embeddings = tied,
            .positions = Positions::learned,
            .max_positions = 8,
            .norm = Norm::layernorm,
            .activation = Activation::gelu,
            .bias = true};
}

ModelSpec small_llama() {
    return {.name = "llama",
            .layers = 4,
            .hidden_size = 16,
            .attention_heads = 8,
            .kv_heads = 4,
            .head_dim = 4,
            .ffn_hidden_size = 44,
            .gated_mlp = true,
            .vocab_size = 60,
            .tied_embeddings = false,
            .positions = Positions::rope,
            .max_positions = 64,
            .norm = Norm::rmsnorm,
            .activation = Activation::silu,
            .bias = false};
}

ModelSpec small_tied_llama() {
    ModelSpec model = small_llama();
    model.name = "llama-tied";
    model.tied_embeddings = true;
    model.attention_bias = true;
    return model;
}

Plan small_plan(const ModelSpec& model, const Parallelism& parallelism, DType precision) {
    Plan plan;
    plan.model = model;
    plan.framework = "foretrain";
    plan.parallelism = parallelism;
    plan.training.precision = precision;
    plan.training.sequence_length = 8;
    plan.training.global_batch_size = 6 * parallelism.data;
    DeviceSpec& device = plan.cluster.device;
    device.name = "small";
    device.memory = Bytes{GiB};
    device.memory_bandwidth = Bandwidth::gigabytes(10);
    for (DType type : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
        device.peak[type] = FlopRate::tera(0.1);
        device.calibration.gemm.push_back({.dtype = type});
    }
    device.calibration.attention.forward.efficiency = {{64, 0.5}};
    device.calibration.attention.backward.efficiency = {{64, 0.5}};
    plan.cluster.name = "small";
    plan.cluster.devices_per_node = static_cast<int>(plan.world());
    plan.cluster.default_framework = "foretrain";
    return plan;
}

namespace {

// Every main axis at its ends, under each ZeRO stage.
void add_products(std::vector<Plan>& plans) {
    for (const ModelSpec& model : {small_gpt(true), small_llama()})
        for (std::int64_t tensor : {1, 2})
            for (std::int64_t pipeline : {1, 2, 4})
                for (std::int64_t data : {1, 2, 4})
                    for (int zero : {0, 1, 2, 3}) {
                        if (data == 1 && zero > 0) continue;
                        plans.push_back(small_plan(model, {.tensor = tensor,
                                                           .pipeline = pipeline,
                                                           .data = data,
                                                           .sequence_parallel = tensor > 1 && zero % 2 == 1,
                                                           .zero_stage = zero}));
                    }
}

// Each further choice on its own, where it meets the most: two of every axis.
void add_choices(std::vector<Plan>& plans, const ModelSpec& model, int zero) {
    using Kind = Recompute::Kind;
    const Parallelism two{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true, .zero_stage = zero};
    const auto add = [&](const Parallelism& p) { plans.push_back(small_plan(model, p)); };
    Parallelism p = two;
    for (const Recompute& r : {Recompute{Kind::selective, 0}, Recompute{Kind::full, 0}, Recompute{Kind::block, 1},
                               Recompute{Kind::segment, 2}, Recompute{Kind::every, 2}})
        p.recompute = r, add(p);
    p = two, p.schedule = Schedule::gpipe, add(p);
    if (zero > 0) p = two, p.data = 4, p.zero_shard_size = 2, add(p);
    p = two, p.sequence_parallel = false, add(p);
    p = two, p.micro_batch_size = 2, add(p);
    p = two, p.micro_batch_size = 6, add(p);  // one microbatch
    p = two, p.stage_layers = {3, 1}, p.recompute = {Kind::segment, 2}, add(p);
    p = two, p.pipeline = 3, p.stage_layers = {1, 1, 2}, add(p);
    p = two, p.overlap = {false, false}, add(p);
    p = two, p.overlap = {false, false}, p.pipeline = 1, p.tensor = 1, p.sequence_parallel = false, add(p);
    p = two, p.overlap = {false, true}, p.recompute = {Kind::full, 0}, add(p);
    p = two, p.tensor = 4, p.pipeline = 4, p.recompute = {Kind::full, 0}, add(p);
    p = two, p.context = 2, add(p);
    p = two, p.context = 2, p.context_method = ContextMethod::all_to_all, p.recompute = {Kind::selective, 0}, add(p);
    p = two, p.tensor = 1, p.sequence_parallel = false, p.context = 4, p.recompute = {Kind::segment, 2}, add(p);
    p = two, p.virtual_pipeline = 2, add(p);
    p = two, p.virtual_pipeline = 2, p.recompute = {Kind::full, 0}, p.overlap = {false, false}, add(p);
    p = two, p.virtual_pipeline = 2, p.micro_batch_size = 3, add(p);  // one round
    p = two, p.virtual_pipeline = 2, p.schedule = Schedule::gpipe, p.recompute = {Kind::selective, 0}, add(p);
    p = two, p.tensor = 1, p.sequence_parallel = false, p.virtual_pipeline = 2, p.overlap = {true, false}, add(p);
    p = two, p.first_stage_layers = 1, add(p);
    p = two, p.pipeline = 3, p.last_stage_layers = 2, add(p);
    p = two, p.embedding_and_head_as_layers = true, add(p);
    Plan deep = small_plan(model, two);  // more chunks than there are stages
    deep.model.layers = 12;
    deep.parallelism.virtual_pipeline = 3;
    plans.push_back(deep);
    deep.parallelism.virtual_pipeline = 6;
    plans.push_back(deep);
    deep.parallelism.pipeline = 3;
    deep.parallelism.virtual_pipeline = 2;
    deep.parallelism.stage_layers = {1, 3, 2, 2, 1, 3};
    deep.cluster.devices_per_node = static_cast<int>(deep.world());
    plans.push_back(deep);
    plans.push_back(small_plan(model, two, DType::bf16));
    plans.push_back(small_plan(model, two, DType::fp64));
}

}  // namespace

std::vector<Plan> varied_plans() {
    std::vector<Plan> plans;
    add_products(plans);
    for (const ModelSpec& model : {small_gpt(true), small_gpt(false), small_llama(), small_tied_llama()})
        for (int zero : {0, 1, 2, 3}) add_choices(plans, model, zero);
    return plans;
}

std::string plan_name(const Plan& plan) {
    std::string s = fmt::format("{} {} {}", plan.model.name, foretrain::name_of(plan.training.precision),
                                describe(plan.parallelism));
    if (!plan.parallelism.overlap.gradient_reduce) s += " no-reduce-overlap";
    if (!plan.parallelism.overlap.parameter_gather) s += " no-gather-overlap";
    return s;
}

}  // namespace foretrain::testing
