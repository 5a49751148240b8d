#include "tests/laws/support/plans.h"

#include "hardware/cluster_file.h"
#include "plan/check.h"
#include "plan/framework.h"

namespace foretrain::test {

namespace {

template <class T>
T pick(std::mt19937& random, const std::vector<T>& from) {
    // Not uniform_int_distribution: its numbers differ between standard libraries.
    return from[random() % from.size()];
}

Recompute random_recompute(std::mt19937& random, std::int64_t layers) {
    const auto kind = static_cast<Recompute::Kind>(random() % 8);
    const bool counts = kind >= Recompute::Kind::block && kind != Recompute::Kind::operators;
    return {kind, counts ? 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(layers)) : 0};
}

// With experts, latent attention or both.
ModelSpec random_routed(std::mt19937& random) {
    ModelSpec m = random() % 2 == 0 ? small_moe() : small_latent();
    if (random() % 3 == 0) m.moe = {};
    if (random() % 3 == 0) m.mla.q_lora = 0;
    if (!m.has_experts()) return m;
    m.moe.first_dense_layers = pick<std::int64_t>(random, {0, 1, 2, 7});
    m.moe.every = pick<std::int64_t>(random, {1, 1, 2, 3});
    m.moe.shared_ffn = pick<std::int64_t>(random, {0, 16});
    m.moe.topk = pick<std::int64_t>(random, {1, 2});
    m.moe.capacity_factor = pick<double>(random, {0, 1, 1.25});
    m.moe.pad_to_capacity = m.moe.capacity_factor > 0 && random() % 2 == 0;
    return m;
}

ModelSpec random_model(std::mt19937& random) {
    ModelSpec m = random() % 2 == 0 ? small_gpt() : small_llama();
    if (random() % 3 == 0) m = pick<ModelSpec>(random, {small_neox(), small_cohere(), small_gemma(), small_opt()});
    const std::int64_t scale = pick<std::int64_t>(random, {1, 2, 4, 16, 64});
    if (random() % 4 == 0) m = random_routed(random);
    m.hidden_size *= scale;
    m.head_dim *= scale > 16 ? 16 : scale;
    m.attention_heads *= scale > 16 ? scale / 16 : 1;
    m.kv_heads *= scale > 16 ? scale / 16 : 1;
    m.ffn_hidden_size *= scale;
    m.moe.ffn_hidden_size *= scale;
    m.moe.shared_ffn *= scale;
    if (m.is_latent()) {
        m.mla.kv_lora *= scale;
        m.mla.q_lora *= scale;
        m.kv_heads = m.attention_heads;
        m.mla.qk_rope = m.head_dim / 2;
        m.mla.qk_nope = m.head_dim - m.mla.qk_rope;
    }
    m.layers = pick<std::int64_t>(random, {1, 2, 3, 4, 6, 8, 12, 24, 37});
    m.vocab_size = pick<std::int64_t>(random, {64, 101, 1000, 50257});
    m.tied_embeddings = !m.head_bias && random() % 2 == 0;
    m.max_positions = 4096;
    if (random() % 4 == 0)
        m.sliding_window = {pick<std::int64_t>(random, {8, 100}), pick<std::int64_t>(random, {0, 2, 3})};
    if (m.has_experts()) m.moe.first_dense_layers = std::min(m.moe.first_dense_layers, m.layers - m.moe.every);
    if (m.has_experts() && m.moe.first_dense_layers < 0) m.moe.first_dense_layers = 0, m.moe.every = 1;
    return m;
}

std::vector<std::int64_t> uneven_layers(std::mt19937& random, std::int64_t layers, std::int64_t stages) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(stages), 1);
    for (std::int64_t left = layers - stages; left > 0; --left) ++out[random() % out.size()];
    return out;
}

// Half of them lists; what does not divide is drawn again by random_plan.
void draw_layout(std::mt19937& random, std::int64_t layers, Parallelism& p) {
    const std::int64_t chunks = p.pipeline * p.virtual_pipeline;
    if (chunks > layers) return;
    p.recompute = random_recompute(random, layers);
    switch (random() % 6) {
        case 0: break;
        case 1: p.first_stage_layers = 1 + static_cast<std::int64_t>(random() % 3); break;
        case 2: p.embedding_and_head_as_layers = true; break;
        default: p.stage_layers = uneven_layers(random, layers, chunks);
    }
    if (p.first_stage_layers != 0 && random() % 2 == 0)
        p.last_stage_layers = 1 + static_cast<std::int64_t>(random() % 2);
}

