#include "plan/program/stage_layout.h"

#include <algorithm>
#include <numeric>

namespace foretrain {

namespace {

using Kind = Recompute::Kind;

// Appends `layers` equal layers, or what is left of them in a brief stage.
void append(const Recompute& recompute, bool recomputed, std::int64_t layers, std::int64_t alternation, Depth depth,
            StageLayout& out) {
    const bool groups = recompute.kind == Kind::segment || recompute.kind == Kind::every;
    const std::int64_t group = groups ? std::min(recompute.layers, layers) : 1;
    const std::int64_t period = groups ? std::lcm(group, alternation) : alternation;
    // An even number: where tensors stand may alternate from layer to layer.
    const std::int64_t left_out =
        depth == Depth::full ? 0 : std::max<std::int64_t>(0, layers / period - kept_periods) / 2 * 2;
    if (left_out > 0) out.repeats.push_back({out.layers, static_cast<std::int32_t>(period), left_out + 1});
    const std::int32_t first = out.layers;
    out.layers += static_cast<std::int32_t>(layers - left_out * period);
    const auto g = static_cast<std::int32_t>(group);
    for (std::int32_t layer = first; layer < out.layers; layer = out.segments.back().end()) {
        if (recompute.kind == Kind::segment)
            out.segments.push_back({layer, std::min(g, out.layers - layer), true});
        else
            out.segments.push_back({layer, 1, recompute.kind == Kind::every ? (layer - first) % g == 0 : recomputed});
    }
}

}  // namespace

StageLayout stage_layout(const Recompute& recompute, std::int64_t layers, std::int64_t alternation, Depth depth) {
    StageLayout out;
    const std::int64_t block = recompute.kind == Kind::block ? std::min(recompute.layers, layers) : 0;
    if (block > 0) append(recompute, true, block, alternation, depth, out);
    if (block < layers) append(recompute, recompute.kind == Kind::full, layers - block, alternation, depth, out);
    return out;
}

std::int64_t window_alternation(const ModelSpec& model, std::int64_t sequence_length) {
    const SlidingWindow& window = model.sliding_window;
    if (window.size == 0 || window.size >= sequence_length) return 1;
    return std::max<std::int64_t>(window.full_every, 1);
}

}  // namespace foretrain
