#include "models/parameters.h"

#include <cmath>

namespace foretrain {

namespace {

constexpr double standard_deviation = 0.02;  // GPT-2's initializer_range

ParameterSpec column_parallel(std::string name, std::int64_t outer, std::int64_t rows, std::int64_t columns) {
    return {std::move(name), outer, rows, columns, false, Init::normal, standard_deviation};
}

ParameterSpec row_parallel(std::string name, std::int64_t rows, std::int64_t columns, double deviation) {
    return {std::move(name), rows, columns, 1, false, Init::normal, deviation};
}

ParameterSpec sharded_bias(std::string name, std::int64_t outer, std::int64_t size) {
    return {std::move(name), outer, size, 1, false, Init::zeros, 0};
}

ParameterSpec replicated(std::string name, std::int64_t size, Init init) {
    return {std::move(name), 1, size, 1, true, init, 0};
}

void append_norm(std::vector<ParameterSpec>& out, const ModelSpec& m, const std::string& name) {
    out.push_back(replicated(name + ".weight", m.hidden_size, Init::ones));
    if (m.norm_biased()) out.push_back(replicated(name + ".bias", m.hidden_size, Init::zeros));
}

// Queries before keys; of all heads or, where one weight serves them all, of one.
void append_query_key_norm(std::vector<ParameterSpec>& out, const ModelSpec& m, const std::string& prefix) {
    const bool shared = m.query_key_norm == QueryKeyNorm::shared;
    const auto append = [&](const char* name, std::int64_t heads) {
        out.push_back({prefix + name, 1, shared ? 1 : heads, m.head_dim, shared, Init::ones, 0, shared});
    };
    append("query_norm.weight", m.attention_heads);
    append("key_norm.weight", m.kv_heads);
}

ParameterSpec replicated_matrix(std::string name, std::int64_t rows, std::int64_t columns) {
    return {std::move(name), 1, rows, columns, true, Init::normal, standard_deviation};
}

// GPT-2 scales the projections into the residual stream by 1/sqrt(2 layers).
double residual_deviation(const ModelSpec& m) {
    return standard_deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
}

std::string prefix_of(std::int64_t layer) { return "layers." + std::to_string(layer) + "."; }

// The matrices whose heads tensor ranks share out.
void append_attention(std::vector<ParameterSpec>& out, const ModelSpec& m, const std::string& prefix) {
    const LatentAttention& a = m.mla;
    if (m.is_latent()) {
        const bool direct = a.q_lora == 0;
        out.push_back(column_parallel(prefix + (direct ? "q.weight" : "q_up.weight"), 1, m.query_size(),
                                      direct ? m.hidden_size : a.q_lora));
        out.push_back(
            column_parallel(prefix + "kv_up.weight", 1, m.attention_heads * (a.qk_nope + a.v_dim), a.kv_lora));
    } else {
        out.push_back(column_parallel(prefix + "qkv.weight", 1, m.qkv_size(), m.hidden_size));
        if (m.qkv_biased()) out.push_back(sharded_bias(prefix + "qkv.bias", 1, m.qkv_size()));
        if (m.attention_sinks) out.push_back(sharded_bias(prefix + "sinks", 1, m.attention_heads));
    }
    out.push_back(row_parallel(prefix + "projection.weight", m.hidden_size, m.attended_size(), residual_deviation(m)));
}

// What leads into the latents, which each tensor rank holds whole.
void append_latents(std::vector<ParameterSpec>& out, const ModelSpec& m, const std::string& prefix) {
    const LatentAttention& a = m.mla;
    if (a.q_lora > 0) {
        out.push_back(replicated_matrix(prefix + "q_down.weight", a.q_lora, m.hidden_size));
        out.push_back(replicated(prefix + "q_norm.weight", a.q_lora, Init::ones));
    }
    out.push_back(replicated_matrix(prefix + "kv_down.weight", a.kv_lora + a.qk_rope, m.hidden_size));
    out.push_back(replicated(prefix + "kv_norm.weight", a.kv_lora, Init::ones));
}

void append_mlp(std::vector<ParameterSpec>& out, const ModelSpec& m, const std::string& prefix, std::int64_t ffn,
                bool biased) {
    const std::int64_t gates = m.gated_mlp ? 2 : 1;
    out.push_back(column_parallel(prefix + "fc1.weight", gates, ffn, m.hidden_size));
    if (biased) out.push_back(sharded_bias(prefix + "fc1.bias", gates, ffn));
    out.push_back(row_parallel(prefix + "fc2.weight", m.hidden_size, ffn, residual_deviation(m)));
}

// Shared experts have no bias, as in Megatron-LM, which refuses one.
std::vector<ParameterSpec> layer_parameters(const ModelSpec& m, std::int64_t layer) {
    const std::string prefix = prefix_of(layer);
    const bool routed = m.has_experts(layer);
    std::vector<ParameterSpec> out;
    append_attention(out, m, prefix);
    if (!routed) append_mlp(out, m, prefix, m.ffn_hidden_size, m.mlp_biased());
    if (routed && m.moe.shared_ffn > 0) append_mlp(out, m, prefix + "shared.", m.moe.shared_ffn, false);
    if (m.query_key_norm != QueryKeyNorm::none) append_query_key_norm(out, m, prefix);
    append_norm(out, m, prefix + "norm1");
    if (m.is_latent()) append_latents(out, m, prefix);
    if (m.projection_biased()) out.push_back(replicated(prefix + "projection.bias", m.hidden_size, Init::zeros));
    if (m.post_norms) append_norm(out, m, prefix + "post_attention");
    if (m.block != Block::parallel_shared_norm) append_norm(out, m, prefix + "norm2");
    if (!routed && m.mlp_biased()) out.push_back(replicated(prefix + "fc2.bias", m.hidden_size, Init::zeros));
    if (routed) {
        out.push_back(replicated_matrix(prefix + "router.weight", m.moe.experts, m.hidden_size));
        if (m.moe.router_bias) out.push_back(replicated(prefix + "router.bias", m.moe.experts, Init::zeros));
        if (m.moe.shared_gate) out.push_back(replicated_matrix(prefix + "shared_gate.weight", 1, m.hidden_size));
    }
    if (m.post_norms) append_norm(out, m, prefix + "post_mlp");
    return out;
}

// (expert, gate, ffn, hidden) and (expert, hidden, ffn).
std::vector<ParameterSpec> expert_parameters(const ModelSpec& m, std::int64_t layer) {
    if (!m.has_experts(layer)) return {};
    const std::string prefix = prefix_of(layer) + "experts.";
    const std::int64_t experts = m.moe.experts, ffn = m.moe.ffn_hidden_size, gates = m.gated_mlp ? 2 : 1;
    std::vector<ParameterSpec> out;
    out.push_back(column_parallel(prefix + "fc1.weight", experts * gates, ffn, m.hidden_size));
    if (m.mlp_biased()) out.push_back(sharded_bias(prefix + "fc1.bias", experts * gates, ffn));
    out.push_back(row_parallel(prefix + "fc2.weight", experts * m.hidden_size, ffn, residual_deviation(m)));
    if (m.mlp_biased()) out.push_back({prefix + "fc2.bias", experts, m.hidden_size, 1, true, Init::zeros, 0});
    for (ParameterSpec& p : out) p.experts = experts;
    return out;
}

std::int64_t elements_of(const ModelSpec& m, const UnitRef& unit) {
    std::int64_t total = 0;
    for (const ParameterSpec& p : unit_parameters(m, unit, m.vocab_size)) total += p.elements();
    return total;
}

// The first layer with experts.
std::int64_t first_expert_layer(const ModelSpec& m) { return m.moe.first_dense_layers + m.moe.every - 1; }

}  // namespace

std::string name_of(const UnitRef& unit) {
    switch (unit.kind) {
        case UnitKind::embedding: return "embedding";
        case UnitKind::positions: return "positions";
        case UnitKind::layer: return "layer" + std::to_string(unit.layer);
        case UnitKind::final_norm: return "final_norm";
        case UnitKind::head: return "head";
        case UnitKind::embedding_norm: return "embedding_norm";
        case UnitKind::experts: return "experts" + std::to_string(unit.layer);
    }
    return "?";
}

std::vector<UnitRef> units_of(const ModelSpec& model) {
    std::vector<UnitRef> units{{UnitKind::embedding, 0}};
    if (model.positions == Positions::learned) units.push_back({UnitKind::positions, 0});
    if (model.embedding_norm) units.push_back({UnitKind::embedding_norm, 0});
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        units.push_back({UnitKind::layer, layer});
        if (model.has_experts(layer)) units.push_back({UnitKind::experts, layer});
    }
    units.push_back({UnitKind::final_norm, 0});
    if (!model.tied_embeddings) units.push_back({UnitKind::head, 0});
    return units;
}