Plan draw(std::mt19937& random) {
    Plan plan;
    plan.model = random_model(random);
    Parallelism& p = plan.parallelism;
    p.tensor = pick<std::int64_t>(random, {1, 1, 2, 4});
    p.pipeline = pick<std::int64_t>(random, {1, 2, 3, 4, 8});
    p.data = pick<std::int64_t>(random, {1, 2, 3, 4, 8});
    p.context = p.tensor * p.pipeline * p.data <= 16 ? pick<std::int64_t>(random, {1, 1, 2, 3, 4}) : 1;
    p.context_method = random() % 2 == 0 ? ContextMethod::ring : ContextMethod::all_to_all;
    p.sequence_parallel = p.tensor > 1 && random() % 2 == 0;
    if (plan.model.has_experts()) {
        p.sequence_parallel = p.tensor > 1;
        p.expert = pick<std::int64_t>(random, {1, 2, 4});
        p.expert_tensor = random() % 3 == 0 ? p.tensor : 1;
    }
    p.zero_stage = static_cast<int>(random() % 4);
    if (p.zero_stage > 0 && !plan.model.has_experts() && random() % 2 == 0)
        p.zero_shard_size = pick<std::int64_t>(random, {2, 3, 4, 8});
    p.optimizer_on_host = random() % 8 == 0;
    p.micro_batch_size = pick<std::int64_t>(random, {1, 2, 3});
    p.schedule = random() % 3 == 0 ? Schedule::gpipe : Schedule::one_f_one_b;
    p.overlap.gradient_reduce = random() % 4 != 0;
    p.overlap.parameter_gather = random() % 4 != 0;
    p.overlap.pipeline = random() % 4 != 0;
    p.virtual_pipeline = p.pipeline == 1 ? 1 : pick<std::int64_t>(random, {1, 2, 2, 3, 6});
    draw_layout(random, plan.model.layers, p);
    plan.cluster = any_machine(plan.world());
    plan.framework = random() % 2 == 0 ? "foretrain" : pick(random, every_framework());
    if (plan.model.has_experts()) plan.framework = random() % 3 == 0 ? "foretrain" : "megatron-lm";
    if (random() % 2 == 0) plan.training.expert_imbalance = 1.3;
    plan.training.precision = pick<DType>(random, {DType::bf16, DType::fp32});
    if (plan.training.precision == DType::bf16 && random() % 2 == 0)
        plan.training.products = pick<DType>(random, {DType::fp8, DType::mxfp8, DType::nvfp4});
    p.overlap.tensor = random() % 4 == 0;
    plan.training.sequence_length = pick<std::int64_t>(random, {12, 64, 1024});
    plan.training.global_batch_size =
        p.micro_batch_size * p.data * pick<std::int64_t>(random, {1, 2, 3, 5, 8, 12, 17, 24});
    return plan;
}

}  // namespace

std::vector<std::string> every_framework() {
    std::vector<std::string> out;
    for (const std::string& name : framework_names())
        for (const std::string& version : framework_versions(name)) out.push_back(name + "@" + version);
    return out;
}

ModelSpec small_gpt() {
    return {.name = "small-gpt",
            .layers = 4,
            .hidden_size = 32,
            .attention_heads = 4,
            .kv_heads = 4,
            .head_dim = 8,
            .ffn_hidden_size = 64,
            .gated_mlp = false,
            .vocab_size = 96,
            .tied_embeddings = true,
            .positions = Positions::learned,
            .max_positions = 24,
            .norm = Norm::layernorm,
            .norm_epsilon = 1e-5,
            .activation = Activation::gelu,
            .bias = true};
}

