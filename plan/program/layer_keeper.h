// The tensors that a layer works with, and which of them outlive its forward pass: all that its backward pass reads, or
// as little as recompute or offload leave. A tensor that is kept has a place in the stage's slot, the same in every
// body; any other is a transient of the body at hand.
//
//   LayerKeeper keeper(context, stage.layout.layers);
//   LayerTensors s = keeper.stored(builder, passes, layer, x);    // of the forward pass, or again of the backward pass
#pragma once

#include <vector>

#include "plan/program/transformer.h"

namespace foretrain {

// Indices in Stage::saved of what a layer keeps; -1: not kept.
struct LayerSaved {
    std::int32_t x = -1, norm1 = -1, qkv = -1, context = -1, lse = -1, y = -1, norm2 = -1, fc1 = -1, act = -1;
    std::int32_t raw_qk = -1, attended = -1, mlp_out = -1, scores = -1;
    std::int32_t q_latent = -1, q_norm = -1, kv_latent = -1, kv_norm = -1;
    std::int32_t logits = -1, scored = -1, chosen = -1, dispatched = -1, weighted = -1, shared_fc1 = -1,
                 shared_act = -1;
    std::int32_t masks = -1, statistics = -1, second_output = -1;
};

class LayerKeeper {
public:
    using Tensor = PassBuilder::Tensor;
    LayerKeeper(const StageContext& context, std::int32_t layers)
        : c_(context), saved_(static_cast<std::size_t>(layers)) {}

    Tensor input(PassBuilder& b, std::int32_t layer);  // that the layer reads, kept

    // Selective recompute keeps everything but the results of the core attention.
    LayerTensors stored(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x);
    // Of a segment that is not stored whole: on its way through, but for what a recompute by operators keeps.
    LayerTensors passing(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x);
    // What a layer kept in host memory comes back: written by a copy, beside which other layers are computed.
    LayerTensors returned(PassBuilder& b, const TransformerPasses& t, std::int32_t layer, Tensor x);
    Bytes bytes(const TransformerPasses& t, std::int32_t layer);  // of all of them

private:
    using Member = std::int32_t LayerSaved::*;
    template <class Make>
    LayerTensors tensors(const TransformerPasses& t, std::int32_t layer, Tensor x, Make&& make);
    template <class Make>
    void latents(const TransformerPasses& t, LayerTensors& s, Make&& make);
    template <class Make>
    void experts(const TransformerPasses& t, LayerTensors& s, Make&& make);
    Tensor keep(PassBuilder& b, std::int32_t layer, Member member, const char* what, std::int64_t elements, DType type);

    const StageContext& c_;
    std::vector<LayerSaved> saved_;  // by layer
};

}  // namespace foretrain
