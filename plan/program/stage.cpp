#include "plan/program/stage.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/program/body_passes.h"
#include "plan/program/stage_state.h"
#include "plan/program/transformer.h"

namespace foretrain {

namespace {

using Tensor = PassBuilder::Tensor;

// Indices in Stage::saved of what a layer keeps; -1: not kept.
struct LayerSaved {
    std::int32_t x = -1, norm1 = -1, qkv = -1, context = -1, lse = -1, y = -1, norm2 = -1, fc1 = -1, act = -1;
    std::int32_t raw_qk = -1, attended = -1, mlp_out = -1, scores = -1;
    std::int32_t q_latent = -1, q_norm = -1, kv_latent = -1, kv_norm = -1;
    std::int32_t logits = -1, scored = -1, chosen = -1, dispatched = -1, weighted = -1, shared_fc1 = -1,
                 shared_act = -1;
    std::int32_t masks = -1, statistics = -1, second_output = -1;
};

class StageBuilder {
public:
    StageBuilder(const StageContext& context, Stage& stage)
        : c_(context),
          stage_(stage),
          layers_(stage.layout.layers),
          segments_(stage.layout.segments),
          saved_(static_cast<std::size_t>(layers_)) {}

    // Forward and backward pass as plain arithmetic.
    void build_passes() {
        stage_.bodies.push_back(forward());
        stage_.bodies.push_back(backward());
        for (const Repeat& r : stage_.layout.repeats) stage_.slot_bytes += saved_bytes(stage_, r) * (r.times - 1);
    }

    // The gradients of a tied head on this stage join the embedding's; then each unit steps, its
    // gradients are cleared for the next step, and its weights are gathered again (ZeRO-1, 2).
    Body optimizer() {
        PassBuilder b(c_, stage_, "optimizer", InstructionKind::optimizer_step);
        b.section("optimizer");
        b.end_layers(-1, {.host = {}, .stall = c_.added.stall_step + c_.added.stall_parameters});
        for (const StageUnit& u : stage_.units) {
            if (u.unit.tied_to < 0 || !u.unit.has_gradient()) continue;
            const Unit& owner = stage_.units[static_cast<std::size_t>(u.unit.tied_to)].unit;
            const std::int64_t n = c_.zero >= 1 ? u.unit.elements / c_.shards() : u.unit.elements;
            b.kernel(AccumulateArgs{n, c_.types.gradient, c_.types.gradient},
                     {b.fixed(reduced(u.unit)), b.fixed(reduced(owner))});
            clear(b, u.unit);
        }
        for (const StageUnit& u : stage_.units) {
            b.cut(u.layer);
            const UnitKind kind = stage_.unit_shapes[static_cast<std::size_t>(u.shape)].kind;
            if (u.unit.tied_to < 0) step(b, kind, u.unit);
        }
        return b.take();
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
        LayerSaved& s = saved_[static_cast<std::size_t>(layer)];
        if (s.x < 0) s.x = b.save("x", layer, c_.boundary_elements(), c_.types.weight);
        return b.saved(s.x);
    }

    // make(name, member of LayerSaved, elements, type) answers with a tensor.
    template <class Make>
    LayerTensors layer_tensors(const TransformerPasses& t, std::int32_t layer, Tensor x, Make&& make) {
        const DType w = c_.types.weight;
        LayerTensors s;
        s.x = x;
        s.norm1 = make("norm1", &LayerSaved::norm1, t.stream_elements(), w);
        if (c_.model.is_latent()) latents(t, s, make);
        s.qkv = make("qkv", &LayerSaved::qkv, t.qkv_elements(), w);
        if (c_.model.query_key_norm != QueryKeyNorm::none)
            s.raw_qk = make("raw_qk", &LayerSaved::raw_qk, t.raw_qk_elements(), w);
        s.context = make("context", &LayerSaved::context, t.context_elements(), w);
        s.lse = make("lse", &LayerSaved::lse, t.lse_elements(), c_.statistics);
        if (c_.memory.score_bytes > 0)
            s.scores = make("scores", &LayerSaved::scores, t.score_elements(layer), DType::fp8);
        if (const std::int64_t n = t.mask_elements()) s.masks = make("masks", &LayerSaved::masks, n, DType::fp8);
        if (const std::int64_t n = t.statistics_elements())
            s.statistics = make("statistics", &LayerSaved::statistics, n, DType::fp8);
        if (c_.memory.second_output)
            s.second_output = make("second_output", &LayerSaved::second_output, t.context_elements(), w);
        if (!c_.model.is_parallel()) s.y = make("y", &LayerSaved::y, t.stream_elements(), w);
        s.norm2 = s.norm1;
        if (c_.model.block != Block::parallel_shared_norm)
            s.norm2 = make("norm2", &LayerSaved::norm2, t.stream_elements(), w);
        if (t.has_experts(layer)) {
            experts(t, s, make);
            return s;
        }
        s.fc1 = make("fc1", &LayerSaved::fc1, t.fc1_elements(), w);
        s.act = make("act", &LayerSaved::act, t.act_elements(), w);
        if (!c_.model.post_norms) return s;
        s.attended = make("attended", &LayerSaved::attended, t.stream_elements(), w);
        s.mlp_out = make("mlp_out", &LayerSaved::mlp_out, t.stream_elements(), w);
        return s;
    }

