#include "sim/recommend.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "models/parameters.h"
#include "sim/explain.h"
#include "sim/sizes.h"
#include "sim/what_if.h"

namespace foretrain {

namespace {

// The faster of the alternative so far and the best of a space; why there is none, of the first that had none.
void improve(Alternative& best, const Plan& plan, const SweepOptions& options) {
    const SweepResult found = sweep(plan, options);
    if (found.best.empty()) {
        if (best.step.value == 0 && best.why_not.empty()) best.why_not = why_none(found);
        return;
    }
    const Prediction& p = found.best.front();
    if (best.step.value == 0 || p.step < best.step) best = alternative_of(p);
}

// The best plan of the space whose value on one axis is not the chosen one. `all`: the space's plans.
template <class T, class U>
AxisReason reason(const char* axis, const PlanSpace& all, const Plan& best, const SweepOptions& options,
                  T Parallelism::*value, std::vector<U> SweepSpace::*values) {
    AxisReason r{.axis = axis, .value = std::to_string(best.parallelism.*value)};
    std::set<T> others;
    for (std::size_t i = 0; i < all.size(); ++i) others.insert(all.parallelism(i).*value);
    others.erase(best.parallelism.*value);
    if (others.empty()) return r;
    SweepOptions otherwise = options;
    (otherwise.space.*values).assign(others.begin(), others.end());
    if (std::string_view(axis) == "micro_batch_size") otherwise.space.every_micro_batch = false;
    otherwise.top = 1;
    improve(r.alternative, best, otherwise);
    if (r.alternative.feasible()) r.other = std::to_string(r.alternative.parallelism.*value);
    return r;
}

// Which blocks of layers may be recomputed depends on how many a chunk has: one space for each number of
// stages and chunks.
AxisReason recompute_reason(const PlanSpace& all, const Plan& best, const SweepOptions& options) {
    AxisReason r{.axis = "recompute", .value = describe(best.parallelism.recompute)};
    std::map<std::pair<std::int64_t, std::int64_t>, std::set<Recompute>> others;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Parallelism p = all.parallelism(i);
        if (p.recompute != best.parallelism.recompute) others[{p.pipeline, p.virtual_pipeline}].insert(p.recompute);
    }
    SweepOptions otherwise = options;
    otherwise.top = 1;
    for (const auto& [chunks, values] : others) {
        otherwise.space.pipeline = {chunks.first};
        otherwise.space.virtual_pipeline = {chunks.second};
        otherwise.space.every_block = false;
        otherwise.space.recompute.assign(values.begin(), values.end());
        improve(r.alternative, best, otherwise);
    }
    if (!others.empty() && r.alternative.feasible()) r.other = describe(r.alternative.parallelism.recompute);
    return r;
}

}  // namespace

std::vector<AxisReason> axis_reasons(const Prediction& best, const SweepOptions& options) {
    const Plan& plan = best.plan;
    const PlanSpace all = enumerate(plan, options.space);
    std::vector<AxisReason> reasons{
        reason("tensor", all, plan, options, &Parallelism::tensor, &SweepSpace::tensor),
        reason("context", all, plan, options, &Parallelism::context, &SweepSpace::context),
        reason("pipeline", all, plan, options, &Parallelism::pipeline, &SweepSpace::pipeline),
        reason("virtual_pipeline", all, plan, options, &Parallelism::virtual_pipeline, &SweepSpace::virtual_pipeline),
        reason("zero_stage", all, plan, options, &Parallelism::zero_stage, &SweepSpace::zero_stage),
        reason("micro_batch_size", all, plan, options, &Parallelism::micro_batch_size, &SweepSpace::micro_batch_size),
        recompute_reason(all, plan, options)};
    if (!plan.model.has_experts()) return reasons;
    reasons.push_back(reason("expert", all, plan, options, &Parallelism::expert, &SweepSpace::expert));
    reasons.push_back(
        reason("expert_tensor", all, plan, options, &Parallelism::expert_tensor, &SweepSpace::expert_tensor));
    return reasons;
}

namespace {

// Of `values`, or of all values where that is empty, those that satisfy the rule.
template <class Rule>
std::vector<std::int64_t> only(const std::vector<std::int64_t>& values, std::int64_t most, Rule rule) {
    std::vector<std::int64_t> out;
    if (values.empty()) {
        for (std::int64_t n = 1; n <= most; ++n)
            if (rule(n)) out.push_back(n);
    } else {
        std::copy_if(values.begin(), values.end(), std::back_inserter(out), rule);
    }
    return out;
}

// The most tensor ranks that leave the space any plan.
std::vector<std::int64_t> most_of(const Plan& base, SweepSpace space, std::vector<std::int64_t> tensor) {
    std::sort(tensor.rbegin(), tensor.rend());
    for (const std::int64_t n : tensor) {
        space.tensor = {n};
        if (!enumerate(base, space).empty()) return {n};
    }
    return tensor;
}

}  // namespace

RuleOfThumb rule_of_thumb(const Plan& base, const SweepOptions& options) {
    const double parameters = static_cast<double>(parameter_count(base.model));
    const std::int64_t node = base.cluster.devices_per_node;
    RuleOfThumb thumb;
    SweepOptions ruled = options;
    ruled.top = 1;
    const auto one = [](std::int64_t n) { return n == 1; };
    const auto inside = [&](std::int64_t n) { return n > 1 && n <= node; };
    SweepSpace& space = ruled.space;
    const SweepSpace& asked = options.space;
    if (parameters < 10e9) {
        thumb.rule = "under 10 B parameters: data-parallel only";
        space.tensor = only(asked.tensor, 1, one);
        space.pipeline = only(asked.pipeline, 1, one);
    } else if (parameters < 100e9) {
        thumb.rule = "under 100 B parameters: tensor ranks inside a node, all else data-parallel";
        space.tensor = only(asked.tensor, node, inside);
        space.pipeline = only(asked.pipeline, 1, one);
    } else {
        thumb.rule = "100 B parameters and more: tensor ranks fill a node, pipeline and data share the rest";
        space.pipeline = only(asked.pipeline, base.model.layers, [](std::int64_t n) { return n > 1; });
        space.tensor = most_of(base, space, only(asked.tensor, node, inside));
    }
    if (space.tensor.empty() || space.pipeline.empty()) {
        thumb.then.why_not = "the values that were asked for leave it no plan";
        return thumb;
    }
    const SweepResult found = sweep(base, ruled);
    if (found.best.empty())
        thumb.then.why_not = why_none(found);
    else
        thumb.then = alternative_of(found.best.front());
    return thumb;
}

Recommendation recommend(const Plan& base, const SweepOptions& options) {
    Recommendation r;
    r.sweep = sweep(base, options);
    SweepOptions quiet = options;
    quiet.progress = nullptr;
    r.thumb = rule_of_thumb(base, quiet);
    if (r.sweep.best.empty()) {
        r.explanation = explain_none(base, quiet);
        return r;
    }
    const Prediction& best = r.sweep.best.front();
    r.reasons = axis_reasons(best, quiet);
    r.explanation = explain(best, quiet);
    return r;
}

}  // namespace foretrain
