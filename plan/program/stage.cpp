#include "plan/program/stage.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/program/body_passes.h"
#include "plan/program/layer_keeper.h"
#include "plan/program/stage_state.h"
#include "plan/program/transformer.h"

namespace foretrain {

namespace {

using Tensor = PassBuilder::Tensor;

class StageBuilder {
public:
    StageBuilder(const StageContext& context, Stage& stage)
        : c_(context),
          stage_(stage),
          layers_(stage.layout.layers),
          segments_(stage.layout.segments),
          keeper_(context, stage.layout.layers) {}

    // Forward and backward pass as plain arithmetic.
    void build_passes() {
        stage_.bodies.push_back(forward());
        stage_.bodies.push_back(backward());
        for (const Repeat& r : stage_.layout.repeats) stage_.slot_bytes += saved_bytes(stage_, r) * (r.times - 1);
    }

private:
    bool first() const { return stage_.shape.first; }
    bool last() const { return stage_.shape.last; }
    bool is(Recompute::Kind kind) const { return c_.parallelism.recompute.kind == kind; }
    bool selective() const { return c_.parallelism.recompute.kind == Recompute::Kind::selective; }

    // The tensor that a layer reads: kept where a segment begins, else only while it is at hand.
    Tensor layer_input(PassBuilder& b, std::int32_t layer, bool kept, Tensor otherwise) {
        if (layer == 0 && !first()) return b.ring(Home::input, "input");
        if (!kept) return otherwise;
        return keeper_.input(b, layer);
    }

    // That computing waits for, of sending what a layer keeps one way, as long as its own products take.
    Time sending(const TransformerPasses& t, std::int32_t layer) {
        const Bytes bytes = keeper_.bytes(t, layer);
        const Time sent{std::llround(static_cast<double>(bytes.value) * c_.added.host_byte_ps)};
        return std::max(sent - c_.added.products, Time{});
    }
    Time sending(const TransformerPasses& t, const Segment& segment) {
        const bool away = segment.recomputed && is(Recompute::Kind::offload);
        return away ? sending(t, segment.first) * segment.count : Time{};
    }

    HeadTensors head_tensors(PassBuilder& b, const TransformerPasses& t) {
        if (head_[0] < 0) {
            const std::int32_t at = -1;
            const DType kept = c_.memory.fp32_logits ? DType::fp32 : c_.types.weight;
            head_[0] = b.save("head_x", at, t.stream_elements(), c_.types.weight);
            head_[1] = b.save("final_norm", at, t.stream_elements(), c_.types.weight);
            head_[2] = b.save("logits", at, t.logit_elements(), kept);
            head_[3] = b.save("head_lse", at, c_.tokens(), c_.statistics);
        }
        return {.x = b.saved(head_[0]),
                .norm = b.saved(head_[1]),
                .logits = b.saved(head_[2]),
                .lse = b.saved(head_[3]),
                .targets = b.saved(targets_)};
    }

    void hold_mask(PassBuilder& b) {
        if (mask_ >= 0) b.hold(b.saved(mask_));
    }

    Tensor embedded(PassBuilder& b) { return embedded_ < 0 ? -1 : b.saved(embedded_); }

    // tokens are kept by the first stage, targets by the last; the other half is read and dropped.
    void load_batch(PassBuilder& b) {
        if (!first() && !last()) return;
        b.section("batch");
        if (first()) tokens_ = b.save("tokens", -1, c_.tokens(), DType::int32);
        if (last()) targets_ = b.save("targets", -1, c_.tokens(), DType::int32);
        Instruction load;
        load.kind = InstructionKind::load_batch;
        load.type = DType::int32;
        load.count = 2 * c_.tokens();
        load.add_operand(first() ? b.saved(tokens_) : b.transient("tokens", c_.tokens(), DType::int32));
        load.add_operand(last() ? b.saved(targets_) : b.transient("targets", c_.tokens(), DType::int32));
        b.emit(load);
    }

