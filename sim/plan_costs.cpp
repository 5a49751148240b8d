#include "sim/plan_costs.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/layers_by_chunk.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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
    plan_.parallelism = parallelism;
    microbatches_ = plan_.microbatches();
    runs_ = nullptr;
    mesh_ = nullptr;
    distinct_stages_.clear();
    chunks_.clear();
    forget_if_many();
}

// Parts are small, but there may be as many as plans.
void PlanCosts::forget_if_many() {
    constexpr std::size_t many = 20000, many_large = 2000;
    if (known_memories_.size() > many) known_memories_.clear();
    if (known_times_.size() > many_large) known_times_.clear();
    if (known_bodies_.size() > many) known_bodies_.clear();
    if (known_meshes_.size() > many_large) known_meshes_.clear();
    if (known_timelines_.size() > many_large) known_timelines_.clear();
}

int PlanCosts::zero() const {
    const Parallelism& p = plan_.parallelism;
    return p.context * p.data == 1 ? 0 : p.zero_stage;
}

const PlanCosts::Runs& PlanCosts::runs() {
    if (runs_ != nullptr) return *runs_;
    runs_ = &part(known_runs_, Key{{stages(), chunks()}}, [&] {
        auto runs = std::make_unique<Runs>();
        runs->layers = layers_by_chunk(plan_);
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

PlanCosts::Key PlanCosts::key_of(const StageShape& shape, const BriefLayers& brief) const {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (p.sequence_parallel ? 1 : 0) | (shape.first ? 2 : 0) | (shape.last ? 4 : 0) |
                               (zero() <= 1 ? 8 : 0) | brief.repeated << 4 |
                               static_cast<std::int64_t>(brief.recompute.kind) << 8 |
                               static_cast<std::int64_t>(p.context_method) << 16 | (p.pipeline > 1 ? 1 << 20 : 0);
    return {{p.tensor, p.context, p.micro_batch_size, flags, brief.layers, brief.recompute.layers, shape.first_layer}};
}

const PlanCosts::Timed& PlanCosts::time_of(const Chunk& chunk) {
    return part(known_times_, chunk.key,
                [&] { return std::make_unique<Timed>(make_context(plan_), chunk.shape, mesh().cost, times_made_++); });
}

const ChunkState& PlanCosts::state_of(const StageShape& shape) {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t flags = (shape.first ? 1 : 0) | (shape.last ? 2 : 0);
    return part(known_states_, Key{{p.tensor, p.context * p.data, zero(), flags, p.zero_shard_size}},
                [&] { return std::make_unique<ChunkState>(make_context(plan_), shape); });
}

const PlanCosts::Chunk& PlanCosts::chunk_of(std::int64_t stage, std::int64_t chunk) {
    const StageShape shape = shape_of(stage, chunk);
    for (const Chunk& known : chunks_)
        if (known.shape == shape) return known;
    const BriefLayers brief = brief_layers(plan_.parallelism.recompute, shape.layers, alternation_);
    Chunk c;
    c.shape = shape;
    c.key = key_of(shape, brief);
    c.memory = &part(known_memories_, c.key, [&] { return std::make_unique<ChunkMemory>(make_context(plan_), shape); });
    c.state = &state_of(shape);
    c.times = brief.times;
    c.slot = c.memory->slot_of(c.times);
    c.forward = c.memory->forward.life_of(c.times);
    c.backward = c.memory->backward.life_of(c.times);
    if (!shape.first) c.input = c.memory->message;
    if (!shape.last) c.output = c.memory->message;
    return chunks_.emplace_back(c);
}

const Flight& PlanCosts::flight_of_stage(std::int64_t stage) {
    const Parallelism& p = plan_.parallelism;
    return part(
        known_flights_, Key{{static_cast<std::int64_t>(p.schedule), stages(), chunks(), microbatches_, stage}},
        [&] { return std::make_unique<Flight>(flight_of(p.schedule, stages(), stage, microbatches_, chunks())); });
}

Bytes PlanCosts::least_bytes() {
    const Parallelism& p = plan_.parallelism;
    const std::int64_t tokens = plan_.tokens_per_microbatch() / p.context;
    const std::int64_t rows = p.sequence_parallel ? tokens / p.tensor : tokens;
    const Bytes input{rows * plan_.model.hidden_size * size_of(plan_.training.precision)};
    // Recomputed or not, every layer's input is kept, but for the first of a chunk and those inside a segment.
    const std::int64_t apart = p.recompute.kind == Recompute::Kind::segment ? p.recompute.layers : 1;
    Bytes most;
    for (const std::int64_t stage : distinct_stages()) {
        Bytes held;
        std::int64_t fewest = runs().layers.front();
        for (std::int64_t c = 0; c < chunks(); ++c) {
            const StageShape shape = shape_of(stage, c);
            fewest = std::min(fewest, shape.layers);
            for (const Region r : {Region::weights, Region::gradients, Region::optimizer})
                held += state_of(shape).of(r, shape.layers);
        }
        std::int64_t passes = 0;
        for (const Flight::Moment& moment : flight_of_stage(stage).moments)
            passes =
                std::max(passes, std::accumulate(moment.in_flight.begin(), moment.in_flight.end(), std::int64_t{0}));
        most = std::max(most, held + input * (passes * ((fewest - 1) / apart)));
    }
    return most + plan_.cluster.device.reserved + framework_.reserved;
}

// As lay_out (plan/program/skeleton.cpp) and Estimator::memory.
StageMemory PlanCosts::memory_of(std::int64_t stage) {
    const Flight& flight = flight_of_stage(stage);
    stage_.clear();
    for (std::int64_t c = 0; c < chunks(); ++c) stage_.push_back(&chunk_of(stage, c));
    StageMemory m;
    Bytes gathered, staging;
    for (const Chunk* c : stage_) {
        m.weights += c->state->of(Region::weights, c->shape.layers);
        m.gradients += c->state->of(Region::gradients, c->shape.layers);
        m.optimizer += c->state->of(Region::optimizer, c->shape.layers);
        gathered = std::max(gathered, c->state->of(Region::gathered, 0));
        staging = std::max(staging, c->state->of(Region::staging, 0));
        m.workspace = std::max(m.workspace, c->memory->transients);
    }
    Bytes peak;
    for (const Flight::Moment& moment : flight.moments) {
        const Chunk& now = *stage_[moment.chunk];
        Bytes live = now.output + now.input + (moment.backward ? now.backward : now.forward).peak;
        for (std::size_t c = 0; c < stage_.size(); ++c)
            live += (stage_[c]->forward.net + stage_[c]->input) * moment.in_flight[c];
        peak = std::max(peak, live);
    }
    for (std::size_t c = 0; c < stage_.size(); ++c) {
        m.activations += pooled_slots(flight, c);
        const auto entries = [&](std::int64_t wanted) { return std::min(wanted, microbatches_); };
        const Bytes entry{round_up(stage_[c]->memory->message.value, buffer_alignment)};
        if (!stage_[c]->shape.last) m.communication += entry * (2 * entries(2));
        if (!stage_[c]->shape.first) m.communication += entry * (entries(2) + entries(flight.most[c] + 1));
    }
    m.communication += gathered + staging;
    m.live_peak = peak + m.weights + m.gradients + m.optimizer + gathered + staging;
    return m;
}

// Of the pool of chunk c, counted with the first of those that share it: as many as are in flight at once.
Bytes PlanCosts::pooled_slots(const Flight& flight, std::size_t c) const {
    const auto shares = [&](std::size_t other) { return stage_[other]->slot == stage_[c]->slot; };
    for (std::size_t before = 0; before < c; ++before)
        if (shares(before)) return {};
    std::int64_t most = 0;
    for (const Flight::Moment& moment : flight.moments) {
        std::int64_t now = !moment.backward && shares(moment.chunk) ? 1 : 0;
        for (std::size_t other = 0; other < stage_.size(); ++other) now += shares(other) ? moment.in_flight[other] : 0;
        most = std::max(most, now);
    }
    return stage_[c]->slot * most;
}

Bytes PlanCosts::peak_bytes() {
    Bytes most;
    for (const std::int64_t stage : distinct_stages())
        most = std::max(most, with_reserved(plan_, {memory_of(stage)}).front().total());
    return most;
}

Time PlanCosts::bound() {
    Time best, fill;  // of the stages before: a forward and a backward pass of their first chunk
    std::int64_t before = -1;
    const std::vector<std::int64_t>& some = distinct_stages();
    for (std::size_t d = 0; d < some.size(); ++d) {
        // The last of those that are alike starts last.
        const std::int64_t next = d + 1 < some.size() ? some[d + 1] : stages();
        const auto both = [&](std::int64_t c) {
            const Chunk& chunk = chunk_of(some[d], c);
            const ChunkTime& time = time_of(chunk);
            return time.forward.computing_of(chunk.times) + time.backward.computing_of(chunk.times);
        };
        const Time first = both(0);
        Time passes = first * microbatches_;
        for (std::int64_t c = 1; c < chunks(); ++c) passes += both(c) * microbatches_;
        fill += first * (next - some[d] - 1);
        best = std::max(best, fill + passes);
        fill += first;
        before = next;
    }
    FORETRAIN_CHECK(before == stages(), "a stage is left out");
    return best;
}

const PlanCosts::Bodies& PlanCosts::bodies_of(const Chunk& chunk) {
    const Parallelism& p = plan_.parallelism;
    const Timed& time = time_of(chunk);
    // Between which nodes messages go, and whether chunks take turns, decides what passes lose to them.
    const Key key{{time.number, p.data, zero(), p.zero_shard_size, chunk.times[0], chunk.times[1], p.pipeline,
                   p.virtual_pipeline}};
    return part(known_bodies_, key, [&] {
        auto bodies = std::make_unique<Bodies>();
        bodies->costs = chunk_bodies(make_context(plan_), chunk.shape, time, chunk.times, mesh().cost, 0);
        std::vector<const BodyCost*> pointers;
        for (const BodyCost& b : bodies->costs) pointers.push_back(&b);
        bodies->activity = activity_of({pointers});
        return bodies;
    });
}

const Timeline& PlanCosts::timeline(std::uint32_t activity) {
    const Parallelism& p = plan_.parallelism;
    const auto listing = [&](std::int64_t microbatches) -> const Timeline& {
        const std::int64_t flags = (p.data > 1 ? 1 : 0) | (p.context > 1 ? 2 : 0) |
                                   (p.overlap.gradient_reduce ? 4 : 0) | (p.overlap.pipeline ? 8 : 0);
        const Key key{{static_cast<std::int64_t>(p.schedule), stages(), chunks(), microbatches, activity, flags}};
        return part(known_timelines_, key, [&] {
            Skeleton skeleton = make_skeleton(plan_, Depth::brief);
            if (skeleton.listed != microbatches) list_passes(skeleton, microbatches);
            return std::make_unique<Timeline>(skeleton, activity);
        });
    };
    const Timeline& brief = listing(enough_microbatches(p.schedule, stages(), chunks(), microbatches_));
    return brief.serves(microbatches_) ? brief : listing(microbatches_);
}

TimelineDurations& PlanCosts::durations(Bytes message) {
    const auto [known, fresh] = mesh().durations.try_emplace(message.value);
    if (fresh) known->second = timeline_durations(mesh().cost, stages(), message);
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
    TimelineDurations& d = durations(chunk_of(0, 0).memory->message);
    if (plan_.model.tied_embeddings && stages() > 1)
        d.reduce_tied = mesh().cost.collective(InstructionKind::all_reduce, Axis::embedding,
                                               state_of(shape_of(0, 0)).tied_gradient);
    return timeline(activity).step(bodies_, d, microbatches_, clocks_);
}

}  // namespace foretrain
