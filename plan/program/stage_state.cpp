#include "plan/program/stage_state.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace foretrain {

namespace {

Bytes aligned(std::int64_t bytes) { return Bytes{round_up(bytes, buffer_alignment)}; }

// `layer`: of the model.
UnitShape make_shape(const StageContext& c, UnitKind kind, std::int64_t layer) {
    UnitShape shape;
    shape.kind = kind;
    shape.routed = c.model.has_experts(layer);
    shape.parameters = unit_parameters(c.model, {kind, layer}, c.vocabulary);
    const bool experts = kind == UnitKind::experts;
    const std::int64_t tensor = experts ? c.parallelism.expert_tensor : c.parallelism.tensor;
    std::int64_t end = 0;
    shape.replicated_from = -1;
    for (const ParameterSpec& p : shape.parameters) {
        if (p.replicated && !experts && shape.replicated_from < 0) shape.replicated_from = end;
        shape.offsets.push_back(end);
        end += p.elements(tensor, c.parallelism.expert);
        if (p.over_heads) shape.over_heads_to = end;
    }
    shape.offsets.push_back(end);
    if (shape.replicated_from < 0) shape.replicated_from = end;
    shape.elements = round_up(end, c.shards(kind));
    return shape;
}

// Appends buffers to their region and hands out indices.
class FixedBuffers {
public:
    FixedBuffers(const StageContext& c, Stage& stage) : context_(c), stage_(stage) {}

    std::int32_t add(const char* what, std::int32_t layer, Region region, DType type, std::int64_t elements) {
        BodyBuffer b;
        b.label = {what, layer};
        b.region = region;
        b.type = type;
        b.elements = elements;
        Bytes& end = stage_.region_bytes[static_cast<std::size_t>(region)];
        b.offset = end;
        end += aligned(elements * size_of(type));
        return push(b);
    }

    // This replica's part of a whole buffer.
    std::int32_t shard_of(std::int32_t whole, UnitKind kind, const char* what) {
        BodyBuffer b = stage_.fixed[static_cast<std::size_t>(whole)];
        b.label.what = what;
        b.elements /= context_.shards(kind);
        b.axis = context_.shard_axis(kind);
        b.stride = b.bytes();
        return push(b);
    }

private:
    std::int32_t push(const BodyBuffer& b) {
        stage_.fixed.push_back(b);
        return static_cast<std::int32_t>(stage_.fixed.size()) - 1;
    }
    const StageContext& context_;
    Stage& stage_;
};

// A tied head on the embedding's own stage has gradients of its own, added to the embedding's at
// the end of the step, and nothing else.
void add_unit_buffers(const StageContext& c, FixedBuffers& fixed, const Unit& owner, UnitKind kind, StageUnit& u) {
    Unit& unit = u.unit;
    const std::int64_t n = unit.elements, part = n / c.shards(kind);
    const bool owns_weight = unit.tied_to < 0;
    const std::int64_t state = c.zero >= 1 ? part : n;
    if (owns_weight && c.zero <= 2) unit.weight = fixed.add("weight", u.layer, Region::weights, c.types.weight, n);
    if (owns_weight && c.zero == 3)
        unit.weight_shard = fixed.add("weight_shard", u.layer, Region::weights, c.types.weight, part);
    if (owns_weight && (c.zero == 1 || c.zero == 2))
        unit.weight_shard = fixed.shard_of(unit.weight, kind, "weight_shard");
    // Others collect the gradients of both uses in one place: PassBuilder::gradient finds it.
    if (!owns_weight && c.memory.one_tied_gradient && c.zero <= 1 && owner.elements == n) return;
    if (c.zero <= 1) unit.gradient = fixed.add("gradient", u.layer, Region::gradients, c.types.gradient, n);
    if (c.zero == 1) unit.gradient_shard = fixed.shard_of(unit.gradient, kind, "gradient_shard");
    if (c.zero >= 2)
        unit.gradient_shard = fixed.add("gradient_shard", u.layer, Region::gradients, c.types.gradient, part);
    if (!owns_weight || c.parallelism.optimizer_on_host) return;
    unit.momentum = fixed.add("momentum", u.layer, Region::optimizer, c.types.optimizer, state);
    unit.variance = fixed.add("variance", u.layer, Region::optimizer, c.types.optimizer, state);
    if (c.types.master) unit.master = fixed.add("master", u.layer, Region::optimizer, c.types.optimizer, state);
}

bool is_multiplied_quantised(const ParameterSpec& p) {
    return p.init == Init::normal && p.name.find("router") == std::string::npos;
}

// What stands beside the matrices of a layer in the format that its products compute in, in bytes. Gathered
// parameters are quantised each time.
std::int64_t quantised_elements(const StageContext& c, const UnitShape& shape) {
    if (c.quantised_weight_bytes == 0 || c.zero == 3) return 0;
    if (shape.kind != UnitKind::layer && shape.kind != UnitKind::experts) return 0;
    std::int64_t weights = 0;
    for (std::size_t i = 0; i < shape.parameters.size(); ++i)
        if (is_multiplied_quantised(shape.parameters[i])) weights += shape.offsets[i + 1] - shape.offsets[i];
    return std::llround(c.quantised_weight_bytes * static_cast<double>(weights));
}

// Layers within the stage.
std::vector<UnitRef> stage_units(const StageContext& c, const StageShape& shape, const StageLayout& layout) {
    std::vector<UnitRef> refs;
    if (shape.first) refs.push_back({UnitKind::embedding, -1});
    if (shape.first && c.model.positions == Positions::learned) refs.push_back({UnitKind::positions, -1});
    if (shape.first && c.model.embedding_norm) refs.push_back({UnitKind::embedding_norm, -1});
    for (std::int64_t layer = 0; layer < layout.layers; ++layer) {
        refs.push_back({UnitKind::layer, layer});
        if (c.model.has_experts(layout.like[static_cast<std::size_t>(layer)]))
            refs.push_back({UnitKind::experts, layer});
    }
    if (shape.last) refs.push_back({UnitKind::final_norm, -1});
    if (shape.last) refs.push_back({UnitKind::head, -1});
    return refs;
}

// The state of the layers that a brief stage leaves out. A shard of a whole buffer is part of it.
void add_left_out(const Repeat& r, Stage& stage) {
    const std::int32_t first = r.ascending();
    for (const BodyBuffer& b : stage.fixed)
        if (b.label.layer >= first && b.label.layer < first + r.period && b.axis == Axis::none)
            stage.region_bytes[static_cast<std::size_t>(b.region)] += aligned(b.bytes().value) * (r.times - 1);
}

std::int64_t largest_unit(const Stage& stage) {
    std::int64_t most = 0;
    for (const UnitShape& s : stage.unit_shapes) most = std::max(most, s.elements);
    return most;
}

}  // namespace

