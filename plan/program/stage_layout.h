// Which layers of a stage are stored, which are recomputed and in what runs; and how to write a stage
// of many layers as one of few.
//
// Layers differ: by the window that they see through, and by whether they have experts. LayerPattern says which are
// alike: a prefix without experts, then periods.
//
// Layers repeat: all that a stage of 32 equal layers costs and holds is known from four of them. A
// *brief* stage has four or five of each run of equal layers (equal periods, where layers alternate:
// sliding windows, every k-th recomputed); one of them stands for those left out. Its sums are exact,
// and so are its clocks: an instruction depends on nothing further back than two periods, so that the
// third one visited is like every one after it. `lower` needs the full stage, `estimate` a brief one.
//
//   StageLayout layout = stage_layout({.kind = Recompute::Kind::block, .layers = 6}, {.layers = 32}, Depth::brief);
//   layout.layers            // 8: four of the six recomputed and four of the 26 stored layers
//   layout.repeats[1].times  // 23: one stored layer stands for itself and 22 more
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace foretrain {

// How the layers of a model repeat: after how many within the first `prefix`, and after them.
struct LayerPattern {
    std::int64_t prefix = 0;         // layers before those of which some have experts; 0: no layer has
    std::int64_t prefix_period = 1;  // of their windows
    std::int64_t period = 1;         // of windows and experts
    bool uniform() const { return prefix == 0 && period == 1; }
    // The first layer that does the same, and is followed by layers that do.
    std::int64_t representative(std::int64_t layer) const {
        return layer < prefix ? layer : prefix + (layer - prefix) % period;
    }
};

LayerPattern layer_pattern(const ModelSpec& model, std::int64_t sequence_length);

// Layers of a model in a row.
struct LayerSpan {
    std::int64_t layers = 0;
    LayerPattern pattern;
    std::int64_t first = 0;  // in the model, or its representative
};

// full: every layer; brief: few of those that repeat; outline: one, and bodies without code.
enum class Depth : std::uint8_t { full, brief, outline };

// A run of layers that is stored whole, or otherwise: by its input and recomputed as one, or as the plan's recompute
// says (selective_op, offload).
struct Segment {
    std::int32_t first = 0;
    std::int32_t count = 1;
    bool recomputed = false;
    std::int32_t end() const { return first + count; }
};

// Segments that follow one another and are alike.
struct SegmentRun {
    std::int32_t count = 1;  // layers of each
    bool recomputed = false;
    std::int64_t times = 1;
    bool alike = true;  // else they differ in windows or experts
};

// Those of a stage, in order.
std::vector<SegmentRun> segment_runs(const Recompute& recompute, const LayerSpan& span);

constexpr std::int32_t kept_periods = 4;

// Of a run of equal periods that begins at layer `first`, one stands for `times`.
struct Repeat {
    std::int32_t first = 0;
    std::int32_t period = 1;  // layers
    std::int64_t times = 1;

    // First layer of that one: the third visited, in ascending order (forward) or descending.
    std::int32_t ascending() const { return first + 2 * period; }
    std::int32_t descending() const { return first + period; }
};

struct StageLayout {
    std::int32_t layers = 0;
    std::vector<Segment> segments;
    std::vector<Repeat> repeats;     // empty of a full stage
    std::vector<std::int64_t> like;  // by layer: which layer of the model it is, or one that does the same
};

// The most runs of layers that are each alike in what they do and in their recompute: the prefix or a block of
// recompute, what is between their ends, the rest.
constexpr std::size_t most_layer_runs = 3;
using RepeatTimes = std::array<std::int64_t, most_layer_runs>;

// What two stages have in common if they differ only in how often their layers repeat: layers and recompute
// of the brief one, and which of its runs repeat. `times` as in StageLayout::repeats.
struct BriefLayers {
    std::int64_t layers = 0;
    Recompute recompute;
    std::array<std::int64_t, most_layer_runs> runs{};  // layers of each
    std::uint8_t repeated = 0;                         // a bit for each run
    std::uint8_t repeats = 0;
    RepeatTimes times{1, 1, 1};
};

BriefLayers brief_layers(const Recompute& recompute, const LayerSpan& span);

StageLayout stage_layout(const Recompute& recompute, const LayerSpan& span, Depth depth);

}  // namespace foretrain
