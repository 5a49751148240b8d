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

bool has_block(const Recompute& r) { return r.kind == Kind::block || r.kind == Kind::offload; }

// The runs of layers that are alike: those of a block, which are recomputed or offloaded, and the rest.
std::array<std::int64_t, 2> runs_of(const Recompute& recompute, std::int64_t layers) {
    const std::int64_t block = has_block(recompute) ? std::min(recompute.layers, layers) : 0;
    return {block, layers - block};
}

void append_runs(const Recompute& recompute, bool recomputed, std::int64_t layers, std::vector<SegmentRun>& out) {
    const auto add = [&](std::int64_t count, bool again, std::int64_t times) {
        if (count > 0 && times > 0) out.push_back({static_cast<std::int32_t>(count), again, times});
    };
    const std::int64_t group = in_groups(recompute) ? std::min(recompute.layers, layers) : 1;
    if (recompute.kind == Kind::segment) {
        add(group, true, layers / group);
        add(layers % group, true, 1);
    } else if (recompute.kind == Kind::every) {
        for (std::int64_t layer = 0; layer < layers; layer += group) {
            add(1, true, 1);
            add(1, false, std::min(group, layers - layer) - 1);
        }
    } else {
        add(1, recomputed, layers);
    }
}

void append_segments(const std::vector<SegmentRun>& runs, StageLayout& out) {
    for (const SegmentRun& run : runs)
        for (std::int64_t n = 0; n < run.times; ++n) {
            out.segments.push_back({out.layers, run.count, run.recomputed});
            out.layers += run.count;
        }
}

// Is the r-th of the runs recomputed, where that does not differ from layer to layer?
bool recomputes(const Recompute& recompute, std::size_t r) {
    return r == 0 || recompute.kind == Kind::full || recompute.kind == Kind::operators;
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
        std::vector<SegmentRun> segments;
        append_runs(recompute, recomputes(recompute, r), runs[r] - less * period, segments);
        append_segments(segments, out);
    }
    return out;
}

std::vector<SegmentRun> segment_runs(const Recompute& recompute, std::int64_t layers) {
    std::vector<SegmentRun> out;
    const std::array runs = runs_of(recompute, layers);
    for (std::size_t r = 0; r < runs.size(); ++r)
        if (runs[r] > 0) append_runs(recompute, recomputes(recompute, r), runs[r], out);
    return out;
}

std::int64_t window_alternation(const ModelSpec& model, std::int64_t sequence_length) {
    const SlidingWindow& window = model.sliding_window;
    if (window.size == 0 || window.size >= sequence_length) return 1;
    return std::max<std::int64_t>(window.full_every, 1);
}

}  // namespace foretrain
