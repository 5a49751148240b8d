// Which attention runs: what the plan asks for, else what the framework's profile has on the device.
//
//   attention_of(plan, framework_named("megatron-lm@2021"))        // AttentionKind::unfused
//   unfused_attention(plan, framework).product_efficiency          // 0 where attention is fused
#pragma once

#include "plan/framework.h"
#include "plan/plan.h"

namespace foretrain {

AttentionKind attention_of(const Plan& plan, const Framework& framework);

// Figures of attention that is not fused, the profile's own or those for a plan that asks for it; none where it is.
UnfusedAttention unfused_attention(const Plan& plan, const Framework& framework);

}  // namespace foretrain
