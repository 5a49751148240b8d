#include "plan/program/stage_layout.h"

#include <algorithm>
#include <numeric>

namespace foretrain {

namespace {

using Kind = Recompute::Kind;

bool in_groups(const Recompute& r) { return r.kind == Kind::segment || r.kind == Kind::every; }

// After how many layers what a run of layers does repeats.
std::int64_t period_of(const Recompute& recompute, std::int64_t layers, std::int64_t alternation) {
    return in_groups(recompute) ? std::lcm(std::min(recompute.layers, layers), alternation) : alternation;
}

// Periods of a run that a brief stage leaves out: an even number, for where tensors stand may alternate
// from layer to layer.
std::int64_t left_out(std::int64_t layers, std::int64_t period) {
    return std::max<std::int64_t>(0, layers / period - kept_periods) / 2 * 2;
}

// The runs of layers that are alike: those of a block, which are recomputed, and the rest.
std::array<std::int64_t, 2> runs_of(const Recompute& recompute, std::int64_t layers) {
    const std::int64_t block = recompute.kind == Kind::block ? std::min(recompute.layers, layers) : 0;
    return {block, layers - block};
}

void append_segments(const Recompute& recompute, bool recomputed, std::int64_t layers, StageLayout& out) {
    const std::int32_t first = out.layers;
    const auto group = static_cast<std::int32_t>(in_groups(recompute) ? std::min(recompute.layers, layers) : 1);
    out.layers += static_cast<std::int32_t>(layers);
    for (std::int32_t layer = first; layer < out.layers; layer = out.segments.back().end()) {
        if (recompute.kind == Kind::segment)
            out.segments.push_back({layer, std::min(group, out.layers - layer), true});
        else
            out.segments.push_back(
                {layer, 1, recompute.kind == Kind::every ? (layer - first) % group == 0 : recomputed});
    }
}

}  // namespace

BriefLayers brief_layers(const Recompute& recompute, std::int64_t layers, std::int64_t alternation) {
    BriefLayers out;
    out.recompute = recompute;
    const std::array runs = runs_of(recompute, layers);
    for (std::size_t r = 0; r < runs.size(); ++r) {
        if (runs[r] == 0) continue;
        const std::int64_t period = period_of(recompute, runs[r], alternation), less = left_out(runs[r], period);
        out.layers += runs[r] - less * period;
        if (r == 0) out.recompute.layers = out.layers;
        if (less > 0) {
            out.times[out.repeats++] = less + 1;
            out.repeated |= static_cast<std::uint8_t>(1U << r);
        }
    }
    return out;
}

StageLayout stage_layout(const Recompute& recompute, std::int64_t layers, std::int64_t alternation, Depth depth) {
    StageLayout out;
    const std::array runs = runs_of(recompute, layers);
    for (std::size_t r = 0; r < runs.size(); ++r) {
        if (runs[r] == 0) continue;
        const std::int64_t period = period_of(recompute, runs[r], alternation);
        const std::int64_t less = depth == Depth::full ? 0 : left_out(runs[r], period);
        if (less > 0) out.repeats.push_back({out.layers, static_cast<std::int32_t>(period), less + 1});
        append_segments(recompute, r == 0 || recompute.kind == Kind::full, runs[r] - less * period, out);
    }
    return out;
}

std::int64_t window_alternation(const ModelSpec& model, std::int64_t sequence_length) {
    const SlidingWindow& window = model.sliding_window;
    if (window.size == 0 || window.size >= sequence_length) return 1;
    return std::max<std::int64_t>(window.full_every, 1);
}

}  // namespace foretrain
