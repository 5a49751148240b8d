#include "sim/flops.h"

namespace foretrain {

ModelFlops model_flops(const ModelSpec& m, double tokens, double sequence_length) {
    const auto d = [](std::int64_t n) { return static_cast<double>(n); };
    const double h = d(m.hidden_size);
    const double layer = h * d(m.qkv_size()) + d(m.query_size()) * h + h * d(m.fc1_size()) + d(m.ffn_hidden_size) * h;
    const double matrices = d(m.layers) * layer + h * d(m.vocab_size);
    const double scores = d(m.layers) * 2 * sequence_length * d(m.query_size());  // multiply-adds a token
    const double pass_and_back = 3 * 2 * tokens;
    return {pass_and_back * (matrices + scores), pass_and_back * (matrices + scores / 2)};
}

}  // namespace foretrain
