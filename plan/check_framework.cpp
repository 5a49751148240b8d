// Whether the framework does what the plan asks of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/check_rules.h"

namespace foretrain::check_rules {

namespace {

template <class T>
bool contains(const std::vector<T>& values, const T& x) {
    return std::find(values.begin(), values.end(), x) != values.end();
}

template <class T, class Name>
std::string names_of(const std::vector<T>& values, Name name) {
    std::string s;
    for (const T& v : values) s += fmt::format("{}{}", s.empty() ? "" : ", ", name(v));
    return s;
}

}  // namespace

namespace {

// Our own engine does one thing each; others' profiles know what else there is.
void check_choices(const Plan& plan, const Framework& f, std::vector<Rejection>& out) {
    const Training& t = plan.training;
    const auto refuse = [&](const char* field, std::string found, std::string allowed) {
        out.push_back({.reason = fmt::format("framework_{}", std::string(field).substr(9)),
                       .field = field,
                       .found = std::move(found),
                       .rule = fmt::format("must be something that {} does", f.name),
                       .allowed = std::move(allowed),
                       .suggestion = {}});
    };
    const bool half = t.precision == DType::bf16 || t.precision == DType::fp16;
    if (t.gradient_type && !half && *t.gradient_type != t.precision)
        refuse("training.gradient_dtype", std::string(name_of(*t.gradient_type)), std::string(name_of(t.precision)));
    if (t.gradient_type && half && *t.gradient_type != DType::fp32 && *t.gradient_type != t.precision)
        refuse("training.gradient_dtype", std::string(name_of(*t.gradient_type)),
               fmt::format("fp32, {}", name_of(t.precision)));
    const bool unfused = t.attention == AttentionKind::unfused;
    if (unfused && f.costs.unfused.product_efficiency == 0 && f.costs.unfused_if_asked.product_efficiency == 0)
        refuse("training.attention", "unfused", "left out: fused");
    if (!f.runnable) return;
    if (t.gradient_type && half && *t.gradient_type != DType::fp32)
        refuse("training.gradient_dtype", std::string(name_of(*t.gradient_type)), "fp32");
    if (t.hidden_dropout.value_or(0) > 0 || t.attention_dropout.value_or(0) > 0)
        refuse("training.dropout",
               fmt::format("{}", std::max(t.hidden_dropout.value_or(0), t.attention_dropout.value_or(0))), "0");
    if (t.cross_entropy && *t.cross_entropy != CrossEntropy::fused)
        refuse("training.cross_entropy", std::string(name_of(*t.cross_entropy)), "fused");
    if (t.fused_gradient_accumulation == false) refuse("training.fused_gradient_accumulation", "false", "true");
    if (t.compiled == true) refuse("training.compiled", "true", "false");
    if (t.software != SoftwareChoices{}) refuse("training.software", "choices of another framework", "left out");
}

}  // namespace

void check_framework(const Plan& plan, const Framework& f, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    const auto refuse = [&](const char* reason, const char* field, std::string found, std::string allowed) {
        out.push_back({.reason = reason,
                       .field = field,
                       .found = std::move(found),
                       .rule = fmt::format("must be something that {} does", f.name),
                       .allowed = std::move(allowed)});
    };
    if (!contains(f.zero_stages, p.zero_stage)) {
        refuse("framework_zero_stage", "parallelism.zero_stage", std::to_string(p.zero_stage),
               names_of(f.zero_stages, [](int z) { return z; }));
        if (const auto others = frameworks_with_zero(p.zero_stage, p.tensor > 1, p.pipeline > 1); !others.empty()) {
            out.back().rule += fmt::format("; {} do{}", fmt::join(others, ", "), others.size() == 1 ? "es" : "");
            out.back().suggestion = "--framework " + others.front();
        }
    } else if (p.zero_shard_size > 1 && p.zero_stage > 0 && !contains(f.zero_stages_in_part, p.zero_stage))
        refuse("framework_zero_shard_size", "parallelism.zero_shard_size",
               fmt::format("{} with zero_stage {}", p.zero_shard_size, p.zero_stage), "zero_shard_size left out");
    if (!contains(f.schedules, p.schedule))
        refuse("framework_schedule", "parallelism.schedule", std::string(name_of(p.schedule)),
               names_of(f.schedules, [](Schedule s) { return name_of(s); }));
    if (p.tensor > 1 && !f.has_tensor_ranks)
        refuse("framework_tensor", "parallelism.tensor", std::to_string(p.tensor), "1");
    if (p.pipeline > 1 && !f.has_pipeline)
        refuse("framework_pipeline", "parallelism.pipeline", std::to_string(p.pipeline), "1");
    if (p.virtual_pipeline > 1 && !f.interleaves)
        refuse("framework_interleaving", "parallelism.virtual_pipeline", std::to_string(p.virtual_pipeline), "1");
    if (plan.model.has_experts() && !f.routes_experts)
        refuse("framework_experts", "model.moe", fmt::format("{} experts", plan.model.moe.experts), "none");
    if (!contains(f.precisions, plan.training.computes()))
        refuse("framework_precision", "training.precision", std::string(name_of(plan.training.computes())),
               names_of(f.precisions, [](DType t) { return name_of(t); }));
    check_choices(plan, f, out);
    if (!contains(f.recompute, p.recompute.kind))
        refuse("framework_recompute", "parallelism.recompute", describe(p.recompute),
               names_of(f.recompute, [](Recompute::Kind k) { return name_of(k); }));
    if (p.optimizer_on_host && !f.offloads_optimizer)
        refuse("framework_offload", "parallelism.offload", "{\"optimizer\": \"cpu\"}", "offload left out");
    if (p.overlap.tensor && !f.costs.overlap.tensor_in_pieces)
        refuse("framework_tensor_overlap", "parallelism.overlap.tensor", "true", "false");
    if (p.context > 1 && !contains(f.context_methods, p.context_method))
        refuse("framework_context_method", "parallelism.context_method", std::string(name_of(p.context_method)),
               names_of(f.context_methods, [](ContextMethod c) { return name_of(c); }));
}

}  // namespace foretrain::check_rules
