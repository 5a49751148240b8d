// FLOPs of a model as the field counts them for MFU: matrix multiplications of every layer and of
// the head, and the two products of attention; backward twice forward; no recompute, no embedding.
//
// "Full" counts attention over all s^2 pairs (PaLM, appendix B, arXiv:2204.02311; torchtitan),
// "causal" half of them (Megatron-LM's num_floating_point_operations). Of layers with a sliding window w
// below s, full counts w s pairs, and causal the w s - w^2 / 2 that the masks leave.
#pragma once

#include "models/model_spec.h"

namespace foretrain {

struct ModelFlops {
    double full = 0;
    double causal = 0;
};

ModelFlops model_flops(const ModelSpec& model, double tokens, double sequence_length);

}  // namespace foretrain
