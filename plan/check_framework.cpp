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
            out.back().rule += fmt::format("; {} do{}", fmt::join(others, " and "), others.size() == 1 ? "es" : "");
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
    if (!contains(f.precisions, plan.training.computes()))
        refuse("framework_precision", "training.precision", std::string(name_of(plan.training.computes())),
               names_of(f.precisions, [](DType t) { return name_of(t); }));
    if (!contains(f.recompute, p.recompute.kind))
        refuse("framework_recompute", "parallelism.recompute", describe(p.recompute),
               names_of(f.recompute, [](Recompute::Kind k) { return name_of(k); }));
    if (p.overlap.tensor && !f.costs.overlap.tensor_in_pieces)
        refuse("framework_tensor_overlap", "parallelism.overlap.tensor", "true", "false");
    if (p.context > 1 && !contains(f.context_methods, p.context_method))
        refuse("framework_context_method", "parallelism.context_method", std::string(name_of(p.context_method)),
               names_of(f.context_methods, [](ContextMethod c) { return name_of(c); }));
}

}  // namespace foretrain::check_rules
