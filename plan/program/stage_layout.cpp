#include "plan/program/stage_layout.h"

#include <algorithm>
#include <numeric>

namespace foretrain {

namespace {

using Kind = Recompute::Kind;

bool in_groups(const Recompute& r) { return r.kind == Kind::segment || r.kind == Kind::every; }

// Periods of a run that a brief stage leaves out: an even number, for where tensors stand may alternate
// from layer to layer.
std::int64_t left_out(std::int64_t layers, std::int64_t period) {
    return std::max<std::int64_t>(0, layers / period - kept_periods) / 2 * 2;
}

bool has_block(const Recompute& r) { return r.kind == Kind::block || r.kind == Kind::offload; }

// Layers in a row that repeat after `period`, all stored or all recomputed unless that goes by groups.
struct LayerRun {
    std::int64_t first = 0;  // of the span
    std::int64_t layers = 0;
    std::int64_t period = 1;
    bool recomputed = false;
    bool in_block = false;
    bool alike = true;
};

struct LayerRuns {
    std::array<LayerRun, most_layer_runs> list{};
    std::size_t count = 0;
    const LayerRun* begin() const { return list.data(); }
    const LayerRun* end() const { return list.data() + count; }
    void add(const LayerRun& run) {
        if (run.layers > 0) list[count++] = run;
    }
};

// How many of the span's layers are in the prefix.
std::int64_t in_prefix(const LayerSpan& span) {
    return std::clamp<std::int64_t>(span.pattern.prefix - span.first, 0, span.layers);
}

// Groups may lie across the end of the prefix: then nothing repeats.
LayerRun grouped_run(const Recompute& recompute, const LayerSpan& span) {
    const std::int64_t prefix = in_prefix(span);
    const std::int64_t period = prefix == span.layers ? span.pattern.prefix_period : span.pattern.period;
    const bool one_kind = prefix == 0 || prefix == span.layers;
    LayerRun run;
    run.layers = span.layers;
    run.period = one_kind ? std::lcm(std::min(recompute.layers, span.layers), period) : span.layers;
    run.alike = one_kind && period == 1;
    return run;
}

LayerRuns runs_of(const Recompute& recompute, const LayerSpan& span) {
    LayerRuns out;
    if (in_groups(recompute)) {
        out.add(grouped_run(recompute, span));
        return out;
    }
    const std::int64_t prefix = in_prefix(span);
    const std::int64_t block = has_block(recompute) ? std::min(recompute.layers, span.layers) : 0;
    std::int64_t first = 0;
    for (const std::int64_t end : {std::min(prefix, block), std::max(prefix, block), span.layers}) {
        LayerRun run{.first = first, .layers = end - first};
        run.period = first < prefix ? span.pattern.prefix_period : span.pattern.period;
        run.in_block = first < block;
        run.recomputed = run.in_block || recompute.kind == Kind::full || recompute.kind == Kind::operators;
        run.alike = run.period == 1;
        out.add(run);
        first = end;
    }
    return out;
}

void append_runs(const Recompute& recompute, const LayerRun& run, std::int64_t layers, std::vector<SegmentRun>& out) {
    const auto add = [&](std::int64_t count, bool again, std::int64_t times) {
        if (count > 0 && times > 0) out.push_back({static_cast<std::int32_t>(count), again, times, run.alike});
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
        add(1, run.recomputed, layers);
    }
}

void append_segments(const std::vector<SegmentRun>& runs, StageLayout& out) {
    for (const SegmentRun& run : runs)
        for (std::int64_t n = 0; n < run.times; ++n) {
            out.segments.push_back({out.layers, run.count, run.recomputed});
            out.layers += run.count;
        }
}

}  // namespace

LayerPattern layer_pattern(const ModelSpec& model, std::int64_t sequence_length) {
    const SlidingWindow& window = model.sliding_window;
    const bool windowed = window.size > 0 && window.size < sequence_length;
    const std::int64_t windows = windowed ? std::max<std::int64_t>(window.full_every, 1) : 1;
    if (!model.has_experts()) return {0, 1, windows};
    return {model.moe.first_dense_layers, windows, std::lcm(windows, model.moe.every)};
}

BriefLayers brief_layers(const Recompute& recompute, const LayerSpan& span) {
    BriefLayers out;
    out.recompute = recompute;
    const LayerRuns runs = runs_of(recompute, span);
    std::int64_t block = 0;
    for (std::size_t r = 0; r < runs.count; ++r) {
        const LayerRun& run = runs.list[r];
        const std::int64_t less = left_out(run.layers, run.period);
        out.runs[r] = run.layers - less * run.period;
        out.layers += out.runs[r];
        if (run.in_block) block += out.runs[r];
        if (less > 0) {
            out.times[out.repeats++] = less + 1;
            out.repeated |= static_cast<std::uint8_t>(1U << r);
        }
    }
    if (has_block(recompute)) out.recompute.layers = block;
    return out;
}

StageLayout stage_layout(const Recompute& recompute, const LayerSpan& span, Depth depth) {
    StageLayout out;
    for (const LayerRun& run : runs_of(recompute, span)) {
        const std::int64_t less = depth == Depth::full ? 0 : left_out(run.layers, run.period);
        if (less > 0) out.repeats.push_back({out.layers, static_cast<std::int32_t>(run.period), less + 1});
        const std::int64_t layers = run.layers - less * run.period;
        std::vector<SegmentRun> segments;
        append_runs(recompute, run, layers, segments);
        append_segments(segments, out);
        for (std::int64_t layer = 0; layer < layers; ++layer)
            out.like.push_back(span.pattern.representative(span.first + run.first + layer));
    }
    return out;
}

std::vector<SegmentRun> segment_runs(const Recompute& recompute, const LayerSpan& span) {
    std::vector<SegmentRun> out;
    for (const LayerRun& run : runs_of(recompute, span)) append_runs(recompute, run, run.layers, out);
    return out;
}

}  // namespace foretrain