    template <class Make>
    void latents(const TransformerPasses& t, LayerTensors& s, Make&& make) {
        const LatentAttention& a = c_.model.mla;
        const DType w = c_.types.weight;
        if (a.q_lora > 0) {
            s.q_latent = make("q_latent", &LayerSaved::q_latent, t.latent_elements(a.q_lora), w);
            s.q_norm = make("q_norm", &LayerSaved::q_norm, t.latent_elements(a.q_lora), w);
        }
        s.kv_latent = make("kv_latent", &LayerSaved::kv_latent, t.latent_elements(a.kv_lora + a.qk_rope), w);
        s.kv_norm = make("kv_norm", &LayerSaved::kv_norm, t.latent_elements(a.kv_lora), w);
    }

    template <class Make>
    void experts(const TransformerPasses& t, LayerTensors& s, Make&& make) {
        const DType w = c_.types.weight;
        const std::int64_t gates = c_.model.gated_mlp ? 2 : 1;
        s.logits = make("router_logits", &LayerSaved::logits, t.routed_elements(), DType::fp32);
        s.scored = make("router_scores", &LayerSaved::scored, t.routed_elements(), DType::fp32);
        s.chosen = make("router_chosen", &LayerSaved::chosen, t.routed_elements(), DType::fp32);
        s.dispatched = make("dispatched", &LayerSaved::dispatched, t.dispatched_elements(), w);
        s.fc1 = make("experts_fc1", &LayerSaved::fc1, gates * t.expert_act_elements(), w);
        s.act = make("experts_act", &LayerSaved::act, t.expert_act_elements(), w);
        if (!c_.model.gated_mlp) s.weighted = make("weighted", &LayerSaved::weighted, t.expert_act_elements(), w);
        if (c_.model.moe.shared_ffn == 0) return;
        s.shared_fc1 = make("shared_fc1", &LayerSaved::shared_fc1, gates * t.shared_act_elements(), w);
        s.shared_act = make("shared_act", &LayerSaved::shared_act, t.shared_act_elements(), w);
    }

    LayerTensors transient_layer(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
        return layer_tensors(t, layer, x,
                             [&](const char* what, std::int32_t LayerSaved::*, std::int64_t elements, DType type) {
                                 return b.transient(what, elements, type);
                             });
    }

    // Of a segment that is not stored whole: on its way through, but for what a recompute by operators keeps.
    LayerTensors passing_layer(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
        if (!is(Recompute::Kind::operators)) return transient_layer(b, t, layer, x);
        LayerSaved& saved = saved_[static_cast<std::size_t>(layer)];
        return layer_tensors(
            t, layer, x, [&](const char* what, std::int32_t LayerSaved::*member, std::int64_t elements, DType type) {
                const bool kept = member == &LayerSaved::qkv || member == &LayerSaved::raw_qk ||
                                  member == &LayerSaved::context || member == &LayerSaved::lse ||
                                  member == &LayerSaved::scores || member == &LayerSaved::act;
                if (!kept) return b.transient(what, elements, type);
                if (saved.*member < 0) saved.*member = b.save(what, layer, elements, type);
                return b.saved(saved.*member);
            });
    }

    // What a layer kept in host memory comes back: written by a copy, beside which other layers are computed.
    LayerTensors returned_layer(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
        return layer_tensors(t, layer, x,
                             [&](const char* what, std::int32_t LayerSaved::*, std::int64_t elements, DType type) {
                                 const Tensor tensor = b.transient(what, elements, type);
                                 Instruction i;
                                 i.kind = InstructionKind::fill;
                                 i.type = type;
                                 i.count = elements;
                                 i.add_operand(tensor);
                                 b.emit(i);
                                 return tensor;
                             });
    }