ModelSpec small_llama() {
    return {.name = "small-llama",
            .layers = 4,
            .hidden_size = 32,
            .attention_heads = 8,
            .kv_heads = 4,
            .head_dim = 4,
            .ffn_hidden_size = 48,
            .gated_mlp = true,
            .vocab_size = 96,
            .tied_embeddings = false,
            .positions = Positions::rope,
            .max_positions = 4096,
            .norm = Norm::rmsnorm,
            .norm_epsilon = 1e-5,
            .activation = Activation::silu,
            .bias = false};
}

ModelSpec small_neox() {
    ModelSpec m = small_gpt();
    m.name = "small-neox";
    m.tied_embeddings = false;
    m.head_bias = true;
    m.positions = Positions::rope;
    m.rotary_dim = 2;
    m.block = Block::parallel;
    return m;
}

ModelSpec small_cohere() {
    ModelSpec m = small_llama();
    m.name = "small-cohere";
    m.tied_embeddings = true;
    m.norm = Norm::layernorm;
    m.norm_bias = false;
    m.block = Block::parallel_shared_norm;
    m.query_key_norm = QueryKeyNorm::per_head;
    return m;
}

ModelSpec small_gemma() {
    ModelSpec m = small_llama();
    m.name = "small-gemma";
    m.activation = Activation::gelu;
    m.query_key_norm = QueryKeyNorm::shared;
    m.post_norms = true;
    m.sliding_window = {4096, 2};
    return m;
}

ModelSpec small_opt() {
    ModelSpec m = small_gpt();
    m.name = "small-opt";
    m.activation = Activation::relu;
    m.embedding_norm = true;
    m.position_offset = 2;
    m.bias = false;
    m.attention_bias = true;
    m.mlp_bias = true;
    return m;
}

ModelSpec small_moe() {
    ModelSpec m = small_llama();
    m.name = "small-moe";
    m.moe = {.experts = 4, .topk = 2, .ffn_hidden_size = 16, .shared_ffn = 16, .first_dense_layers = 2};
    return m;
}

ModelSpec small_latent() {
    ModelSpec m = small_gpt();
    m.name = "small-latent";
    m.positions = Positions::rope;
    m.tied_embeddings = false;
    m.bias = false;
    m.mlp_bias = true;
    m.mla = {.kv_lora = 8, .q_lora = 12, .qk_nope = 4, .qk_rope = 4, .v_dim = 6};
    m.moe = {.experts = 4, .topk = 1, .ffn_hidden_size = 16, .every = 2, .router_bias = true};
    return m;
}

ClusterSpec any_machine(std::int64_t devices) {
    ClusterSpec c = read_cluster("dgx-a100");
    GemmConstants gemm = *c.device.calibration.gemm_for(DType::bf16);
    for (DType t : {DType::fp32, DType::fp64}) {
        c.device.peak[t] = FlopRate::tera(t == DType::fp32 ? 19.5 : 9.7);
        gemm.dtype = t;
        if (c.device.calibration.gemm_for(t) == nullptr) c.device.calibration.gemm.push_back(gemm);
    }
    for (DType t : {DType::fp8, DType::mxfp8, DType::nvfp4}) {
        c.device.peak[t] = FlopRate::tera(t == DType::nvfp4 ? 1248 : 624);
        gemm.dtype = t;
        gemm.quantisation = 8;
        c.device.calibration.gemm.push_back(gemm);
    }
    c.default_framework = "foretrain";
    // Nodes as full as they go, so that groups inside and across nodes both occur.
    std::int64_t per_node = 8;
    while (devices % per_node != 0) --per_node;
    c.devices_per_node = static_cast<int>(per_node);
    c.nodes = devices / per_node;
    return c;
}

Plan small_plan(const ModelSpec& model, const Parallelism& parallelism, std::int64_t global_batch) {
    Plan plan;
    plan.model = model;
    plan.parallelism = parallelism;
    plan.cluster = any_machine(plan.world());
    plan.framework = "foretrain";
    plan.training.precision = DType::fp64;
    plan.training.sequence_length = 24;
    plan.training.global_batch_size = global_batch;
    // Gradients that are zero but for rounding (a key's bias) must not be blown up by AdamW.
    plan.training.epsilon = 1e-4;
    return plan;
}

Plan random_plan(std::mt19937& random) {
    for (;;) {
        Plan plan = draw(random);
        if (check(plan).empty()) return plan;
    }
}

}  // namespace foretrain::test
