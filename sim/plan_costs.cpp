#include "sim/plan_costs.h"

#include <algorithm>
#include <array>

#include "base/index.h"
#include "plan/program/memory_terms.h"
#include "plan/program/stage.h"
#include "sim/predict.h"

namespace foretrain {

PlanCosts::PlanCosts(const Plan& base) : parts_(base), framework_(framework_named(base.framework)) {}

void PlanCosts::set(const Parallelism& parallelism) {
    parts_.set(parallelism);
    distinct_stages_.clear();
    chunks_.clear();
}

const std::vector<std::int64_t>& PlanCosts::distinct_stages() {
    if (!distinct_stages_.empty()) return distinct_stages_;
    const std::int64_t n = parts_.stages();
    const bool all = !parts_.plan().parallelism.stage_layers.empty() || !parts_.pattern().uniform();
    for (std::int64_t s = 0; s < n; ++s)
        if (all || s <= 1 || s == n - 1) distinct_stages_.push_back(s);
    return distinct_stages_;
}

PlanCosts::Chunk& PlanCosts::chunk_of(std::int64_t stage, std::int64_t chunk) {
    const StageShape shape = parts_.shape_of(stage, chunk);
    for (Chunk& known : chunks_)
        if (known.shape == shape) return known;
    Chunk c;
    c.shape = shape;
    c.layers = parts_.layers_of(shape);
    c.passes = parts_.passes_of(shape);
    c.state = &parts_.state_of(shape);
    c.holding = holding_of(shape, parts_.message(), c.passes.forward.life, c.passes.backward.life);
    return chunks_.emplace_back(c);
}

const std::vector<const Flight*>& PlanCosts::flights() {
    const FlightsKey key{parts_.plan().parallelism.schedule, parts_.stages(), parts_.chunks(), parts_.microbatches()};
    if (flights_.key == key && !flights_.values.empty()) return flights_.values;
    flights_ = {key, {}};
    for (const std::int64_t stage : distinct_stages()) flights_.values.push_back(&parts_.flight_of_stage(stage));
    return flights_.values;
}

// Weights, gradients and optimizer state.
const std::vector<Bytes>& PlanCosts::standing() {
    const Parallelism& p = parts_.plan().parallelism;
    const StandingKey key{p.tensor,        p.replicas(),    parts_.zero(), p.zero_shard_size,
                          parts_.stages(), parts_.chunks(), p.expert,      p.expert_tensor};
    if (standing_.key == key && !standing_.values.empty()) return standing_.values;
    standing_ = {key, {}};
    for (const std::int64_t stage : distinct_stages()) {
        Bytes held;
        for (std::int64_t c = 0; c < parts_.chunks(); ++c) {
            const StageShape shape = parts_.shape_of(stage, c);
            const ChunkState& state = parts_.state_of(shape);
            for (const Region r : {Region::weights, Region::gradients, Region::optimizer})
                held += state.of(r, parts_.layers_of(shape));
        }
        standing_.values.push_back(held);
    }
    return standing_.values;
}

Bytes PlanCosts::least_bytes() {
    const Parallelism& p = parts_.plan().parallelism;
    // Recomputed or not, every layer's input is kept, but for the first of a chunk and those inside a segment.
    const std::int64_t apart = p.recompute.kind == Recompute::Kind::segment ? p.recompute.layers : 1;
    const std::int64_t inputs = (parts_.runs().fewest - 1) / apart;
    Bytes most;
    for (std::size_t d = 0; d < distinct_stages().size(); ++d)
        most = std::max(most, standing()[d] + parts_.message() * (flights()[d]->fullest * inputs));
    return most + beside_program();
}

// As with_reserved (sim/predict.h).
Bytes PlanCosts::beside_program() const {
    return parts_.plan().cluster.device.reserved + framework_.reserved + libraries_of(parts_.plan(), framework_);
}

void PlanCosts::gather_chunks(std::int64_t stage) {
    stage_.clear();
    for (std::int64_t c = 0; c < parts_.chunks(); ++c) stage_.push_back(&chunk_of(stage, c));
}

// Weights, gradients and optimizer, and the rings of ZeRO-2 and 3.
Bytes PlanCosts::stands() const {
    Bytes all, gathered, staging;
    for (const Chunk* c : stage_) {
        for (const Region r : {Region::weights, Region::gradients, Region::optimizer})
            all += c->state->of(r, c->layers);
        gathered = std::max(gathered, c->state->of(Region::gathered, c->layers));
        staging = std::max(staging, c->state->of(Region::staging, c->layers));
    }
    return framework_.memory.idle_rings ? all : all + gathered + staging;
}

Bytes PlanCosts::live(const Flight& flight) const {
    const auto holding = [&](std::size_t c) -> const Holding& { return stage_[c]->holding; };
    return live_peak(flight, stage_.size(), holding).bytes + stands();
}

// As lay_out (plan/program/skeleton.cpp).
Bytes PlanCosts::allocated(const Flight& flight) {
    Bytes most_work, all = stands();
    for (const Chunk* c : stage_) most_work = std::max(most_work, parts_.working_set_of(c->shape));
    for (std::size_t c = 0; c < stage_.size(); ++c) {
        all += pooled_slots(flight, c);
        all += ring_sizes(stage_[c]->shape, parts_.message(), flight.most[c], parts_.microbatches()).bytes();
    }
    return all + most_work;
}

// Of the pool of chunk c, counted with the first of those that share it: as many as are in flight at once.
Bytes PlanCosts::pooled_slots(const Flight& flight, std::size_t c) const {
    const auto shares = [&](std::size_t other) { return stage_[other]->passes.slot == stage_[c]->passes.slot; };
    for (std::size_t before = 0; before < c; ++before)
        if (shares(before)) return {};
    std::int64_t most = 0;
    for (const Flight::Moment& moment : flight.moments) {
        std::int64_t now = !moment.backward && shares(moment.chunk) ? 1 : 0;
        for (std::size_t other = 0; other < stage_.size(); ++other) now += shares(other) ? moment.in_flight[other] : 0;
        most = std::max(most, now);
    }
    return stage_[c]->passes.slot * most;
}

// As with_reserved (sim/predict.h).
Bytes PlanCosts::peak_bytes() {
    // The first and the last chunk have all pieces that those between them need.
    chunk_of(0, 0);
    chunk_of(parts_.stages() - 1, parts_.chunks() - 1);
    Bytes most;
    for (std::size_t d = 0; d < distinct_stages().size(); ++d) {
        const Flight& flight = *flights()[d];
        gather_chunks(distinct_stages()[d]);
        most = std::max(most, framework_.runnable ? allocated(flight) : live(flight));
    }
    return most + beside_program();
}

const ChunkReplicas& PlanCosts::replicas_of(Chunk& chunk) {
    if (chunk.replicas == nullptr) chunk.replicas = &parts_.replicas_of(chunk.shape);
    return *chunk.replicas;
}

PlanCosts::StageWork PlanCosts::work_of(std::int64_t stage) {
    constexpr auto compute = at(Stream::compute), gather = at(Stream::gather), reduce = at(Stream::reduce);
    constexpr auto forward = Stage::forward, backward = Stage::backward, backward_last = Stage::backward_last,
                   optimizer = Stage::optimizer;
    // Of a microbatch, and of the last.
    struct Passes {
        Time computing, hosting;
        std::array<Time, body_streams> busy{};
    };
    StageWork out;
    Passes each, last;
    Time reducing, steps, gathers, unhidden;
    const Time stall = parts_.messages().stall;
    gather_chunks(stage);
    for (std::size_t c = 0; c < stage_.size(); ++c) {
        const ChunkPieces::Whole& passes = stage_[c]->passes;
        const ChunkReplicas& replicas = replicas_of(*stage_[c]);
        const LayerCounts& layers = stage_[c]->layers;
        const ChunkReplicas::Busy also = replicas.of(layers);
        const Time reads = stage_[c]->shape.first ? Time{} : stall, writes = stage_[c]->shape.last ? Time{} : stall;
        // A stretch of weights is gathered before those of the one before are computed with: the first beside none.
        const Time first = parts_.zero() <= 1 ? passes.to_gradients : Time{};
        const auto lost = [&](Stage::BodyIndex body, Time layer) {
            return replicas.lost(at(body), layers, layer, body == backward_last ? first : Time{});
        };
        const Time f = passes.forward.computing + reads + lost(forward, passes.forward_layer),
                   b = passes.backward.computing + writes + lost(backward, passes.backward_layer),
                   b_last = passes.backward.computing + writes + lost(backward_last, passes.backward_layer);
        each.computing += f + b;
        each.hosting += passes.forward.hosting + passes.backward.hosting;
        last.computing += f + b_last;
        for (const std::size_t s : {gather, reduce}) {
            each.busy[s] += also[forward][s] + also[backward][s];
            last.busy[s] += also[forward][s] + also[backward_last][s] + also[optimizer][s];
        }
        steps += also[optimizer][compute];
        gathers += also[optimizer][gather];
        unhidden += also[backward_last][reduce];
        if (c > 0) continue;
        out.first = f + b_last;
        // What the first chunk's last backward pass reduces begins after that has begun.
        reducing = std::max(Time{}, also[backward_last][reduce] - b_last);
    }
    double longest = 0;
    for (const Passes& passes : {each, last})
        for (const Time& t : {passes.computing, passes.hosting, passes.busy[gather], passes.busy[reduce]})
            longest = std::max(longest, static_cast<double>(t.value));
    // No sum of bound() has more of one microbatch or stage than twice that, and a message each way.
    const double message = static_cast<double>(parts_.messages().longest.value);
    check_length(2 * (longest + message), parts_.microbatches(), parts_.stages());

    const std::int64_t others = parts_.microbatches() - 1;
    out.passes = each.computing * others + last.computing;
    out.hosting = each.hosting * parts_.microbatches();
    for (const std::size_t s : {gather, reduce})
        out.alongside = std::max(out.alongside, each.busy[s] * others + last.busy[s]);
    if (parts_.zero() <= 1) out.reductions = parts_.plan().parallelism.overlap.gradient_reduce ? reducing : unhidden;
    out.ending = std::max(steps, gathers);
    return out;
}

// A stage computes all its passes. Its first forward pass, its first chunk's, starts only after those of the
// stages before it, and after its last backward pass their last ones remain, and then the first stage's optimizer.
Time PlanCosts::bound() {
    const std::vector<std::int64_t>& some = distinct_stages();
    const TimelineDurations& between = parts_.messages().durations;
    const StageWork first = work_of(0);
    Time best, fill;
    for (std::size_t d = 0; d < some.size(); ++d) {
        const StageWork work = d == 0 ? first : work_of(some[d]);
        const std::int64_t next = d + 1 < some.size() ? some[d + 1] : parts_.stages();
        // Of those that are alike the last starts last.
        for (std::int64_t s = some[d]; s < next; ++s) {
            if (s + 1 == next) best = std::max({best, fill + work.passes + first.ending, work.alongside});
            if (s + 1 < parts_.stages()) fill += work.first + between.next[at(s)] + between.previous[at(s + 1)];
        }
        best = std::max(best, std::max(work.passes + work.reductions, work.hosting) + work.ending);
    }
    return best;
}

Time PlanCosts::step() {
    bodies_.resize(at(parts_.stages()));
    BodyActivity activity;
    for (std::int64_t s = 0; s < parts_.stages(); ++s) {
        bodies_[at(s)].clear();
        for (std::int64_t c = 0; c < parts_.chunks(); ++c) {
            const PlanParts::Bodies& bodies = parts_.bodies_of(parts_.shape_of(s, c));
            for (const BodyCost& b : bodies.costs) bodies_[at(s)].push_back(&b);
            activity.add(bodies.activity);
        }
    }
    const TimelineDurations& durations = parts_.messages().durations;
    check_length(bodies_, durations, parts_.microbatches());
    Time reduce_tied;
    if (parts_.plan().model.tied_embeddings && parts_.stages() > 1)
        reduce_tied = parts_.cost().collective(InstructionKind::all_reduce, Axis::embedding,
                                               parts_.state_of(parts_.shape_of(0, 0)).tied_gradient);
    return parts_.timeline(activity.activity()).step(bodies_, durations, reduce_tied, parts_.microbatches(), clocks_);
}

}  // namespace foretrain
