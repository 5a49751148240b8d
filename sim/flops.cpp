#include "sim/flops.h"

#include <algorithm>

namespace foretrain {

namespace {

// Pairs of positions a token, over all layers.
struct Pairs {
    double full = 0;
    double causal = 0;
};

Pairs pairs_of(const ModelSpec& m, double s) {
    const double size = static_cast<double>(m.sliding_window.size);
    const double layers = static_cast<double>(m.layers);
    if (m.sliding_window.size == 0 || size >= s) return {layers * s, layers * s / 2};
    const std::int64_t every = m.sliding_window.full_every;
    const double whole = every > 0 ? static_cast<double>(m.layers / every) : 0;
    const double windowed = layers - whole;
    return {whole * s + windowed * size, whole * s / 2 + windowed * (size - size * size / (2 * s))};
}

double product(std::int64_t a, std::int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

// Multiply-adds a token, which are the elements of the matrices that it meets.
double attention_matrices(const ModelSpec& m) {
    const std::int64_t h = m.hidden_size;
    const double out = product(m.attended_size(), h);
    if (!m.is_latent()) return product(h, m.qkv_size()) + out;
    const LatentAttention& a = m.mla;
    const double queries =
        a.q_lora > 0 ? product(h, a.q_lora) + product(a.q_lora, m.query_size()) : product(h, m.query_size());
    return queries + product(h, a.kv_lora + a.qk_rope) + product(a.kv_lora, m.attention_heads * (a.qk_nope + a.v_dim)) +
           out;
}

double mlp_matrices(const ModelSpec& m, std::int64_t ffn) {
    return product((m.gated_mlp ? 3 : 2) * m.hidden_size, ffn);
}

// Those of the experts that it visits, and of the router. A capacity below what comes drops the rest.
double expert_matrices(const ModelSpec& m) {
    const double kept = m.moe.capacity_factor > 0 ? std::min(m.moe.capacity_factor, 1.0) : 1.0;
    return kept * static_cast<double>(m.moe.topk) * mlp_matrices(m, m.moe.ffn_hidden_size) +
           mlp_matrices(m, m.moe.shared_ffn) + product(m.hidden_size, m.moe.experts);
}

}  // namespace

ModelFlops model_flops(const ModelSpec& m, double tokens, double sequence_length) {
    const auto d = [](std::int64_t n) { return static_cast<double>(n); };
    const double h = d(m.hidden_size);
    const double routed = d(m.expert_layers()), dense = d(m.layers) - routed;
    const double matrices = d(m.layers) * attention_matrices(m) + dense * mlp_matrices(m, m.ffn_hidden_size) +
                            routed * expert_matrices(m) + h * d(m.vocab_size);
    const Pairs pairs = pairs_of(m, sequence_length);
    const double two_products = d(m.query_size() + m.attended_size());  // multiply-adds a pair
    const double pass_and_back = 3 * 2 * tokens;
    return {pass_and_back * (matrices + pairs.full * two_products),
            pass_and_back * (matrices + pairs.causal * two_products)};
}

}  // namespace foretrain
