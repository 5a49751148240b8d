// What a framework keeps and holds in device memory besides the tensors that a model's arithmetic needs: masks and
// statistics for the backward pass, copies of the logits, workspaces of its libraries. The figures are a
// profile's (plan/presets/frameworks, "memory"); our own engine has none of them.
//
//   const MemoryCosts& m = framework_named("megatron-lm").memory;
//   figure_at(m.library_mib, 989)                   // a cuBLAS handle's workspace on an H100
//
// plan/program/memory_terms.h works them out for a plan.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/software_costs.h"

namespace foretrain {

struct MemoryCosts {
    // Kept from forward to backward.
    double hidden_dropout = 0, attention_dropout = 0;  // where a plan has none
    std::int64_t norm_statistics = 0;                  // bytes of one a row: RMSNorm has one, LayerNorm two
    bool second_output = false;                        // flash's output again, in the layout of the layer around it

    // The fused attention that is taken, by the device's dense bf16 peak in TFLOP/s from which on it is.
    std::vector<std::pair<int, AttentionKind>> attention;

    // In passing.
    Steps native_logit_bytes;  // of each logit, beside both copies, where the loss is CrossEntropy::native,
    std::int64_t compiled_logit_bytes = 0;  // and where that was compiled indeed
    std::int64_t logit_bytes = 0;           // the same where the loss is not fused
    bool head_gradient = false;             // the head's weight gradient is a tensor of its own before it is added

    // Held all through the step, in MiB (2^20), by the device's dense bf16 peak.
    Steps library_mib;             // a handle of the matrix library
    double deterministic_mib = 0;  // the same where kernels are deterministic: the larger counts
    std::int64_t library_handles = 0;
    std::int64_t expert_overlap_handles = 0;  // more, of the streams that exchange tokens beside computing
    Steps layer_mib;                          // the library that layers are made of, one for each kind of product
    std::int64_t overlap_workspaces = 0, grouped_workspaces = 0;  // of those, more for what they name
    Steps own_layer_mib;           // all workspaces of the framework's own layers, by tensor ranks
    double unsharded_mib = 0;      // many small tensors where replicas do not share out the optimizer
    bool gradient_shapes = false;  // a 16-bit weight gradient of each shape, where accumulation is fused
    bool attention_mask = false;   // the data loader makes one
    bool idle_rings = false;       // what gathers parameters and reduces gradients is free when most is allocated
    std::int64_t messages = 0;     // of a pipeline, besides those under way

    // Of what the allocator holds and does not use, over the largest tensor that comes and goes.
    double slack = 0;
    bool operator==(const MemoryCosts&) const = default;
};

}  // namespace foretrain
