#include "sim/plan_costs.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/index.h"
#include "plan/layers_by_chunk.h"
#include "plan/program/body_passes.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

template <class Map, class KeyType, class Make>
auto& part(Map& known, const KeyType& key, Make&& make) {
    auto& found = known[key];
    if (!found) found = make();
    return *found;
}

}  // namespace

std::size_t PlanCosts::KeyHash::operator()(const Key& key) const {
    std::uint64_t h = 0;
    for (const std::int64_t part : key.parts) {
        h = (h ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15U;
        h ^= h >> 29;
    }
    return h;
}

PlanCosts::PlanCosts(const Plan& base)
    : plan_(base),
      framework_(framework_named(base.framework)),
      alternation_(window_alternation(base.model, base.training.sequence_length)) {}

void PlanCosts::set(const Parallelism& parallelism) {
    const auto of_base = [](const Parallelism& p) {
        return std::tie(p.overlap, p.stage_layers, p.first_stage_layers, p.last_stage_layers,
                        p.embedding_and_head_as_layers);
    };
    FORETRAIN_CHECK(of_base(parallelism) == of_base(plan_.parallelism), "a plan of another base");
    plan_.parallelism = parallelism;
    microbatches_ = plan_.microbatches();
    message_ = Bytes{boundary_elements(plan_.model, plan_.training, plan_.parallelism) *
                     size_of(state_types(plan_.training.precision).weight)};
    runs_ = nullptr;
    mesh_ = nullptr;
    pieces_ = nullptr;
    distinct_stages_.clear();
    chunks_.clear();
    forget_if_many();
}

// Parts are small, but there may be as many as plans.
void PlanCosts::forget_if_many() {
    constexpr std::size_t many = 20000, many_large = 2000;
    if (known_pieces_.size() > many_large) known_pieces_.clear();
    if (known_working_sets_.size() > many) known_working_sets_.clear();
    if (known_times_.size() > many_large) known_times_.clear();
    if (known_bodies_.size() > many) known_bodies_.clear();
    if (known_meshes_.size() > many_large) known_meshes_.clear();
    if (known_timelines_.size() > many_large) known_timelines_.clear();
}

const PlanCosts::Runs& PlanCosts::runs() {
    if (runs_ != nullptr) return *runs_;
    runs_ = &part(known_runs_, Key{{stages(), chunks()}}, [&] {
        auto runs = std::make_unique<Runs>();
        runs->layers = layers_by_chunk(plan_);
        runs->fewest = *std::min_element(runs->layers.begin(), runs->layers.end());
        std::int64_t first = 0;
        for (const std::int64_t n : runs->layers) {
            runs->first_layer.push_back(first % alternation_);
            first += n;
        }
        return runs;
    });
    return *runs_;
}

PlanCosts::Mesh& PlanCosts::mesh() {
    const RankGrid grid = plan_.grid();
    if (mesh_ == nullptr)
        mesh_ = &part(known_meshes_, Key{{grid.tensor, grid.context, grid.data, grid.pipeline, grid.shard}},
                      [&] { return std::make_unique<Mesh>(plan_); });
    return *mesh_;
}

StageShape PlanCosts::shape_of(std::int64_t stage, std::int64_t chunk) {
    const auto run = at(chunk * stages() + stage);
    return {runs().layers[run], run == 0, run + 1 == runs().layers.size(), runs().first_layer[run]};
}

const std::vector<std::int64_t>& PlanCosts::distinct_stages() {
    if (!distinct_stages_.empty()) return distinct_stages_;
    const std::int64_t n = stages();
    const bool all = !plan_.parallelism.stage_layers.empty() || alternation_ > 1;
    for (std::int64_t s = 0; s < n; ++s)
        if (all || s <= 1 || s == n - 1) distinct_stages_.push_back(s);
    return distinct_stages_;
}

ChunkPieces& PlanCosts::pieces() {
    if (pieces_ != nullptr) return *pieces_;
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (p.sequence_parallel ? 1 : 0) | (zero() <= 1 ? 2 : 0) | (p.pipeline > 1 ? 4 : 0) |
                               (p.recompute.kind == Recompute::Kind::selective ? 8 : 0) |
                               static_cast<std::int64_t>(p.context_method) << 4;
    pieces_ = &part(known_pieces_, Key{{p.tensor, p.context, p.micro_batch_size, flags}},
                    [] { return std::make_unique<ChunkPieces>(); });
    return *pieces_;
}

BriefLayers PlanCosts::brief_of(const Chunk& chunk) const {
    return brief_layers(plan_.parallelism.recompute, chunk.shape.layers, alternation_);
}

PlanCosts::Key PlanCosts::key_of(const StageShape& shape, const BriefLayers& brief) const {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (p.sequence_parallel ? 1 : 0) | (shape.first ? 2 : 0) | (shape.last ? 4 : 0) |
                               (zero() <= 1 ? 8 : 0) | brief.repeated << 4 |
                               static_cast<std::int64_t>(brief.recompute.kind) << 8 |
                               static_cast<std::int64_t>(p.context_method) << 16 | (p.pipeline > 1 ? 1 << 20 : 0);
    return {{p.tensor, p.context, p.micro_batch_size, flags, brief.layers, brief.recompute.layers, shape.first_layer}};
}

const PlanCosts::Timed& PlanCosts::time_of(const Chunk& chunk, const BriefLayers& brief) {
    return part(known_times_, key_of(chunk.shape, brief),
                [&] { return std::make_unique<Timed>(make_context(plan_), chunk.shape, mesh().cost, times_made_++); });
}

const PlanCosts::Timed& PlanCosts::outline_of(StageShape shape, std::int64_t layers) {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (p.sequence_parallel ? 1 : 0) | (shape.first ? 2 : 0) | (shape.last ? 4 : 0) |
                               (zero() <= 1 ? 8 : 0) | (p.pipeline > 1 ? 16 : 0) |
                               static_cast<std::int64_t>(p.context_method) << 16;
    return part(known_times_, Key{{p.tensor, p.context, -1, flags, layers}}, [&] {
        shape.layers = layers;
        StageContext context = make_context(plan_);
        context.parallelism.recompute = {};
        return std::make_unique<Timed>(context, shape, mesh().cost, times_made_++);
    });
}

Bytes PlanCosts::working_set_of(const Chunk& chunk) {
    return part(known_working_sets_, key_of(chunk.shape, brief_of(chunk)),
                [&] { return std::make_unique<Bytes>(working_set(make_context(plan_), chunk.shape)); });
}

const ChunkState& PlanCosts::state_of(const StageShape& shape) {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (shape.first ? 1 : 0) | (shape.last ? 2 : 0);
    return part(known_states_, Key{{p.tensor, p.replicas(), zero(), flags, p.zero_shard_size}},
                [&] { return std::make_unique<ChunkState>(make_context(plan_), shape); });
}

PlanCosts::Chunk& PlanCosts::chunk_of(std::int64_t stage, std::int64_t chunk) {
    const StageShape shape = shape_of(stage, chunk);
    for (Chunk& known : chunks_)
        if (known.shape == shape) return known;
    Chunk c;
    c.shape = shape;
    c.passes = pieces().of(plan_, shape, alternation_, [&]() -> const CostModel& { return mesh().cost; });
    c.state = &state_of(shape);
    c.holding = holding_of(shape, message_, c.passes.forward.life, c.passes.backward.life);
    return chunks_.emplace_back(c);
}

const std::vector<const Flight*>& PlanCosts::flights() {
    const Parallelism& p = plan_.parallelism;
    Key key{{static_cast<std::int64_t>(p.schedule), stages(), chunks(), microbatches_, 0}};
    if (flights_.key == key && !flights_.values.empty()) return flights_.values;
    flights_ = {key, {}};
    for (const std::int64_t stage : distinct_stages()) {
        key.parts[4] = stage;
        flights_.values.push_back(&part(known_flights_, key, [&] {
            return std::make_unique<Flight>(flight_of(p.schedule, stages(), stage, microbatches_, chunks()));
        }));
    }
    return flights_.values;
}

// Weights, gradients and optimizer state.
const std::vector<Bytes>& PlanCosts::standing() {
    const Parallelism& p = plan_.parallelism;
    const Key key{{p.tensor, p.replicas(), zero(), p.zero_shard_size, stages(), chunks()}};
    if (standing_.key == key && !standing_.values.empty()) return standing_.values;
    standing_ = {key, {}};
    for (const std::int64_t stage : distinct_stages()) {
        Bytes held;
        for (std::int64_t c = 0; c < chunks(); ++c) {
            const StageShape shape = shape_of(stage, c);
            const ChunkState& state = state_of(shape);
            for (const Region r : {Region::weights, Region::gradients, Region::optimizer})
                held += state.of(r, shape.layers);
        }
        standing_.values.push_back(held);
    }
    return standing_.values;
}

Bytes PlanCosts::least_bytes() {
    const Parallelism& p = plan_.parallelism;
    // Recomputed or not, every layer's input is kept, but for the first of a chunk and those inside a segment.
    const std::int64_t apart = p.recompute.kind == Recompute::Kind::segment ? p.recompute.layers : 1;
    const std::int64_t inputs = (runs().fewest - 1) / apart;
    Bytes most;
    for (std::size_t d = 0; d < distinct_stages().size(); ++d)
        most = std::max(most, standing()[d] + message_ * (flights()[d]->fullest * inputs));
    return most + plan_.cluster.device.reserved + framework_.reserved;
}

void PlanCosts::gather_chunks(std::int64_t stage) {
    stage_.clear();
    for (std::int64_t c = 0; c < chunks(); ++c) stage_.push_back(&chunk_of(stage, c));
}

// Weights, gradients and optimizer, and the rings of ZeRO-2 and 3.
Bytes PlanCosts::stands() const {
    Bytes all, gathered, staging;
    for (const Chunk* c : stage_) {
        for (const Region r : {Region::weights, Region::gradients, Region::optimizer})
            all += c->state->of(r, c->shape.layers);
        gathered = std::max(gathered, c->state->of(Region::gathered, 0));
        staging = std::max(staging, c->state->of(Region::staging, 0));
    }
    return all + gathered + staging;
}

Bytes PlanCosts::live(const Flight& flight) const {
    const auto holding = [&](std::size_t c) -> const Holding& { return stage_[c]->holding; };
    return live_peak(flight, stage_.size(), holding).bytes + stands();
}

// As lay_out (plan/program/skeleton.cpp).
Bytes PlanCosts::allocated(const Flight& flight) {
    Bytes most_work, all = stands();
    for (const Chunk* c : stage_) most_work = std::max(most_work, working_set_of(*c));
    for (std::size_t c = 0; c < stage_.size(); ++c) {
        all += pooled_slots(flight, c);
        all += ring_sizes(stage_[c]->shape, message_, flight.most[c], microbatches_).bytes();
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
    chunk_of(stages() - 1, chunks() - 1);
    Bytes most;
    for (std::size_t d = 0; d < distinct_stages().size(); ++d) {
        const Flight& flight = *flights()[d];
        gather_chunks(distinct_stages()[d]);
        most = std::max(most, framework_.runnable ? allocated(flight) : live(flight));
    }
    return most + plan_.cluster.device.reserved + framework_.reserved;
}

const ChunkReplicas& PlanCosts::replicas_of(Chunk& chunk) {
    if (chunk.replicas != nullptr) return *chunk.replicas;
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (chunk.shape.first ? 1 : 0) | (chunk.shape.last ? 2 : 0) | (p.sequence_parallel ? 4 : 0);
    const Key key{{p.tensor, p.context, p.data, p.pipeline, p.virtual_pipeline, zero(), p.zero_shard_size, flags}};
    chunk.replicas = &part(known_replicas_, key, [&] {
        return std::make_unique<ChunkReplicas>(make_context(plan_), chunk.shape, outline_of(chunk.shape, 1),
                                               outline_of(chunk.shape, 2), mesh().cost);
    });
    return *chunk.replicas;
}

PlanCosts::StageWork PlanCosts::work_of(std::int64_t stage) {
    constexpr auto compute = at(Stream::compute), gather = at(Stream::gather), reduce = at(Stream::reduce);
    constexpr auto forward = Stage::forward, backward = Stage::backward, backward_last = Stage::backward_last,
                   optimizer = Stage::optimizer;
    StageWork out;
    Time reducing, steps, gathers, unhidden;
    std::array<Time, body_streams> busy{};
    const Time stall = messages().stall;
    gather_chunks(stage);
    for (std::size_t c = 0; c < stage_.size(); ++c) {
        const ChunkPieces::Whole& passes = stage_[c]->passes;
        const ChunkReplicas& replicas = replicas_of(*stage_[c]);
        const std::int64_t layers = stage_[c]->shape.layers;
        const ChunkReplicas::Busy also = replicas.of(layers);
        const Time reads = stage_[c]->shape.first ? Time{} : stall, writes = stage_[c]->shape.last ? Time{} : stall;
        // A stretch of weights is gathered before those of the one before are computed with: the first beside none.
        const Time first = zero() <= 1 ? passes.to_gradients : Time{};
        const auto lost = [&](Stage::BodyIndex body, Time layer) {
            return replicas.lost(body, layers, layer, body == backward_last ? first : Time{});
        };
        const Time f = passes.forward.computing + reads + lost(forward, passes.forward_layer),
                   b = passes.backward.computing + writes + lost(backward, passes.backward_layer),
                   last = passes.backward.computing + writes + lost(backward_last, passes.backward_layer);
        out.passes += (f + b) * (microbatches_ - 1) + f + last;
        for (const std::size_t s : {gather, reduce})
            busy[s] += (also[forward][s] + also[backward][s]) * (microbatches_ - 1) + also[forward][s] +
                       also[backward_last][s] + also[optimizer][s];
        out.hosting += (passes.forward.hosting + passes.backward.hosting) * microbatches_;
        steps += also[optimizer][compute];
        gathers += also[optimizer][gather];
        unhidden += also[backward_last][reduce];
        if (c > 0) continue;
        out.first = f + last;
        // What the first chunk's last backward pass reduces begins after that has begun.
        reducing = std::max(Time{}, also[backward_last][reduce] - last);
    }
    if (zero() <= 1) out.reductions = plan_.parallelism.overlap.gradient_reduce ? reducing : unhidden;
    out.ending = std::max(steps, gathers);
    out.alongside = std::max(busy[gather], busy[reduce]);
    return out;
}

// A stage computes all its passes. Its first forward pass, its first chunk's, starts only after those of the
// stages before it, and after its last backward pass their last ones remain, and then the first stage's optimizer.
Time PlanCosts::bound() {
    const std::vector<std::int64_t>& some = distinct_stages();
    const TimelineDurations& between = messages().durations;
    const StageWork first = work_of(0);
    Time best, fill;
    for (std::size_t d = 0; d < some.size(); ++d) {
        const StageWork work = d == 0 ? first : work_of(some[d]);
        const std::int64_t next = d + 1 < some.size() ? some[d + 1] : stages();
        // Of those that are alike the last starts last.
        for (std::int64_t s = some[d]; s < next; ++s) {
            if (s + 1 == next) best = std::max({best, fill + work.passes + first.ending, work.alongside});
            if (s + 1 < stages()) fill += work.first + between.next[at(s)] + between.previous[at(s + 1)];
        }
        best = std::max(best, std::max(work.passes + work.reductions, work.hosting) + work.ending);
    }
    return best;
}

const PlanCosts::Bodies& PlanCosts::bodies_of(const Chunk& chunk) {
    const Parallelism& p = plan_.parallelism;
    const BriefLayers brief = brief_of(chunk);
    const Timed& time = time_of(chunk, brief);
    // Between which nodes messages go, and whether chunks take turns, decides what passes lose to them.
    const Key key{{time.number, p.data, zero(), p.zero_shard_size, brief.times[0], brief.times[1], p.pipeline,
                   p.virtual_pipeline}};
    return part(known_bodies_, key, [&] {
        auto bodies = std::make_unique<Bodies>();
        bodies->costs = chunk_bodies(make_context(plan_), chunk.shape, time, brief.times, mesh().cost, 0);
        std::vector<const BodyCost*> pointers;
        for (const BodyCost& b : bodies->costs) pointers.push_back(&b);
        bodies->activity = activity_of({pointers});
        return bodies;
    });
}

const Timeline& PlanCosts::timeline(std::uint32_t activity) {
    const Parallelism& p = plan_.parallelism;
    const auto listing = [&](std::int64_t microbatches) -> const Timeline& {
        const std::int64_t flags = (p.data > 1 ? 1 : 0) | (p.context > 1 ? 2 : 0);
        const Key key{{static_cast<std::int64_t>(p.schedule), stages(), chunks(), microbatches, activity, flags}};
        return part(known_timelines_, key, [&] {
            Skeleton skeleton = make_skeleton(plan_, Depth::outline);
            if (skeleton.listed != microbatches) list_passes(skeleton, microbatches);
            return std::make_unique<Timeline>(skeleton, activity);
        });
    };
    const Timeline& brief = listing(enough_microbatches(p.schedule, stages(), chunks(), microbatches_));
    return brief.serves(microbatches_) ? brief : listing(microbatches_);
}

PlanCosts::Messages& PlanCosts::messages() {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t key = message_.value << 2 | (chunks() > 1 ? 2 : 0) | (p.sequence_parallel ? 1 : 0);
    const auto [known, fresh] = mesh().messages.try_emplace(key);
    if (fresh) {
        known->second.durations = timeline_durations(mesh().cost, stages(), message_);
        if (stages() > 1)
            for (const Instruction& i : message_stalls(make_context(plan_)))
                known->second.stall += mesh().cost.instruction(i, {}, 0);
    }
    return known->second;
}

Time PlanCosts::step() {
    bodies_.resize(at(stages()));
    std::uint32_t activity = 0;
    for (std::int64_t s = 0; s < stages(); ++s) {
        bodies_[at(s)].clear();
        for (std::int64_t c = 0; c < chunks(); ++c) {
            const Bodies& bodies = bodies_of(chunk_of(s, c));
            for (const BodyCost& b : bodies.costs) bodies_[at(s)].push_back(&b);
            activity |= bodies.activity;
        }
    }
    check_length(bodies_, microbatches_);
    TimelineDurations& d = messages().durations;
    if (plan_.model.tied_embeddings && stages() > 1)
        d.reduce_tied = mesh().cost.collective(InstructionKind::all_reduce, Axis::embedding,
                                               state_of(shape_of(0, 0)).tied_gradient);
    return timeline(activity).step(bodies_, d, microbatches_, clocks_);
}

}  // namespace foretrain
