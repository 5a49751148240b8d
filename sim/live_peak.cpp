#include "sim/live_peak.h"

#include <algorithm>
#include <set>
#include <utility>

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

const char* pass_name(InstructionKind kind) {
    switch (kind) {
        case InstructionKind::forward_chunk: return "forward";
        case InstructionKind::backward_chunk: return "backward";
        case InstructionKind::optimizer_step: return "optimizer step";
        default: return "message";
    }
}

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

LivePeak live_peak(const Skeleton& skeleton, std::size_t stage, const std::vector<Instruction>& code) {
    const StageSkeleton& s = skeleton.stages[stage];
    const Bytes message{s.boundary_elements() * size_of(skeleton.context.types.weight)};
    LivePeak peak;
    Bytes live;
    const auto reach = [&](Bytes now, std::size_t n) {
        if (now > peak.bytes) peak = {now, n};
    };
    for (std::size_t n = 0; n < code.size(); ++n) {
        const Instruction& i = code[n];
        if (i.kind == InstructionKind::alloc) live += message;
        if (i.kind == InstructionKind::free) live -= message;
        if (i.body >= 0) {
            const Body& body = s.body(i);
            reach(live + body.live_peak, n);
            live += body.live_net;
        }
        reach(live, n);
    }
    return peak;
}

PeakMoment moment_of(const Skeleton& skeleton, std::size_t stage, const std::vector<Instruction>& code) {
    const LivePeak peak = live_peak(skeleton, stage, code);
    if (peak.bytes.value == 0) return {};
    const Instruction& i = code[peak.instruction];
    PeakMoment moment;
    moment.pass = pass_name(i.kind);
    moment.microbatch = i.microbatch;
    // A chunk's pass of a microbatch is in flight from its forward pass until its backward pass is over.
    std::set<std::pair<std::int16_t, std::int32_t>> begun;
    for (std::size_t n = 0; n <= peak.instruction; ++n) {
        if (code[n].kind == InstructionKind::forward_chunk) begun.insert({code[n].chunk, code[n].microbatch});
        if (code[n].kind == InstructionKind::backward_chunk && n < peak.instruction)
            begun.erase({code[n].chunk, code[n].microbatch});
    }
    moment.in_flight = static_cast<std::int64_t>(begun.size());
    if (i.body < 0) return moment;
    const StageSkeleton& s = skeleton.stages[stage];
    const ChunkSkeleton& chunk = s.chunks[at(i.chunk)];
    moment.section = peak_section(s.body(i), *chunk.stage, chunk.first_layer);
    return moment;
}

}  // namespace foretrain