    Body forward() {
        PassBuilder b(c_, stage_, "forward", InstructionKind::forward_chunk);
        TransformerPasses t(c_, stage_, b);
        load_batch(b);
        Tensor x = layer_input(b, 0, true, -1);
        if (first()) {
            const std::int32_t begun = b.begin_embedding(c_.added.embed_forward);
            b.section("embedding");
            if (c_.model.embedding_norm) embedded_ = b.save("embedded", -1, t.stream_elements(), c_.types.weight);
            t.embedding_forward(b.saved(tokens_), embedded(b), x);
            if (c_.memory.dropout_masks) mask_ = b.save("mask", -1, t.stream_elements(), DType::fp8);
            hold_mask(b);
            b.end_layers(begun, {c_.added.embed_forward, {}});
        }
        for (const Segment& segment : segments_) {
            b.cut(segment.first);
            const std::int32_t begun = b.begin_layers(segment.first);
            for (std::int32_t layer = segment.first; layer < segment.end(); ++layer) {
                const LayerTensors s =
                    segment.recomputed ? keeper_.passing(b, t, layer, x) : keeper_.stored(b, t, layer, x);
                const AttentionBranch attention = t.attention_forward(layer, s);
                const Tensor out = forward_output(b, t, segment, layer);
                t.mlp_forward(layer, s, attention, out);
                t.hold_kept(s);
                x = out;
            }
            PassBuilder::Added added = added_forward(t, segment);
            added.stall += sending(t, segment);
            b.end_layers(begun, added);
        }
        b.cut(-1);
        if (last()) {
            const std::int32_t begun = b.begin_head(c_.added.head_forward);
            t.head_forward(head_tensors(b, t), b.fixed(stage_.loss));
            b.end_layers(begun, {c_.added.head_forward, {}});
        }
        return b.take();
    }

    Tensor forward_output(PassBuilder& b, const TransformerPasses& t, const Segment& segment, std::int32_t layer) {
        if (layer + 1 == layers_) return last() ? head_tensors(b, t).x : b.ring(Home::output, "output");
        if (layer + 1 == segment.end()) return layer_input(b, layer + 1, true, -1);
        return b.transient("x", t.stream_elements(), c_.types.weight);
    }

    Body backward() {
        PassBuilder b(c_, stage_, "backward", InstructionKind::backward_chunk);
        TransformerPasses t(c_, stage_, b);
        Tensor dx = -1;
        if (last()) {
            const std::int32_t begun = b.begin_head(c_.added.head_backward);
            b.section("head");
            dx = b.transient("dx", t.stream_elements(), c_.types.weight);
            t.head_backward(head_tensors(b, t), dx);
            b.end_layers(begun, {c_.added.head_backward, {}});
        } else {
            dx = b.ring(Home::output_gradient, "output_gradient");
        }
        for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
            b.cut(segment->first);
            const std::int32_t begun = b.begin_layers(segment->first);
            const std::vector<LayerTensors> tensors = restore(b, t, *segment);
            for (std::int32_t layer = segment->end() - 1; layer >= segment->first; --layer) {
                b.section("attention", layer);
                const bool out = layer == 0 && !first();
                const Tensor next = out ? b.ring(Home::input_gradient, "input_gradient")
                                        : b.transient("dx", t.stream_elements(), c_.types.weight);
                const LayerTensors& s = tensors[static_cast<std::size_t>(layer - segment->first)];
                t.layer_backward(layer, s, dx, next);
                t.hold_kept(s);
                dx = next;
            }
            PassBuilder::Added added = added_backward(t, *segment);
            added.stall += sending(t, *segment);
            b.end_layers(begun, added);
        }
        b.cut(-1);
        if (first()) {
            const std::int32_t begun = b.begin_embedding(c_.added.embed_backward);
            b.section("embedding");
            t.embedding_backward(b.saved(tokens_), embedded(b), dx);
            hold_mask(b);
            b.end_layers(begun, {c_.added.embed_backward, {}});
        }
        return b.take();
    }

