// What a plan's framework keeps and holds besides what a model's arithmetic needs: its MemoryCosts and the plan's own
// choices (attention, loss, dropout, ...) worked out, as bytes that stand in the program or beside it.
//
//   const MemoryTerms t = memory_terms(plan, framework_named(plan.framework));
//   t.score_bytes                                  // 5: unfused attention with dropout
//   libraries_of(plan, f) + the stage's live peak  // what PyTorch's max_memory_allocated says
#pragma once

#include <cstdint>

#include "base/units.h"
#include "plan/framework.h"
#include "plan/plan.h"

namespace foretrain {

// In the program. Our own engine has none of them.
struct MemoryTerms {
    bool dropout_masks = false;        // a byte for each element of both residuals and of the embedding
    std::int64_t norm_statistics = 0;  // bytes of a row of each norm
    bool second_output = false;        // of attention
    std::int64_t score_bytes = 0;      // that attention keeps of each score; 0: it is fused
    bool fp32_logits = false;          // a copy that is kept
    std::int64_t logit_bytes = 0;      // of each, while the copy is made of it
    bool head_gradient = false;        // of its weight, before it is added to what is collected
    bool weight_gradients = false;     // the same of every other weight
    bool one_tied_gradient = false;    // embedding and tied head of one stage collect in the same place
};

MemoryTerms memory_terms(const Plan& plan, const Framework& framework);

// Inside the framework's allocator and beside the program, on every stage alike: workspaces and buffers.
Bytes libraries_of(const Plan& plan, const Framework& framework);
// That the allocator holds beyond what is allocated when that is most.
Bytes slack_of(const Plan& plan, const Framework& framework);

}  // namespace foretrain
