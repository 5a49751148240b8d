#include "sim/estimate.h"

#include <algorithm>

#include "base/error.h"
#include "base/index.h"

namespace foretrain {

Estimator::Estimator(const Skeleton& skeleton, const CostModel& cost) : skeleton_(skeleton) {
    const RankGrid grid = skeleton.plan.grid();
    for (std::size_t s = 0; s < skeleton.stages.size(); ++s) {
        const Parallelism& p = skeleton.plan.parallelism;
        Fullest& fullest = fullest_.emplace_back();
        fullest.flight =
            flight_of(p.schedule, p.pipeline, static_cast<std::int64_t>(s), skeleton.microbatches, p.virtual_pipeline);
        fullest.holdings = holdings_of(skeleton, s);
        fullest.peak = live_peak(fullest.flight, fullest.holdings.size(),
                                 [&](std::size_t c) -> const Holding& { return fullest.holdings[c]; });
        std::vector<const BodyCost*>& bodies = bodies_.emplace_back();
        for (const ChunkSkeleton& chunk : skeleton.stages[s].chunks) {
            const auto [known, fresh] = costs_.try_emplace(chunk.stage.get());
            if (fresh) known->second = body_costs(*chunk.stage, static_cast<std::int64_t>(s), grid, cost);
            for (const BodyCost& body : known->second) bodies.push_back(&body);
        }
    }
    durations_ =
        timeline_durations(cost, static_cast<std::int64_t>(skeleton.stages.size()), skeleton.context.message());
    if (skeleton.tied_across_stages())
        reduce_tied_ = cost.collective(InstructionKind::all_reduce, Axis::embedding, tied_gradient_bytes(skeleton));
    check_length(bodies_, durations_, skeleton.microbatches);
    free_ = bodies_;
    std::map<const BodyCost*, const BodyCost*> freed;
    for (std::vector<const BodyCost*>& bodies : free_)
        for (const BodyCost*& body : bodies) {
            if (body->messages == Time{}) continue;
            const BodyCost*& other = freed[body];
            if (other == nullptr) {
                free_costs_.push_back(*body);
                free_costs_.back().exit = body->exit_without_messages;
                other = &free_costs_.back();
            }
            body = other;
        }
}

void Estimator::make_timeline() {
    own_timeline_ = std::make_unique<Timeline>(skeleton_, activity());
    if (!own_timeline_->serves(skeleton_.microbatches)) {
        Skeleton whole = skeleton_;
        list_passes(whole, skeleton_.microbatches);
        own_timeline_ = std::make_unique<Timeline>(whole, activity());
    }
    timeline_ = own_timeline_.get();
}

Estimate Estimator::estimate_with(const TimelineDurations& durations, Time reduce_tied, const StageBodies& bodies) {
    if (timeline_ == nullptr) make_timeline();
    return timeline_->run(bodies, durations, reduce_tied, skeleton_.microbatches);
}

Estimate Estimator::estimate() { return estimate_with(durations_, reduce_tied_, bodies_); }

Estimate Estimator::estimate_with_free_messages() {
    TimelineDurations d = durations_;
    std::fill(d.next.begin(), d.next.end(), Time{});
    std::fill(d.previous.begin(), d.previous.end(), Time{});
    return estimate_with(d, Time{}, free_);
}

std::vector<StageMemory> Estimator::memory() const {
    std::vector<StageMemory> out;
    for (std::size_t s = 0; s < skeleton_.stages.size(); ++s) {
        const StageSkeleton& stage = skeleton_.stages[s];
        const auto region = [&](Region r) { return stage.region_bytes[static_cast<std::size_t>(r)]; };
        StageMemory m;
        m.weights = region(Region::weights);
        m.gradients = region(Region::gradients);
        m.optimizer = region(Region::optimizer);
        m.activations = region(Region::activations);
        m.workspace = region(Region::transients);
        m.communication = region(Region::communication) + region(Region::gathered) + region(Region::staging);
        m.rings = region(Region::gathered) + region(Region::staging);
        m.live_peak = fullest_[s].peak.bytes + m.weights + m.gradients + m.optimizer + region(Region::gathered) +
                      region(Region::staging);
        out.push_back(m);
    }
    return out;
}

std::vector<PeakMoment> Estimator::peaks() const {
    std::vector<PeakMoment> out;
    for (std::size_t s = 0; s < fullest_.size(); ++s)
        out.push_back(moment_of(skeleton_, s, fullest_[s].holdings, fullest_[s].peak));
    return out;
}

// What is between bodies: messages, and collectives at the step's end. Counted is what the first member sends.
void Estimator::count_between(InstructionKind kind, Axis axis, DType type, Bytes bytes, std::int64_t times,
                              WireCount& count) const {
    Instruction i;
    i.kind = kind;
    i.axis = axis;
    i.type = type;
    i.count = bytes.value / size_of(type);
    count[wire_key(axis, kind)] += wire_bytes(i, skeleton_.plan.grid().size(axis), 0) * times;
}

std::vector<WireCount> Estimator::wire() const {
    using Kind = InstructionKind;
    std::vector<WireCount> out;
    const std::int64_t m = skeleton_.microbatches;
    for (std::size_t s = 0; s < skeleton_.stages.size(); ++s) {
        WireCount count;
        const StageSkeleton& stage = skeleton_.stages[s];
        const StateTypes& types = skeleton_.context.types;
        for (const ChunkSkeleton& chunk : stage.chunks) {
            for (const auto& [body, times] :
                 {std::pair{Stage::forward, m}, std::pair{Stage::backward, m - 1},
                  std::pair{Stage::backward_last, std::int64_t{1}}, std::pair{Stage::optimizer, std::int64_t{1}}})
                for (const auto& [key, bytes] : bodies_[s][at(chunk.body(body))]->wire) count[key] += bytes * times;
            const std::int64_t neighbours = (chunk.first() ? 0 : 1) + (chunk.last() ? 0 : 1);
            if (neighbours > 0)
                count_between(Kind::send, Axis::pipeline, types.weight, skeleton_.context.message(), neighbours * m,
                              count);
            if (chunk.last() && skeleton_.context.replicas() > 1)
                count_between(Kind::all_reduce, Axis::replica, DType::fp64, Bytes{size_of(DType::fp64)}, 1, count);
            if (skeleton_.tied_across_stages() && (chunk.first() || chunk.last()))
                count_between(Kind::all_reduce, Axis::embedding, types.gradient, tied_gradient_bytes(skeleton_), 1,
                              count);
        }
        std::erase_if(count, [](const auto& entry) { return entry.second.value == 0; });
        out.push_back(std::move(count));
    }
    return out;
}

double Estimator::executed(Flops BodyCost::*kind) const {
    double total = 0;
    for (std::size_t s = 0; s < bodies_.size(); ++s) {
        for (const ChunkSkeleton& chunk : skeleton_.stages[s].chunks)
            for (const auto body : {Stage::forward, Stage::backward})
                total += static_cast<double>((bodies_[s][at(chunk.body(body))]->*kind).value);
    }
    const RankGrid grid = skeleton_.plan.grid();
    return total * static_cast<double>(skeleton_.microbatches * grid.tensor * grid.context * grid.data);
}

}  // namespace foretrain
