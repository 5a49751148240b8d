#include "plan/program/skeleton.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/index.h"
#include "plan/layers_by_chunk.h"

namespace foretrain {

const Ring& ChunkSkeleton::ring(Home home) const {
    switch (home) {
        case Home::output: return output;
        case Home::input_gradient: return input_gradient;
        case Home::output_gradient: return output_gradient;
        default: return input;
    }
}

UnitRef ChunkSkeleton::ref(const StageUnit& u) const {
    const UnitKind kind = stage->unit_shapes[static_cast<std::size_t>(u.shape)].kind;
    return {kind, u.layer < 0 ? 0 : first_layer + u.layer};
}

std::int32_t ChunkSkeleton::ring_buffer(Home home, std::int64_t microbatch) const {
    std::int64_t index = first_ring + microbatch % ring(home).entries;
    if (home == Home::output) return static_cast<std::int32_t>(index);
    index += output.entries;
    if (home == Home::input_gradient) return static_cast<std::int32_t>(index);
    index += input_gradient.entries;
    if (home == Home::output_gradient) return static_cast<std::int32_t>(index);
    return static_cast<std::int32_t>(index + output_gradient.entries);
}

const Body& StageSkeleton::body(const Instruction& i) const {
    const ChunkSkeleton& chunk = chunks[static_cast<std::size_t>(i.chunk)];
    return chunk.stage->bodies[static_cast<std::size_t>(i.body - chunk.first_body)];
}

RingSizes ring_sizes(const StageShape& shape, Bytes message, std::int64_t in_flight, std::int64_t microbatches) {
    const auto entries = [&](bool present, std::int64_t wanted) {
        return present ? std::min(wanted, microbatches) : 0;
    };
    // An input is kept until its backward pass; one more, so that the next can arrive meanwhile.
    return {.entry = Bytes{round_up(message.value, buffer_alignment)},
            .output = entries(!shape.last, 2),
            .input_gradient = entries(!shape.first, 2),
            .output_gradient = entries(!shape.last, 2),
            .input = entries(!shape.first, in_flight + 1)};
}

namespace {

// One pass of a stage runs at a time: its chunks take turns in these regions.
bool shared_by_chunks(Region r) { return r == Region::transients || r == Region::gathered || r == Region::staging; }

// The chunk whose pool this chunk's slots are in: the first with slots of the same size.
std::size_t pool_of(const StageSkeleton& s, std::size_t chunk) {
    std::size_t pool = 0;
    while (s.chunks[pool].stage->slot_bytes != s.chunks[chunk].stage->slot_bytes) ++pool;
    return pool;
}

void count_in_flight(StageSkeleton& s) {
    const std::size_t n = s.chunks.size();
    std::vector<std::size_t> pool(n);
    for (std::size_t c = 0; c < n; ++c) pool[c] = pool_of(s, c);
    std::vector<std::int64_t> own(n, 0), pooled(n, 0);
    for (const Pass& pass : s.order) {
        const auto c = static_cast<std::size_t>(pass.chunk);
        own[c] += pass.backward ? -1 : 1;
        pooled[pool[c]] += pass.backward ? -1 : 1;
        s.chunks[c].in_flight = std::max(s.chunks[c].in_flight, own[c]);
        s.chunks[pool[c]].slots = std::max(s.chunks[pool[c]].slots, pooled[pool[c]]);
    }
    for (std::size_t c = 0; c < n; ++c) s.chunks[c].slots = s.chunks[pool[c]].slots;
}

void place_rings(const StageContext& c, ChunkSkeleton& s, std::int64_t microbatches, Bytes& end) {
    const RingSizes sizes = ring_sizes(s.stage->shape, c.message(), s.in_flight, microbatches);
    const auto place = [&](Ring& ring, std::int64_t entries) {
        ring = {end, sizes.entry, entries};
        end += sizes.entry * entries;
    };
    place(s.output, sizes.output);
    place(s.input_gradient, sizes.input_gradient);
    place(s.output_gradient, sizes.output_gradient);
    place(s.input, sizes.input);
}

void place_regions(StageSkeleton& s, ChunkSkeleton& chunk) {
    for (std::size_t r = 0; r < region_count; ++r) {
        const Bytes bytes = chunk.stage->region_bytes[r];
        if (shared_by_chunks(static_cast<Region>(r))) {
            s.region_bytes[r] = std::max(s.region_bytes[r], bytes);
        } else {
            chunk.base[r] = s.region_bytes[r];
            s.region_bytes[r] += bytes;
        }
    }
}

void place_slots(StageSkeleton& s) {
    Bytes& end = s.region_bytes[at(Region::activations)];
    for (std::size_t c = 0; c < s.chunks.size(); ++c) {
        ChunkSkeleton& chunk = s.chunks[c];
        const std::size_t pool = pool_of(s, c);
        chunk.base[at(Region::activations)] = pool == c ? end : s.chunks[pool].base[at(Region::activations)];
        if (pool == c) end += chunk.stage->slot_bytes * chunk.slots;
    }
}

void lay_out(const StageContext& context, StageSkeleton& s, std::int64_t microbatches) {
    count_in_flight(s);
    std::int64_t buffers = 0, bodies = 0, units = 0;
    for (ChunkSkeleton& chunk : s.chunks) {
        place_regions(s, chunk);
        chunk.first_buffer = static_cast<std::int32_t>(buffers);
        chunk.first_body = static_cast<std::int32_t>(bodies);
        chunk.first_unit = static_cast<std::int32_t>(units);
        buffers += static_cast<std::int64_t>(chunk.stage->fixed.size());
        bodies += static_cast<std::int64_t>(chunk.stage->bodies.size());
        units += static_cast<std::int64_t>(chunk.stage->units.size());
    }
    place_slots(s);
    for (ChunkSkeleton& chunk : s.chunks) {
        place_rings(context, chunk, microbatches, s.region_bytes[at(Region::communication)]);
        chunk.first_ring = static_cast<std::int32_t>(buffers);
        buffers +=
            chunk.output.entries + chunk.input_gradient.entries + chunk.output_gradient.entries + chunk.input.entries;
    }
}

}  // namespace

Skeleton make_skeleton(const Plan& plan, Depth depth) {
    const Parallelism& p = plan.parallelism;
    Skeleton skeleton;
    skeleton.plan = plan;
    skeleton.context = make_context(plan);
    skeleton.microbatches = plan.microbatches();
    skeleton.stages.resize(static_cast<std::size_t>(p.pipeline));
    const LayerPattern pattern = layer_pattern(plan.model, plan.training.sequence_length);
    std::map<StageShape, std::shared_ptr<const Stage>> built;
    const std::vector<std::int64_t> layers = layers_by_chunk(plan);
    std::int64_t first_layer = 0;
    for (std::size_t run = 0; run < layers.size(); ++run) {
        const StageShape shape{layers[run], run == 0, run + 1 == layers.size(), pattern.representative(first_layer)};
        std::shared_ptr<const Stage>& stage = built[shape];
        if (!stage) stage = build_stage(skeleton.context, shape, depth);
        ChunkSkeleton chunk;
        chunk.stage = stage;
        chunk.first_layer = first_layer;
        first_layer += layers[run];
        skeleton.stages[run % skeleton.stages.size()].chunks.push_back(std::move(chunk));
    }
    list_passes(skeleton, depth == Depth::full
                              ? skeleton.microbatches
                              : enough_microbatches(p.schedule, p.pipeline, p.virtual_pipeline, skeleton.microbatches));
    return skeleton;
}

void list_passes(Skeleton& skeleton, std::int64_t microbatches) {
    const Parallelism& p = skeleton.plan.parallelism;
    skeleton.listed = microbatches;
    for (std::size_t i = 0; i < skeleton.stages.size(); ++i) {
        StageSkeleton stage;
        for (const ChunkSkeleton& chunk : skeleton.stages[i].chunks) {
            stage.chunks.emplace_back();
            stage.chunks.back().stage = chunk.stage;
            stage.chunks.back().first_layer = chunk.first_layer;
        }
        stage.order =
            schedule_order(p.schedule, p.pipeline, static_cast<std::int64_t>(i), microbatches, p.virtual_pipeline);
        lay_out(skeleton.context, stage, microbatches);
        skeleton.stages[i] = std::move(stage);
    }
}

// The embedding is the first unit of the first chunk, the head the last unit of the last.
std::int32_t tied_gradient(const Skeleton& skeleton, const Stage& chunk) {
    const Unit& unit = (chunk.shape.first ? chunk.units.front() : chunk.units.back()).unit;
    return skeleton.context.zero >= 1 ? unit.gradient_shard : unit.gradient;
}

Bytes tied_gradient_bytes(const Skeleton& skeleton) {
    const Stage& stage = *skeleton.stages.front().chunks.front().stage;
    return stage.fixed[static_cast<std::size_t>(tied_gradient(skeleton, stage))].bytes();
}

std::vector<std::vector<std::int32_t>> slots_of_passes(const StageSkeleton& s, std::int64_t microbatches) {
    std::vector<std::set<std::int32_t>> free(s.chunks.size());  // by pool
    for (std::size_t c = 0; c < s.chunks.size(); ++c)
        if (pool_of(s, c) == c)
            for (std::int64_t n = 0; n < s.chunks[c].slots; ++n) free[c].insert(static_cast<std::int32_t>(n));
    std::vector<std::vector<std::int32_t>> out(s.chunks.size(),
                                               std::vector<std::int32_t>(static_cast<std::size_t>(microbatches), -1));
    for (const Pass& pass : s.order) {
        const auto c = static_cast<std::size_t>(pass.chunk);
        std::set<std::int32_t>& pool = free[pool_of(s, c)];
        std::int32_t& slot = out[c][static_cast<std::size_t>(pass.microbatch)];
        if (pass.backward) {
            pool.insert(slot);
            continue;
        }
        FORETRAIN_CHECK(!pool.empty(), "more passes in flight than slots");
        slot = *pool.begin();
        pool.erase(pool.begin());
    }
    return out;
}

}  // namespace foretrain