    // That computing waits for, of sending what a layer keeps one way, as long as its own products take.
    Time sending(const TransformerPasses& t, std::int32_t layer) {
        Bytes bytes;
        layer_tensors(t, layer, -1, [&](const char*, std::int32_t LayerSaved::*, std::int64_t elements, DType type) {
            bytes += Bytes{elements * size_of(type)};
            return Tensor{-1};
        });
        const Time sent{std::llround(static_cast<double>(bytes.value) * c_.added.host_byte_ps)};
        return std::max(sent - c_.added.products, Time{});
    }
    Time sending(const TransformerPasses& t, const Segment& segment) {
        const bool away = segment.recomputed && is(Recompute::Kind::offload);
        return away ? sending(t, segment.first) * segment.count : Time{};
    }

    // Selective recompute keeps everything but the results of the core attention.
    LayerTensors stored_layer(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
        LayerSaved& saved = saved_[static_cast<std::size_t>(layer)];
        return layer_tensors(
            t, layer, x, [&](const char* what, std::int32_t LayerSaved::*member, std::int64_t elements, DType type) {
                const bool core = member == &LayerSaved::context || member == &LayerSaved::lse ||
                                  member == &LayerSaved::scores || member == &LayerSaved::second_output;
                if (core && selective()) return b.transient(what, elements, type);
                if (saved.*member < 0) saved.*member = b.save(what, layer, elements, type);
                return b.saved(saved.*member);
            });
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
                    segment.recomputed ? passing_layer(b, t, layer, x) : stored_layer(b, t, layer, x);
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
                out.push_back(stored_layer(b, t, layer, x));
                if (selective()) t.core_attention(layer, out.back());
                continue;
            }
            if (is(Recompute::Kind::offload)) {
                out.push_back(returned_layer(b, t, layer, x));
                continue;
            }
            out.push_back(passing_layer(b, t, layer, x));
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

    std::int32_t reduced(const Unit& unit) const { return c_.zero >= 1 ? unit.gradient_shard : unit.gradient; }

    void clear(PassBuilder& b, const Unit& unit) {
        const std::int32_t gradient = c_.zero >= 2 ? unit.gradient_shard : unit.gradient;
        Instruction i;
        i.kind = InstructionKind::fill;
        i.type = c_.types.gradient;
        i.count = stage_.fixed[static_cast<std::size_t>(gradient)].elements;
        i.add_operand(b.fixed(gradient));
        b.emit(i);
    }

    void step(PassBuilder& b, UnitKind kind, const Unit& unit) {
        const std::int64_t n = c_.zero >= 1 ? unit.elements / c_.shards(kind) : unit.elements;
        if (c_.parallelism.optimizer_on_host) return step_on_host(b, kind, unit, n);
        const Training& o = c_.training;
        const AdamwArgs args{.elements = n,
                             .learning_rate = o.learning_rate,
                             .beta1 = o.beta1,
                             .beta2 = o.beta2,
                             .epsilon = o.epsilon,
                             .weight_decay = o.weight_decay,
                             .master = c_.types.master,
                             .type = c_.types.weight,
                             .gradient = c_.types.gradient,
                             .optimizer = c_.types.optimizer};
        std::vector<Tensor> operands{b.fixed(c_.zero >= 1 ? unit.weight_shard : unit.weight), b.fixed(reduced(unit)),
                                     b.fixed(unit.momentum), b.fixed(unit.variance)};
        if (c_.types.master) operands.push_back(b.fixed(unit.master));
        const std::int32_t stepped = b.kernel(args, operands);
        clear(b, unit);
        gather_updated(b, kind, unit, n, stepped);
    }

    // Nothing is computed on the device while the host updates what it holds.
    void step_on_host(PassBuilder& b, UnitKind kind, const Unit& unit, std::int64_t n) {
        Instruction i;
        i.kind = InstructionKind::stall;
        i.count = std::llround(static_cast<double>(n) * c_.added.update_ps);
        const std::int32_t stepped = b.emit(i);
        clear(b, unit);
        gather_updated(b, kind, unit, n, stepped);
    }

    void gather_updated(PassBuilder& b, UnitKind kind, const Unit& unit, std::int64_t n, std::int32_t stepped) {
        if ((c_.zero != 1 && c_.zero != 2) || c_.shards(kind) == 1) return;
        Instruction i = collective(InstructionKind::all_gather, Stream::gather, c_.shard_axis(kind), c_.types.weight, n,
                                   {b.fixed(unit.weight_shard), b.fixed(unit.weight)});
        i.share = c_.added.parameter_share;
        i.add_wait({stepped, Stream::compute});
        b.emit(i);
    }

    const StageContext& c_;
    Stage& stage_;
    std::int32_t layers_;
    const std::vector<Segment>& segments_;
    std::vector<LayerSaved> saved_;
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

Body build_optimizer(const StageContext& context, Stage& stage) { return StageBuilder(context, stage).optimizer(); }

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
