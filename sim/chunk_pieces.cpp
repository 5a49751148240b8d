#include "sim/chunk_pieces.h"

#include <algorithm>

#include "base/index.h"
#include "sim/durations.h"

namespace foretrain {

namespace {

// Adds a piece that runs `times` in a row after what is summed up so far.
void add(ChunkPieces::Pass& sum, const ChunkPieces::Pass& piece, std::int64_t times) {
    const Bytes before_last = std::max(piece.life.net * (times - 1), Bytes{});
    sum.life.peak = std::max(sum.life.peak, sum.life.net + before_last + piece.life.peak);
    sum.life.net += piece.life.net * times;
    sum.computing += piece.computing * times;
    sum.hosting += piece.hosting * times;
}

struct PassesByCut {
    std::vector<ChunkPieces::Pass> passes;
    std::vector<Time> to_gradients;  // computing up to the last gradient that is written

    PassesByCut(const Body& body, const CostModel& cost, InstructionDurations& durations) {
        for (const Life& life : life_by_cut(body)) passes.push_back({life, Time{}, Time{}});
        to_gradients.resize(passes.size());
        std::size_t cut = 0;
        for (std::size_t i = 0; i < body.code.size(); ++i) {
            const Instruction& instruction = body.code[i];
            while (cut < body.cuts.size() && body.cuts[cut].at <= static_cast<std::int32_t>(i)) ++cut;
            ChunkPieces::Pass& pass = passes[cut];
            if (instruction.stream == Stream::compute) pass.computing += durations.of(instruction, cost);
            if (instruction.stream == Stream::host) pass.hosting += durations.of(instruction, cost);
            for (std::size_t o = 0; o < instruction.operands; ++o)
                if (body.buffers[at(instruction.operand[o])].home == Home::unit_gradient)
                    to_gradients[cut] = pass.computing;
        }
    }
};

// The fewest layers that have all pieces of the shape's, where one layer is like another: one inside,
// and one that reads or writes a message.
BriefLayers fewest_layers(const Recompute& recompute, const StageShape& shape) {
    const LayerSpan span{.layers = shape.layers, .pattern = {}};
    const std::vector<SegmentRun> runs = segment_runs(recompute, span);
    if (recompute.kind == Recompute::Kind::segment || recompute.kind == Recompute::Kind::every)
        return brief_layers(recompute, span);
    BriefLayers out;
    out.recompute = recompute;
    for (std::size_t r = 0; r < runs.size(); ++r) {
        const std::int64_t reads = r == 0 && !shape.first ? 1 : 0, writes = r + 1 == runs.size() && !shape.last ? 1 : 0;
        out.layers += std::min(runs[r].times, 1 + reads + writes);
        if (r == 0) out.recompute.layers = out.layers;
    }
    return out;
}

// Layers from `first` on, of which pieces with the same number do the same: negative in the prefix, and beyond
// the periods where a segment lies across its end.
std::int32_t phase_of(const LayerPattern& pattern, std::int64_t first, std::int64_t count) {
    if (first + count <= pattern.prefix) return static_cast<std::int32_t>(-1 - first % pattern.prefix_period);
    if (first < pattern.prefix) return static_cast<std::int32_t>(pattern.period + first);
    return static_cast<std::int32_t>((first - pattern.prefix) % pattern.period);
}

// A stage that has all pieces of the shape's.
Stage small_stage(const Plan& plan, const StageShape& shape, const LayerPattern& pattern) {
    StageContext context = make_context(plan);
    if (!pattern.uniform()) return build_passes(context, shape, Depth::brief);
    const BriefLayers few = fewest_layers(plan.parallelism.recompute, shape);
    context.parallelism.recompute = few.recompute;
    StageShape small = shape;
    small.layers = few.layers;
    return build_passes(context, small, Depth::full);
}

}  // namespace

std::size_t ChunkPieces::KeyHash::operator()(const Key& k) const {
    const std::uint64_t flags =
        (k.recomputed ? 1U : 0U) | (k.begins ? 2U : 0U) | (k.ends ? 4U : 0U) | (k.after ? 8U : 0U);
    return (static_cast<std::uint64_t>(k.count) << 24U) ^
           (static_cast<std::uint64_t>(static_cast<std::uint32_t>(k.phase)) << 4U) ^ flags;
}

void ChunkPieces::list(const Recompute& recompute, const StageShape& shape, const LayerPattern& pattern) {
    uses_.clear();
    uses_.push_back({.key = {.begins = shape.first, .ends = shape.last}});
    std::int64_t layer = 0;
    for (const SegmentRun& run : segment_runs(recompute, {shape.layers, pattern, shape.first_layer})) {
        const auto add = [&](std::int64_t times) {
            Use use{.key = {.count = run.count, .recomputed = run.recomputed}, .times = times};
            use.key.phase = phase_of(pattern, shape.first_layer + layer, run.count);
            use.key.begins = layer == 0 && !shape.first;
            layer += run.count * times;
            use.key.ends = layer == shape.layers && !shape.last;
            uses_.push_back(use);
        };
        std::int64_t left = run.times;
        if (layer == 0 && left > 0) add(1), --left;
        const bool writes = layer + left * run.count == shape.layers;
        for (; !run.alike && left > 1; --left) add(1);
        if (left > 1 && writes) add(left - 1), left = 1;
        if (left > 0) add(left);
    }
    uses_.push_back({.key = {.begins = shape.first, .ends = shape.last, .after = true}});
}

bool ChunkPieces::find() {
    for (Use& use : uses_) {
        const auto found = pieces_.find(use.key);
        if (found == pieces_.end()) return false;
        use.piece = &found->second;
    }
    return true;
}

void ChunkPieces::make(const Plan& plan, const StageShape& shape, const LayerPattern& pattern, const CostModel& cost) {
    const Stage stage = small_stage(plan, shape, pattern);
    InstructionDurations durations;
    durations.begin_stage(stage.kernels, 0, 1);
    const PassesByCut forward(stage.bodies[Stage::forward], cost, durations),
        backward(stage.bodies[Stage::backward], cost, durations);

    std::vector<Bytes> kept(at(stage.layout.layers) + 1);  // by layer; the last: of none
    for (const BodyBuffer& b : stage.saved)
        kept[b.label.layer < 0 ? kept.size() - 1 : at(b.label.layer)] +=
            Bytes{round_up(b.bytes().value, buffer_alignment)};
    // Both ends of what is kept apart from layers are counted at the beginning.
    const Key edge{.begins = shape.first, .ends = shape.last};
    pieces_[edge] = {forward.passes.front(), backward.passes.back(), kept.back(), Time{}};
    Key after = edge;
    after.after = true;
    pieces_[after] = {forward.passes.back(), backward.passes.front(), Bytes{}, Time{}};
    const std::vector<Segment>& segments = stage.layout.segments;
    for (std::size_t s = 0; s < segments.size(); ++s) {
        Bytes slot;
        for (std::int32_t layer = segments[s].first; layer < segments[s].end(); ++layer) slot += kept[at(layer)];
        const Key key{.count = segments[s].count,
                      .phase = phase_of(pattern, stage.layout.like[at(segments[s].first)], segments[s].count),
                      .recomputed = segments[s].recomputed,
                      .begins = s == 0 && !shape.first,
                      .ends = s + 1 == segments.size() && !shape.last};
        const std::size_t back = segments.size() - s;
        pieces_[key] = {forward.passes[s + 1], backward.passes[back], slot, backward.to_gradients[back]};
    }
}

ChunkPieces::Whole ChunkPieces::sum() const {
    Whole out;
    for (const Use& use : uses_) {
        add(out.forward, use.piece->forward, use.times);
        out.slot += use.piece->slot * use.times;
        if (use.key.count == 0) continue;
        const bool single = use.key.count == 1, fresh = &use == &uses_[1];
        const auto least = [&](Time& layer, Time computing) {
            layer = !single ? Time{} : fresh ? computing : std::min(layer, computing);
        };
        least(out.forward_layer, use.piece->forward.computing);
        least(out.backward_layer, use.piece->backward.computing);
        least(out.to_gradients, use.piece->to_gradients);
    }
    for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) add(out.backward, use->piece->backward, use->times);
    return out;
}

}  // namespace foretrain
