// Rules of experts and of latent attention.
#include "plan/check_rules.h"

namespace foretrain {

void check_rules::check_experts(const Plan& plan, std::vector<Rejection>& out) {
    const auto refuse = [&](const char* field, const char* found) {
        out.push_back({.reason = "model_not_planned",
                       .field = std::string("model.") + field,
                       .found = found,
                       .rule = "is read and counted, but its training is not predicted yet"});
    };
    if (plan.model.has_experts()) refuse("moe", "experts");
    if (plan.model.is_latent()) refuse("mla", "latent attention");
    if (plan.model.attention_sinks) refuse("attention_sinks", "true");
}

}  // namespace foretrain
