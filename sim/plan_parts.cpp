#include "sim/plan_parts.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/index.h"
#include "plan/framework.h"
#include "plan/layers_by_chunk.h"
#include "plan/program/body_passes.h"

namespace foretrain {

namespace {

template <class Map, class Key, class Make>
auto& part(Map& known, const Key& key, Make&& make) {
    auto& found = known[key];
    if (!found) found = make();
    return *found;
}

// 0 for those whose layers are stored whole or computed again whole.
std::int64_t pieces_kind(const Recompute& recompute) {
    using Kind = Recompute::Kind;
    for (const Kind kind : {Kind::selective, Kind::operators, Kind::offload})
        if (recompute.kind == kind) return static_cast<std::int64_t>(kind);
    return 0;
}

// What the base has for all plans, and keys leave out.
auto of_base(const Parallelism& p) {
    return std::tie(p.overlap, p.stage_layers, p.first_stage_layers, p.last_stage_layers,
                    p.embedding_and_head_as_layers, p.optimizer_on_host);
}

}  // namespace

PlanParts::PlanParts(const Plan& base)
    : plan_(base), pattern_(layer_pattern(base.model, base.training.sequence_length)) {}

void PlanParts::set(const Parallelism& parallelism) {
    FORETRAIN_CHECK(of_base(parallelism) == of_base(plan_.parallelism), "a plan of another base");
    plan_.parallelism = parallelism;
    microbatches_ = plan_.microbatches();
    message_ = Bytes{boundary_elements(plan_.model, plan_.training, parallelism) *
                     size_of(state_types(plan_.training).weight)};
    runs_ = nullptr;
    mesh_ = nullptr;
    pieces_ = nullptr;
    messages_ = nullptr;
    forget_if_many();
}

void PlanParts::forget_if_many() {
    constexpr std::size_t many = 20000, many_large = 2000;
    if (known_pieces_.size() > many_large) known_pieces_.clear();
    if (known_working_sets_.size() > many) known_working_sets_.clear();
    if (known_times_.size() > many_large) known_times_.clear();
    if (known_outlines_.size() > many_large) known_outlines_.clear();
    if (known_bodies_.size() > many) known_bodies_.clear();
    if (known_meshes_.size() > many_large) known_meshes_.clear();
    if (known_timelines_.size() > many_large) known_timelines_.clear();
}

const PlanParts::Runs& PlanParts::runs() {
    if (runs_ != nullptr) return *runs_;
    runs_ = &part(known_runs_, RunsKey{stages(), chunks()}, [&] {
        auto runs = std::make_unique<Runs>();
        runs->layers = layers_by_chunk(plan_);
        runs->fewest = *std::min_element(runs->layers.begin(), runs->layers.end());
        std::int64_t first = 0;
        for (const std::int64_t n : runs->layers) {
            runs->first_layer.push_back(pattern_.representative(first));
            first += n;
        }
        return runs;
    });
    return *runs_;
}

StageShape PlanParts::shape_of(std::int64_t stage, std::int64_t chunk) {
    const auto run = at(chunk * stages() + stage);
    return {runs().layers[run], run == 0, run + 1 == runs().layers.size(), runs().first_layer[run]};
}

PlanParts::MeshKey PlanParts::mesh_key() const {
    const RankGrid grid = plan_.grid();
    return {grid.tensor, grid.context, grid.data,          grid.pipeline,
            grid.shard,  grid.expert,  grid.expert_tensor, plan_.parallelism.sequence_parallel};
}

PlanParts::Mesh& PlanParts::mesh() {
    if (mesh_ == nullptr) mesh_ = &part(known_meshes_, mesh_key(), [&] { return std::make_unique<Mesh>(plan_); });
    return *mesh_;
}

const PlanParts::Messages& PlanParts::messages() {
    if (messages_ != nullptr) return *messages_;
    const MessagesKey key{message_.value, chunks() > 1};
    const auto [known, fresh] = mesh().messages.try_emplace(key);
    if (fresh) {
        known->second.durations = timeline_durations(cost(), stages(), message_);
        known->second.longest = longest_message(known->second.durations);
        if (stages() > 1)
            for (const Instruction& i : message_stalls(make_context(plan_)))
                known->second.stall += cost().instruction(i, {}, 0);
    }
    messages_ = &known->second;
    return *messages_;
}

PlanParts::PassesKey PlanParts::passes_key() const {
    const Parallelism& p = plan_.parallelism;
    return {.tensor = p.tensor,
            .context = p.context,
            .context_method = static_cast<std::int64_t>(p.context_method),
            .sequence_parallel = p.sequence_parallel,
            .micro_batch_size = p.micro_batch_size,
            .staged = zero() >= 2,
            .pipelined = p.pipeline > 1,
            .expert = p.expert,
            .expert_tensor = p.expert_tensor};
}

ChunkPieces::Whole PlanParts::passes_of(const StageShape& shape) {
    if (pieces_ == nullptr)
        pieces_ = &part(known_pieces_, PiecesKey{passes_key(), pieces_kind(plan_.parallelism.recompute)},
                        [] { return std::make_unique<ChunkPieces>(); });
    return pieces_->of(plan_, shape, pattern_, [&]() -> const CostModel& { return cost(); });
}

BriefLayers PlanParts::brief_of(const StageShape& shape) const {
    return brief_layers(plan_.parallelism.recompute, {shape.layers, pattern_, shape.first_layer});
}

PlanParts::ChunkKey PlanParts::chunk_key(const StageShape& shape, const BriefLayers& brief) const {
    return {.passes = passes_key(),
            .first = shape.first,
            .last = shape.last,
            .first_layer = shape.first_layer,
            .layers = brief.layers,
            .recompute = static_cast<std::int64_t>(brief.recompute.kind),
            .recompute_layers = brief.recompute.layers,
            .repeated = brief.repeated,
            .runs = brief.runs};
}

const PlanParts::Timed& PlanParts::time_of(const StageShape& shape, const BriefLayers& brief) {
    return part(known_times_, chunk_key(shape, brief),
                [&] { return std::make_unique<Timed>(make_context(plan_), shape, cost(), times_made_++); });
}

const PlanParts::Timed& PlanParts::outline_of(const StageShape& shape) {
    OutlineKey key{passes_key(), shape.first, shape.last, shape.layers, shape.first_layer};
    key.passes.micro_batch_size = 0;
    return part(known_outlines_, key, [&] {
        StageContext context = make_context(plan_);
        context.parallelism.recompute = {};
        return std::make_unique<Timed>(context, shape, cost(), times_made_++);
    });
}

Bytes PlanParts::working_set_of(const StageShape& shape) {
    return part(known_working_sets_, chunk_key(shape, brief_of(shape)),
                [&] { return std::make_unique<Bytes>(working_set(make_context(plan_), shape)); });
}

const ChunkState& PlanParts::state_of(const StageShape& shape) {
    const Parallelism& p = plan_.parallelism;
    return part(
        known_states_,
        StateKey{p.tensor, p.replicas(), zero(), p.zero_shard_size, shape.first, shape.last, p.expert, p.expert_tensor},
        [&] { return std::make_unique<ChunkState>(make_context(plan_), shape); });
}

const ChunkReplicas& PlanParts::replicas_of(const StageShape& shape) {
    const ReplicasKey key{
        .mesh = mesh_key(), .chunks = chunks(), .zero = zero(), .first = shape.first, .last = shape.last};
    return part(known_replicas_, key, [&] {
        return std::make_unique<ChunkReplicas>(
            make_context(plan_), shape, cost(),
            [&](const StageShape& outline) -> const ChunkTime& { return outline_of(outline); });
    });
}

const Flight& PlanParts::flight_of_stage(std::int64_t stage) {
    const Schedule schedule = plan_.parallelism.schedule;
    return part(
        known_flights_, FlightKey{static_cast<std::int64_t>(schedule), stages(), chunks(), microbatches_, stage},
        [&] { return std::make_unique<Flight>(flight_of(schedule, stages(), stage, microbatches_, chunks())); });
}

const PlanParts::Bodies& PlanParts::bodies_of(const StageShape& shape) {
    const Parallelism& p = plan_.parallelism;
    const BriefLayers brief = brief_of(shape);
    const Timed& time = time_of(shape, brief);
    const BodiesKey key{.timed = time.number,
                        .data = p.data,
                        .zero = zero(),
                        .shard = p.zero_shard_size,
                        .pipeline = p.pipeline,
                        .chunks = p.virtual_pipeline,
                        .times = brief.times};
    return part(known_bodies_, key, [&] {
        auto bodies = std::make_unique<Bodies>();
        bodies->costs = chunk_bodies(make_context(plan_), shape, time, brief.times, cost(), 0);
        for (std::size_t b = 0; b < bodies->costs.size(); ++b) bodies->activity.add(bodies->costs[b], b);
        return bodies;
    });
}

const Timeline& PlanParts::timeline(std::uint32_t activity, std::int64_t microbatches) {
    const Parallelism& p = plan_.parallelism;
    const TimelineKey key{.schedule = static_cast<std::int64_t>(p.schedule),
                          .stages = stages(),
                          .chunks = chunks(),
                          .microbatches = microbatches,
                          .activity = activity,
                          .data = p.data > 1,
                          .context = p.context > 1};
    return part(known_timelines_, key, [&] {
        Skeleton skeleton = make_skeleton(plan_, Depth::outline);
        if (skeleton.listed != microbatches) list_passes(skeleton, microbatches);
        return std::make_unique<Timeline>(skeleton, activity);
    });
}

const Timeline& PlanParts::timeline(std::uint32_t activity) {
    const Schedule schedule = plan_.parallelism.schedule;
    const Timeline& brief = timeline(activity, enough_microbatches(schedule, stages(), chunks(), microbatches_));
    return brief.serves(microbatches_) ? brief : timeline(activity, microbatches_);
}

}  // namespace foretrain