    static std::int64_t expert_layers(const TransformerPasses& t, const Segment& segment) {
        std::int64_t n = 0;
        for (std::int32_t layer = segment.first; layer < segment.end(); ++layer) n += t.has_experts(layer) ? 1 : 0;
        return n;
    }

    PassBuilder::Added added_forward(const TransformerPasses& t, const Segment& segment) const {
        const AddedCosts& a = c_.added;
        const std::int64_t routed = expert_layers(t, segment), dense = segment.count - routed;
        return {a.launch_forward * segment.count + a.expert_launch_forward * routed,
                a.stall_forward * dense + a.expert_stall_forward * routed};
    }

    PassBuilder::Added added_backward(const TransformerPasses& t, const Segment& segment) const {
        const AddedCosts& a = c_.added;
        const std::int64_t routed = expert_layers(t, segment), dense = segment.count - routed;
        PassBuilder::Added out{a.launch_backward * segment.count + a.expert_launch_backward * routed,
                               a.stall_backward * dense + a.expert_stall_backward * routed};
        if (!segment.recomputed || is(Recompute::Kind::offload)) return out;
        const PassBuilder::Added again = added_forward(t, segment);
        return {out.host + again.host + a.launch_again * segment.count, out.stall + again.stall};
    }

    // What the backward pass of a segment reads: kept, or computed again from the segment's input.
    std::vector<LayerTensors> restore(PassBuilder& b, TransformerPasses& t, const Segment& segment) {
        std::vector<LayerTensors> out;
        Tensor x = layer_input(b, segment.first, true, -1);
        b.recomputing(true);
        for (std::int32_t layer = segment.first; layer < segment.end(); ++layer) {
            b.section("attention", layer);
            if (!segment.recomputed) {
                out.push_back(keeper_.stored(b, t, layer, x));
                if (selective()) t.core_attention(layer, out.back());
                continue;
            }
            if (is(Recompute::Kind::offload)) {
                out.push_back(keeper_.returned(b, t, layer, x));
                continue;
            }
            out.push_back(keeper_.passing(b, t, layer, x));
            if (is(Recompute::Kind::operators)) {
                t.layer_forward_between(layer, out.back());
                t.hold_kept(out.back());
                continue;
            }
            if (layer + 1 == segment.end() && c_.recompute_stops_early) {
                t.layer_forward_kept(layer, out.back());
            } else {
                const AttentionBranch attention = t.attention_forward(layer, out.back());
                x = b.transient("x", t.stream_elements(), c_.types.weight);
                t.mlp_forward(layer, out.back(), attention, x);
            }
            t.hold_kept(out.back());
        }
        b.recomputing(false);
        return out;
    }

    const StageContext& c_;
    Stage& stage_;
    std::int32_t layers_;
    const std::vector<Segment>& segments_;
    LayerKeeper keeper_;
    std::array<std::int32_t, 4> head_{-1, -1, -1, -1};
    std::int32_t tokens_ = -1, targets_ = -1, embedded_ = -1, mask_ = -1;
};

double quantised_weight_bytes(const Plan& plan, const Framework& framework) {
    if (!plan.training.products) return 0;
    const auto kept = framework.quantised_weights.find(*plan.training.products);
    return kept == framework.quantised_weights.end() ? 0
                                                     : figure_at(kept->second, plan.cluster.device.dense_bf16_tera());
}

}  // namespace

StageContext make_context(const Plan& plan) {
    const Framework& framework = framework_named(plan.framework);
    StageContext c;
    c.model = plan.model;
    c.training = plan.training;
    c.parallelism = plan.parallelism;
    c.types = state_types(plan.training, framework.half_gradient);
    c.quantised_weight_bytes =
        plan.training.software.quantised_parameters ? 0 : quantised_weight_bytes(plan, framework);
    c.statistics = plan.training.precision == DType::fp64 ? DType::fp64 : DType::fp32;
    c.recompute_stops_early = framework.recompute_stops_early;
    c.reduces_whole =
        plan.parallelism.effective_zero() == 0 || (plan.parallelism.effective_zero() == 1 && framework.reduces_whole);
    c.added = added_costs(plan, framework);
    c.memory = memory_terms(plan, framework);
    c.vocabulary = padded_vocabulary(plan.model, framework, plan.parallelism.tensor);
    c.zero = plan.parallelism.effective_zero();
    const double stated = plan.training.expert_imbalance;
    c.expert_imbalance = std::min(stated > 0 ? stated : framework.costs.experts.imbalance,
                                  plan.parallelism.most_imbalance(plan.model.moe));
    return c;
}

