#include "plan/attention_choice.h"

namespace foretrain {

AttentionKind attention_of(const Plan& plan, const Framework& f) {
    if (plan.training.attention) return *plan.training.attention;
    if (f.costs.unfused.product_efficiency > 0) return AttentionKind::unfused;
    AttentionKind kind = AttentionKind::flash2;
    for (const auto& [from, which] : f.memory.attention)
        if (plan.cluster.device.dense_bf16_tera() >= from) kind = which;
    return kind;
}

UnfusedAttention unfused_attention(const Plan& plan, const Framework& f) {
    if (attention_of(plan, f) != AttentionKind::unfused) return {};
    return f.costs.unfused.product_efficiency > 0 ? f.costs.unfused : f.costs.unfused_if_asked;
}

}  // namespace foretrain
