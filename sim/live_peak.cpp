#include "sim/live_peak.h"

#include <algorithm>
#include <numeric>

#include "base/index.h"

namespace foretrain {

namespace {

Bytes change_of(const Body& body, const Instruction& i) {
    if (i.kind == InstructionKind::alloc) return body.buffers[at(i.operand[0])].bytes();
    if (i.kind == InstructionKind::free) return Bytes{-body.buffers[at(i.operand[0])].bytes().value};
    return {};
}

// How much more lives after each time of the code that stands for many.
Bytes growth_of(const Body& body, const CodeRepeat& r) {
    Bytes growth;
    for (std::int32_t i = r.begin; i < r.end; ++i) growth += change_of(body, body.code[at(i)]);
    return growth;
}

// The number in the full stage of a brief stage's layer. One that stands for many is the last of them: in
// forward passes what lives grows up to it, in backward passes it is visited first.
std::int32_t full_layer(std::int32_t layer, const Stage& stage, InstructionKind pass) {
    std::int64_t full = layer;
    for (const Repeat& r : stage.layout.repeats)
        if (layer >= (pass == InstructionKind::backward_chunk ? r.descending() : r.ascending()))
            full += (r.times - 1) * r.period;
    return static_cast<std::int32_t>(full);
}

// The section of the body's instruction that brings what lives above the entry to its peak.
std::string peak_section(const Body& body, const Stage& stage, std::int64_t first_layer) {
    Bytes live, growth;
    auto repeat = body.repeats.begin();
    for (std::size_t n = 0; n < body.code.size(); ++n) {
        if (repeat != body.repeats.end() && n == at(repeat->begin)) growth = growth_of(body, *repeat);
        const bool repeated = repeat != body.repeats.end() && n >= at(repeat->begin);
        const Instruction& i = body.code[n];
        live += change_of(body, i);
        const Bytes highest = live + (repeated ? std::max(growth, Bytes{}) * (repeat->times - 1) : Bytes{});
        if (i.kind == InstructionKind::alloc && highest == body.live_peak && i.section >= 0) {
            Label label = stage.sections[at(i.section)];
            if (label.layer >= 0) label.layer = full_layer(label.layer, stage, body.kind);
            return text(label, first_layer);
        }
        if (repeated && n + 1 == at(repeat->end)) {
            live += growth * (repeat->times - 1);
            ++repeat;
        }
    }
    return "";
}

}  // namespace

std::vector<Holding> holdings_of(const Skeleton& skeleton, std::size_t stage) {
    std::vector<Holding> out;
    for (const ChunkSkeleton& chunk : skeleton.stages[stage].chunks) {
        const auto life = [&](Stage::BodyIndex b) {
            const Body& body = chunk.stage->bodies[at(b)];
            return Life{body.live_peak, body.live_net};
        };
        out.push_back(
            holding_of(chunk.stage->shape, skeleton.context.message(), life(Stage::forward), life(Stage::backward)));
    }
    return out;
}

PeakMoment moment_of(const Skeleton& skeleton, std::size_t stage, const std::vector<Holding>& holdings,
                     const LivePeak& peak) {
    if (peak.moment == nullptr) return {};
    const Flight::Moment& m = *peak.moment;
    PeakMoment moment;
    moment.microbatch = m.microbatch;
    // A chunk's pass of a microbatch is in flight from its forward pass until its backward pass is over.
    moment.in_flight = std::accumulate(m.in_flight.begin(), m.in_flight.end(), std::int64_t{0});
    const Life& life = m.backward ? holdings[m.chunk].backward : holdings[m.chunk].forward;
    if (life.peak == Bytes{}) {  // the pass only gives back: it was reached before, with its messages
        moment.pass = "message";
        return moment;
    }
    moment.pass = m.backward ? "backward" : "forward";
    moment.in_flight += m.backward ? 0 : 1;
    const ChunkSkeleton& chunk = skeleton.stages[stage].chunks[m.chunk];
    const Stage& built = *chunk.stage;
    const Body& body = built.bodies[m.backward ? Stage::backward : Stage::forward];
    moment.section = peak_section(body, built, chunk.first_layer);
    return moment;
}

}  // namespace foretrain