std::vector<ParameterSpec> unit_parameters(const ModelSpec& model, const UnitRef& unit, std::int64_t vocab) {
    switch (unit.kind) {
        case UnitKind::embedding: return {column_parallel("embedding.weight", 1, vocab, model.hidden_size)};
        case UnitKind::positions: {
            ParameterSpec p = replicated("positions.weight", model.position_rows() * model.hidden_size, Init::normal);
            p.init_std = standard_deviation;
            return {p};
        }
        case UnitKind::layer: return layer_parameters(model, unit.layer);
        case UnitKind::experts: return expert_parameters(model, unit.layer);
        case UnitKind::final_norm:
        case UnitKind::embedding_norm: {
            std::vector<ParameterSpec> out;
            append_norm(out, model, name_of(unit));
            return out;
        }
        case UnitKind::head: {
            std::vector<ParameterSpec> out{column_parallel(model.tied_embeddings ? "embedding.weight" : "head.weight",
                                                           1, vocab, model.hidden_size)};
            if (model.head_bias) out.push_back(sharded_bias("head.bias", 1, vocab));
            return out;
        }
    }
    return {};
}

// Layers with experts are alike, and so are those without: one stands for all.
std::int64_t parameter_count(const ModelSpec& model) {
    ModelSpec ends = model;
    ends.layers = 0;
    std::int64_t total = 0;
    for (const UnitRef& unit : units_of(ends)) total += elements_of(model, unit);
    const std::int64_t routed = model.expert_layers(), dense = model.layers - routed;
    if (dense > 0) total += dense * elements_of(model, {UnitKind::layer, 0});  // which has none where any has none
    if (routed == 0) return total;
    const std::int64_t layer = first_expert_layer(model);
    return total +
           routed * (elements_of(model, {UnitKind::layer, layer}) + elements_of(model, {UnitKind::experts, layer}));
}

std::int64_t active_parameter_count(const ModelSpec& model) {
    const std::int64_t total = parameter_count(model);
    if (!model.has_experts()) return total;
    const std::int64_t of_layer = elements_of(model, {UnitKind::experts, first_expert_layer(model)});
    return total - model.expert_layers() * (of_layer / model.moe.experts) * (model.moe.experts - model.moe.topk);
}

}  // namespace foretrain
