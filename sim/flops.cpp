#include "sim/flops.h"

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

}  // namespace

ModelFlops model_flops(const ModelSpec& m, double tokens, double sequence_length) {
    const auto d = [](std::int64_t n) { return static_cast<double>(n); };
    const double h = d(m.hidden_size);
    const double layer = h * d(m.qkv_size()) + d(m.query_size()) * h + h * d(m.fc1_size()) + d(m.ffn_hidden_size) * h;
    const double matrices = d(m.layers) * layer + h * d(m.vocab_size);
    const Pairs pairs = pairs_of(m, sequence_length);
    const double two_products = 2 * d(m.query_size());  // multiply-adds a pair
    const double pass_and_back = 3 * 2 * tokens;
    return {pass_and_back * (matrices + pairs.full * two_products),
            pass_and_back * (matrices + pairs.causal * two_products)};
}

}  // namespace foretrain
