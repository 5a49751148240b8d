#include "sim/recommend.h"

#include <algorithm>
#include <set>

#include "models/parameters.h"
#include "sim/explain.h"
#include "sim/sizes.h"
#include "sim/what_if.h"

namespace foretrain {

namespace {

std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(const Recompute& value) { return describe(value); }

// The best plan of the space whose value on one axis is not the chosen one. `all`: the space's plans.
template <class T, class U>
AxisReason reason(const char* axis, const std::vector<Plan>& all, const Plan& best, const SweepOptions& options,
                  T Parallelism::*value, std::vector<U> SweepSpace::*values) {
    AxisReason r{.axis = axis, .value = text_of(best.parallelism.*value)};
    std::set<T> others;
    for (const Plan& plan : all) others.insert(plan.parallelism.*value);
    others.erase(best.parallelism.*value);
    if (others.empty()) return r;
    SweepOptions otherwise = options;
    (otherwise.space.*values).assign(others.begin(), others.end());
    otherwise.top = 1;
    const SweepResult found = sweep(best, otherwise);
    if (found.best.empty()) {
        r.alternative.why_not = why_none(found);
        return r;
    }
    r.alternative = alternative_of(found.best.front());
    r.other = text_of(r.alternative.parallelism.*value);
    return r;
}

}  // namespace

std::vector<AxisReason> axis_reasons(const Prediction& best, const SweepOptions& options) {
    const Plan& plan = best.plan;
    const std::vector<Plan> all = enumerate(plan, options.space);
    return {reason("tensor", all, plan, options, &Parallelism::tensor, &SweepSpace::tensor),
            reason("pipeline", all, plan, options, &Parallelism::pipeline, &SweepSpace::pipeline),
            reason("zero_stage", all, plan, options, &Parallelism::zero_stage, &SweepSpace::zero_stage),
            reason("micro_batch_size", all, plan, options, &Parallelism::micro_batch_size,
                   &SweepSpace::micro_batch_size),
            reason("recompute", all, plan, options, &Parallelism::recompute, &SweepSpace::recompute)};
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
