#include "plan/program/memory_terms.h"

#include <algorithm>

#include "plan/attention_choice.h"

namespace foretrain {

namespace {

constexpr double mib = static_cast<double>(MiB);
constexpr std::int64_t half = 2;  // bytes of a 16-bit element

bool sixteen_bits(const Plan& plan) { return size_of(plan.training.precision) == half; }

double attention_dropout(const Plan& plan, const Framework& f) {
    return plan.training.attention_dropout.value_or(f.memory.attention_dropout);
}

// Softmax, its dropout and the mask of that: 2, 2 and 1 byte; softmax alone without dropout. A softmax apart from mask
// and scale is one of fp32, of which 4 bytes are kept, and without dropout the 2 that the next product reads.
std::int64_t score_bytes(const Plan& plan, const Framework& f) {
    if (attention_of(plan, f) != AttentionKind::unfused) return 0;
    const bool fused = plan.training.software.fused_softmax;
    if (attention_dropout(plan, f) == 0) return fused ? 2 : 6;
    return fused ? 5 : 7;
}

std::int64_t logit_bytes(const Plan& plan, const Framework& f) {
    const MemoryCosts& m = f.memory;
    if (plan.training.cross_entropy == CrossEntropy::native)
        return plan.training.compiled == true
                   ? m.compiled_logit_bytes
                   : static_cast<std::int64_t>(figure_at(m.native_logit_bytes, plan.cluster.device.dense_bf16_tera()));
    return plan.training.cross_entropy == CrossEntropy::fused ? 0 : m.logit_bytes;
}

// Elements of a rank's weights of attention and MLP, each shape once.
std::int64_t attention_shapes(const ModelSpec& m, std::int64_t tensor) {
    const std::int64_t h = m.hidden_size;
    if (!m.is_latent()) return (h * m.qkv_size() + m.query_size() * h) / tensor;
    const LatentAttention& a = m.mla;
    const std::int64_t heads = m.attention_heads / tensor, queries = heads * a.qk_size();
    const std::int64_t query = a.q_lora > 0 ? a.q_lora * (h + queries) : h * queries;
    return query + h * (a.kv_lora + a.qk_rope) + a.kv_lora * heads * (a.qk_nope + a.v_dim) + heads * a.v_dim * h;
}

std::int64_t shapes_of(const ModelSpec& m, const Parallelism& p) {
    const std::int64_t projections = m.hidden_size * (m.gated_mlp ? 3 : 2);
    std::int64_t mlp = 0;
    if (!m.has_experts() || m.moe.first_dense_layers > 0 || m.moe.every > 1) mlp += m.ffn_hidden_size / p.tensor;
    if (m.has_experts()) mlp += m.moe.ffn_hidden_size / p.expert_tensor + m.moe.shared_ffn / p.tensor;
    return attention_shapes(m, p.tensor) + projections * mlp;
}

double workspaces_mib(const Plan& plan, const MemoryCosts& m) {
    const double tera = plan.cluster.device.dense_bf16_tera();
    const SoftwareChoices& s = plan.training.software;
    if (s.own_layers) return figure_at(m.own_layer_mib, static_cast<double>(plan.parallelism.tensor));
    const double handle = std::max(figure_at(m.library_mib, tera), s.deterministic ? m.deterministic_mib : 0.0);
    const bool grouped = s.grouped_products && plan.model.has_experts();
    const std::int64_t kinds =
        1 + (plan.parallelism.overlap.tensor && plan.parallelism.tensor > 1 ? m.overlap_workspaces : 0) +
        (grouped ? m.grouped_workspaces : 0);
    const std::int64_t handles = m.library_handles + (s.expert_overlap ? m.expert_overlap_handles : 0);
    return handle * static_cast<double>(handles) + figure_at(m.layer_mib, tera) * static_cast<double>(kinds);
}

}  // namespace

MemoryTerms memory_terms(const Plan& plan, const Framework& f) {
    MemoryTerms t;
    const Training& training = plan.training;
    const bool copies = training.cross_entropy ? *training.cross_entropy != CrossEntropy::fused : f.loss_fp32_copy;
    t.fp32_logits = copies && size_of(training.precision) < 4;
    if (f.runnable) return t;
    const MemoryCosts& m = f.memory;
    t.one_tied_gradient = true;
    t.score_bytes = score_bytes(plan, f);
    t.logit_bytes = logit_bytes(plan, f);
    t.dropout_masks = training.hidden_dropout.value_or(m.hidden_dropout) > 0;
    t.norm_statistics = m.norm_statistics * (plan.model.norm == Norm::rmsnorm ? 1 : 2);
    const AttentionKind attention = attention_of(plan, f);
    const bool flash = attention == AttentionKind::flash2 || attention == AttentionKind::flash3;
    t.second_output = m.second_output && flash && plan.parallelism.micro_batch_size > 1;
    t.head_gradient = m.head_gradient && sixteen_bits(plan);
    t.weight_gradients = training.fused_gradient_accumulation == false && sixteen_bits(plan);
    return t;
}

Bytes libraries_of(const Plan& plan, const Framework& f) {
    if (f.runnable) return {};
    const MemoryCosts& m = f.memory;
    const Parallelism& p = plan.parallelism;
    const Training& t = plan.training;
    double bytes = workspaces_mib(plan, m) * mib;
    if (p.effective_zero() == 0) bytes += m.unsharded_mib * mib;
    const std::int64_t message = boundary_elements(plan.model, t, p) * size_of(t.precision);
    if (p.pipeline > 1) bytes += static_cast<double>(m.messages * message);
    if (m.gradient_shapes && t.fused_gradient_accumulation != false && !t.software.own_layers && sixteen_bits(plan))
        bytes += static_cast<double>(half * shapes_of(plan.model, p));
    const std::int64_t ranks = p.expert * p.expert_tensor;
    if (t.software.gathers_tokens && plan.model.has_experts() && ranks > 1)
        bytes += static_cast<double>(message * ranks);
    const std::int64_t sequence = t.sequence_length;
    if (t.software.attention_mask.value_or(m.attention_mask))
        bytes += static_cast<double>(p.micro_batch_size * sequence * sequence / p.context);
    if (t.software.deferred_head > 0) {
        const std::int64_t tokens = p.micro_batch_size * sequence / p.context;
        const std::int64_t width = padded_vocabulary(plan.model, f, p.tensor) / p.tensor + plan.model.hidden_size;
        bytes += static_cast<double>(t.software.deferred_head * half * width * tokens);
    }
    return Bytes{static_cast<std::int64_t>(bytes)};
}

Bytes slack_of(const Plan& plan, const Framework& f) {
    const Parallelism& p = plan.parallelism;
    const std::int64_t tokens = p.micro_batch_size * plan.training.sequence_length / p.context;
    const std::int64_t columns = padded_vocabulary(plan.model, f, p.tensor) / p.tensor;
    const std::int64_t logits = 4 * tokens * columns, gradient = half * columns * plan.model.hidden_size;
    return Bytes{static_cast<std::int64_t>(f.memory.slack * static_cast<double>(std::max(logits, gradient)))};
}

}  // namespace foretrain
