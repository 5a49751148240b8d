// Which layers of a stage are stored, which are recomputed and in what runs; and how to write a stage
// of many layers as one of few.
//
// Layers repeat: all that a stage of 32 equal layers costs and holds is known from four of them. A
// *brief* stage has four or five of each run of equal layers (equal periods, where layers alternate:
// sliding windows, every k-th recomputed); one of them stands for those left out. Its sums are exact,
// and so are its clocks: an instruction depends on nothing further back than two periods, so that the
// third one visited is like every one after it. `lower` needs the full stage, `estimate` a brief one.
//
//   StageLayout layout = stage_layout({.kind = Recompute::Kind::block, .layers = 6}, 32, 1, Depth::brief);
//   layout.layers            // 8: four of the six recomputed and four of the 26 stored layers
//   layout.repeats[1].times  // 23: one stored layer stands for itself and 22 more
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace foretrain {

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
};

// Those of a stage, in order.
std::vector<SegmentRun> segment_runs(const Recompute& recompute, std::int64_t layers);

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
    std::vector<Repeat> repeats;  // empty of a full stage
};

// What two stages have in common if they differ only in how often their layers repeat: layers and recompute
// of the brief one, and which of its runs (of a block, of the rest) repeat. `times` as in StageLayout::repeats.
struct BriefLayers {
    std::int64_t layers = 0;
    Recompute recompute;
    std::uint8_t repeated = 0;  // a bit for each run
    std::uint8_t repeats = 0;
    std::array<std::int64_t, 2> times{1, 1};
};

BriefLayers brief_layers(const Recompute& recompute, std::int64_t layers, std::int64_t alternation);

// `alternation`: after how many layers the model's windows repeat.
StageLayout stage_layout(const Recompute& recompute, std::int64_t layers, std::int64_t alternation, Depth depth);

// 1 where all layers see alike.
std::int64_t window_alternation(const ModelSpec& model, std::int64_t sequence_length);

}  // namespace foretrain
