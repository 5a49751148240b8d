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

std::vector<ParameterSpec> layer_parameters(const ModelSpec& m, std::int64_t layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const std::int64_t h = m.hidden_size;
    const std::int64_t gates = m.gated_mlp ? 2 : 1;
    // GPT-2 scales the projections into the residual stream by 1/sqrt(2 layers).
    const double residual = standard_deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
    std::vector<ParameterSpec> out;
    out.push_back(column_parallel(prefix + "qkv.weight", 1, m.qkv_size(), h));
    if (m.qkv_biased()) out.push_back(sharded_bias(prefix + "qkv.bias", 1, m.qkv_size()));
    out.push_back(row_parallel(prefix + "projection.weight", h, m.query_size(), residual));
    out.push_back(column_parallel(prefix + "fc1.weight", gates, m.ffn_hidden_size, h));
    if (m.mlp_biased()) out.push_back(sharded_bias(prefix + "fc1.bias", gates, m.ffn_hidden_size));
    out.push_back(row_parallel(prefix + "fc2.weight", h, m.ffn_hidden_size, residual));
    if (m.query_key_norm != QueryKeyNorm::none) append_query_key_norm(out, m, prefix);
    append_norm(out, m, prefix + "norm1");
    if (m.projection_biased()) out.push_back(replicated(prefix + "projection.bias", h, Init::zeros));
    if (m.post_norms) append_norm(out, m, prefix + "post_attention");
    if (m.block != Block::parallel_shared_norm) append_norm(out, m, prefix + "norm2");
    if (m.mlp_biased()) out.push_back(replicated(prefix + "fc2.bias", h, Init::zeros));
    if (m.post_norms) append_norm(out, m, prefix + "post_mlp");
    return out;
}

}  // namespace

std::string name_of(const UnitRef& unit) {
    switch (unit.kind) {
        case UnitKind::embedding: return "embedding";
        case UnitKind::positions: return "positions";
        case UnitKind::layer: return "layer" + std::to_string(unit.layer);
        case UnitKind::final_norm: return "final_norm";
        case UnitKind::head: return "head";
        case UnitKind::embedding_norm: return "embedding_norm";
    }
    return "?";
}

std::vector<UnitRef> units_of(const ModelSpec& model) {
    std::vector<UnitRef> units{{UnitKind::embedding, 0}};
    if (model.positions == Positions::learned) units.push_back({UnitKind::positions, 0});
    if (model.embedding_norm) units.push_back({UnitKind::embedding_norm, 0});
    for (std::int64_t layer = 0; layer < model.layers; ++layer) units.push_back({UnitKind::layer, layer});
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

// Layers are alike, so that one stands for all.
std::int64_t parameter_count(const ModelSpec& model) {
    std::int64_t total = 0;
    for (const UnitRef& unit : units_of(model)) {
        if (unit.kind == UnitKind::layer && unit.layer > 0) continue;
        const std::int64_t times = unit.kind == UnitKind::layer ? model.layers : 1;
        for (const ParameterSpec& p : unit_parameters(model, unit, model.vocab_size)) total += times * p.elements();
    }
    return total;
}

}  // namespace foretrain
