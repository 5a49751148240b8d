#include "plan/program/layer_keeper.h"

namespace foretrain {

LayerKeeper::Tensor LayerKeeper::keep(PassBuilder& b, std::int32_t layer, Member member, const char* what,
                                      std::int64_t elements, DType type) {
    std::int32_t& index = saved_[static_cast<std::size_t>(layer)].*member;
    if (index < 0) index = b.save(what, layer, elements, type);
    return b.saved(index);
}

LayerKeeper::Tensor LayerKeeper::input(PassBuilder& b, std::int32_t layer) {
    return keep(b, layer, &LayerSaved::x, "x", c_.boundary_elements(), c_.types.weight);
}

// make(name, member of LayerSaved, elements, type) answers with a tensor.
template <class Make>
LayerTensors LayerKeeper::tensors(const TransformerPasses& t, std::int32_t layer, Tensor x, Make&& make) {
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
    if (c_.memory.score_bytes > 0) s.scores = make("scores", &LayerSaved::scores, t.score_elements(layer), DType::fp8);
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
void LayerKeeper::latents(const TransformerPasses& t, LayerTensors& s, Make&& make) {
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
void LayerKeeper::experts(const TransformerPasses& t, LayerTensors& s, Make&& make) {
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

LayerTensors LayerKeeper::stored(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
    const bool selective = c_.parallelism.recompute.kind == Recompute::Kind::selective;
    return tensors(t, layer, x, [&](const char* what, Member member, std::int64_t elements, DType type) {
        const bool core = member == &LayerSaved::context || member == &LayerSaved::lse ||
                          member == &LayerSaved::scores || member == &LayerSaved::second_output;
        return core && selective ? b.transient(what, elements, type) : keep(b, layer, member, what, elements, type);
    });
}

LayerTensors LayerKeeper::passing(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
    const bool by_operators = c_.parallelism.recompute.kind == Recompute::Kind::operators;
    return tensors(t, layer, x, [&](const char* what, Member member, std::int64_t elements, DType type) {
        const bool kept = member == &LayerSaved::qkv || member == &LayerSaved::raw_qk ||
                          member == &LayerSaved::context || member == &LayerSaved::lse ||
                          member == &LayerSaved::scores || member == &LayerSaved::act;
        return kept && by_operators ? keep(b, layer, member, what, elements, type) : b.transient(what, elements, type);
    });
}

LayerTensors LayerKeeper::returned(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x) {
    return tensors(t, layer, x, [&](const char* what, Member, std::int64_t elements, DType type) {
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

Bytes LayerKeeper::bytes(const TransformerPasses& t, std::int32_t layer) {
    Bytes sum;
    tensors(t, layer, -1, [&](const char*, Member, std::int64_t elements, DType type) {
        sum += Bytes{elements * size_of(type)};
        return Tensor{-1};
    });
    return sum;
}

}  // namespace foretrain