std::int32_t UnitShape::find(std::string_view suffix) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].name.ends_with(suffix)) return static_cast<std::int32_t>(i);
    throw InternalError("no parameter " + std::string(suffix));
}

void build_stage_state(const StageContext& c, Stage& stage) {
    FixedBuffers fixed(c, stage);
    for (const UnitRef& ref : stage_units(c, stage.shape, stage.layout)) {
        StageUnit u;
        u.layer = static_cast<std::int32_t>(ref.layer);
        const std::int64_t layer = ref.layer < 0 ? 0 : stage.layout.like[static_cast<std::size_t>(ref.layer)];
        const bool routed = c.model.has_experts(layer);
        const auto same = std::find_if(stage.unit_shapes.begin(), stage.unit_shapes.end(), [&](const UnitShape& s) {
            return s.kind == ref.kind && (ref.kind != UnitKind::layer || s.routed == routed);
        });
        u.shape = static_cast<std::int32_t>(same - stage.unit_shapes.begin());
        if (same == stage.unit_shapes.end()) stage.unit_shapes.push_back(make_shape(c, ref.kind, layer));
        const bool shares_weight = ref.kind == UnitKind::head && c.model.tied_embeddings && stage.shape.first;
        u.unit.tied_to = shares_weight ? 0 : -1;
        const UnitShape& unit_shape = stage.unit_shapes[static_cast<std::size_t>(u.shape)];
        u.unit.elements = unit_shape.elements;
        const Unit& owner = stage.units.empty() ? u.unit : stage.units.front().unit;
        add_unit_buffers(c, fixed, owner, ref.kind, u);
        if (const std::int64_t n = quantised_elements(c, unit_shape); n > 0)
            fixed.add("quantised_weight", u.layer, Region::weights, DType::fp8, n);
        stage.units.push_back(u);
    }
    for (const Repeat& r : stage.layout.repeats) add_left_out(r, stage);
    if (stage.shape.last) stage.loss = fixed.add("loss", -1, Region::gradients, DType::fp64, 1);
    if (c.zero == 3)
        stage.region_bytes[static_cast<std::size_t>(Region::gathered)] = gathered_entry_bytes(c, stage) * ring_entries;
    if (c.zero >= 2)
        stage.region_bytes[static_cast<std::size_t>(Region::staging)] = staging_entry_bytes(c, stage) * ring_entries;
}

Bytes gathered_entry_bytes(const StageContext& c, const Stage& stage) {
    return aligned(largest_unit(stage) * size_of(c.types.weight));
}

Bytes staging_shard_offset(const StageContext& c, const Stage& stage) {
    return aligned(largest_unit(stage) * size_of(c.types.gradient));
}

Bytes staging_entry_bytes(const StageContext& c, const Stage& stage) {
    std::int64_t most = 0;
    for (const UnitShape& s : stage.unit_shapes) most = std::max(most, s.elements / c.shards(s.kind));
    return staging_shard_offset(c, stage) + aligned(most * size_of(c.types.gradient));
}

}  // namespace foretrain