Bytes saved_bytes(const Stage& stage, const Repeat& r) {
    const std::int32_t first = r.ascending();
    Bytes kept;
    for (const BodyBuffer& b : stage.saved)
        if (b.label.layer >= first && b.label.layer < first + r.period)
            kept += Bytes{round_up(b.bytes().value, buffer_alignment)};
    return kept;
}

Stage build_passes(const StageContext& context, const StageShape& shape, Depth depth) {
    Stage stage;
    stage.shape = shape;
    const LayerPattern pattern = layer_pattern(context.model, context.training.sequence_length);
    stage.layout = stage_layout(context.parallelism.recompute, {shape.layers, pattern, shape.first_layer}, depth);
    build_stage_state(context, stage);
    StageBuilder(context, stage).build_passes();
    return stage;
}

// Where the code of the layer, or layers, that stand for many begins and ends.
std::vector<CodeRepeat> code_repeats(const StageLayout& layout, const Body& body) {
    std::vector<CodeRepeat> out;
    const auto end_of = [&](std::size_t cut) {
        return cut + 1 < body.cuts.size() ? body.cuts[cut + 1].at : static_cast<std::int32_t>(body.code.size());
    };
    for (std::size_t c = 0; c < body.cuts.size(); ++c)
        for (std::size_t n = 0; n < layout.repeats.size(); ++n) {
            const Repeat& r = layout.repeats[n];
            const bool down = body.kind == InstructionKind::backward_chunk;
            const std::int32_t first = down ? r.descending() : r.ascending();
            if (body.cuts[c].layer < first || body.cuts[c].layer >= first + r.period) continue;
            if (!out.empty() && out.back().end == body.cuts[c].at)
                out.back().end = end_of(c);
            else
                out.push_back({body.cuts[c].at, end_of(c), r.times, static_cast<std::int32_t>(n)});
        }
    return out;
}

std::shared_ptr<const Stage> build_stage(const StageContext& context, const StageShape& shape, Depth depth) {
    if (depth == Depth::outline) {
        auto stage = std::make_shared<Stage>();
        stage->shape = shape;
        stage->layout.layers = 1;
        stage->layout.like.assign(1, shape.first_layer);
        build_stage_state(context, *stage);
        stage->bodies.resize(bodies_of_chunk);
        return stage;
    }
    auto stage = std::make_shared<Stage>(build_passes(context, shape, depth));
    Body last = stage->bodies[Stage::backward];
    last.name = "backward_last";
    stage->bodies.push_back(std::move(last));
    stage->bodies.push_back(build_optimizer(context, *stage));
    for (std::size_t b = 0; b < stage->bodies.size(); ++b) {
        Body& body = stage->bodies[b];
        if (body.kind != InstructionKind::optimizer_step) add_message_stalls(context, shape, body);
        add_parameter_gather(context, *stage, body);
        if (body.kind == InstructionKind::backward_chunk)
            add_gradient_reduce(context, *stage, stage->kernels, body, b == Stage::backward_last);
        place_tensors(stage->layout, body);
        Bytes& most = stage->region_bytes[static_cast<std::size_t>(Region::transients)];
        most = std::max(most, body.transient_bytes);
    }
    return stage;
}

void place_tensors(const StageLayout& layout, Body& body) {
    place_frees(body, body.kind == InstructionKind::forward_chunk, body.kind == InstructionKind::backward_chunk);
    body.repeats = code_repeats(layout, body);
    place_transients(body);
}

}  // namespace foretrain
