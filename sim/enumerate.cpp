#include "sim/enumerate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "plan/framework.h"
#include "plan/layers_by_chunk.h"
#include "sim/batch_advice.h"

namespace foretrain {

namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d * d <= n; ++d) {
        if (n % d != 0) continue;
        low.push_back(d);
        if (d != n / d) high.push_back(n / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

template <class T>
bool allowed(const std::vector<T>& axis, const T& value) {
    return axis.empty() || std::find(axis.begin(), axis.end(), value) != axis.end();
}

bool divides_model(const ModelSpec& m, std::int64_t tensor) {
    return m.attention_heads % tensor == 0 && m.kv_heads % tensor == 0 && m.ffn_hidden_size % tensor == 0 &&
           m.moe.shared_ffn % tensor == 0;
}

std::vector<std::int64_t> micro_batches(const SweepSpace& space, std::int64_t samples) {
    if (space.every_micro_batch) return divisors(samples);
    std::vector<std::int64_t> out;
    if (space.micro_batch_size.empty())
        for (std::int64_t b = 1; b <= 64 && samples % b == 0; b *= 2) out.push_back(b);
    for (std::int64_t b : space.micro_batch_size)
        if (b > 0 && samples % b == 0) out.push_back(b);
    return out;
}

std::vector<Recompute> recomputes(const Framework& framework, const SweepSpace& space, std::int64_t layers) {
    using Kind = Recompute::Kind;
    const auto has = [&](Kind kind) {
        return std::find(framework.recompute.begin(), framework.recompute.end(), kind) != framework.recompute.end();
    };
    std::vector<Recompute> out = space.recompute;
    if (out.empty()) out.push_back({});
    if (space.recompute.empty() && has(Kind::selective)) out.push_back({Kind::selective, 0});
    if (space.recompute.empty() && has(Kind::full)) out.push_back({Kind::full, 0});
    if (space.every_block && has(Kind::block))
        for (std::int64_t n = 1; n < layers; ++n) out.push_back({Kind::block, n});
    if (space.recompute.empty() && !space.every_block && has(Kind::block))
        for (std::int64_t quarter = 1; quarter <= 3; ++quarter)
            if (const std::int64_t n = layers * quarter / 4; n > 0 && n < layers && layers * quarter % 4 == 0)
                out.push_back({Kind::block, n});
    return out;
}

std::vector<int> zero_stages(const Framework& framework, const SweepSpace& space, std::int64_t replicas) {
    std::vector<int> out;
    for (int stage : framework.zero_stages)
        if (allowed(space.zero_stage, stage) && (replicas > 1 || stage == 0 || !space.zero_stage.empty()))
            out.push_back(stage);
    return out;
}

std::vector<std::int64_t> shard_sizes(const SweepSpace& space, int zero, std::int64_t replicas) {
    if (zero == 0 || space.zero_shard_size.empty()) return {0};
    std::vector<std::int64_t> out;
    for (std::int64_t n : space.zero_shard_size)
        if (n == 0 || (n > 1 && replicas % n == 0)) out.push_back(n);
    return out;
}

std::vector<std::int64_t> contexts(const SweepSpace& space, std::int64_t sequence, std::int64_t devices) {
    constexpr std::int64_t long_sequence = 16 * 1024, most = 16;
    std::vector<std::int64_t> out;
    if (space.context.empty())
        for (std::int64_t c = 1; c <= (sequence < long_sequence ? 1 : most); c *= 2) out.push_back(c);
    for (std::int64_t c : space.context) out.push_back(c);
    const auto cannot = [&](std::int64_t c) {
        return devices % c != 0 || (c > 1 && (sequence % c != 0 || sequence / c % 2 != 0));
    };
    out.erase(std::remove_if(out.begin(), out.end(), cannot), out.end());
    return out;
}

bool exchange_divides(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    if (p.context == 1 || p.context_method == ContextMethod::ring) return true;
    const std::int64_t heads = plan.model.attention_heads / p.tensor, kv_heads = plan.model.kv_heads / p.tensor;
    return heads % p.context == 0 && kv_heads % p.context == 0;
}

std::vector<std::int64_t> expert_tensors(const SweepSpace& space, const Plan& plan) {
    const std::int64_t tensor = plan.parallelism.tensor;
    std::vector<std::int64_t> out{1};
    if (plan.model.has_experts() && tensor > 1 && plan.model.moe.ffn_hidden_size % tensor == 0) out.push_back(tensor);
    std::erase_if(out, [&](std::int64_t n) { return !allowed(space.expert_tensor, n); });
    return out;
}

std::vector<std::int64_t> expert_ranks(const SweepSpace& space, const Plan& plan, std::int64_t expert_tensor) {
    const Parallelism& p = plan.parallelism;
    std::vector<std::int64_t> out{1};
    if (plan.model.has_experts())
        out = divisors(std::gcd(plan.model.moe.experts, p.tensor * p.context * p.data / expert_tensor));
    std::erase_if(out, [&](std::int64_t n) { return !allowed(space.expert, n); });
    return out;
}

// Numbers of chunks that the layers divide by. More than one where interleaving is of use.
std::vector<std::int64_t> virtual_pipelines(const Framework& framework, const SweepSpace& space, Plan plan) {
    Parallelism& p = plan.parallelism;
    const bool interleaves =
        framework.interleaves && p.pipeline > 1 &&
        (space.schedule.empty() ? p.schedule == Schedule::one_f_one_b : allowed(space.schedule, Schedule::one_f_one_b));
    std::vector<std::int64_t> out;
    if (!space.virtual_pipeline.empty()) {
        for (std::int64_t n : space.virtual_pipeline)
            if (p.virtual_pipeline = n; layers_divide(plan) && (n == 1 || p.pipeline > 1)) out.push_back(n);
        return out;
    }
    const std::int64_t most = interleaves ? plan.model.layers / p.pipeline : 1;
    for (p.virtual_pipeline = 1; p.virtual_pipeline <= most; ++p.virtual_pipeline)
        if (layers_divide(plan)) out.push_back(p.virtual_pipeline);
    return out;
}

// Appends the plans that share tensor, pipeline, virtual_pipeline, context, data and how experts are shared out.
void append(const Plan& base, const Framework& framework, const SweepSpace& space, PlanSpace& out) {
    Parallelism p = base.parallelism;
    if (base.training.global_batch_size % p.data != 0) return;
    const std::int64_t samples = base.training.global_batch_size / p.data;
    const std::vector<Schedule> schedules = space.schedule.empty() ? std::vector<Schedule>{p.schedule} : space.schedule;
    const std::vector<Recompute> forms = recomputes(framework, space, most_layers_of_chunk(base));
    const std::vector<std::int64_t> sizes = micro_batches(space, samples);
    for (int zero : zero_stages(framework, space, p.context * p.data))
        for (std::int64_t shard : shard_sizes(space, zero, p.context * p.data))
            for (std::int64_t micro_batch : sizes)
                for (Schedule schedule : schedules) {
                    if (!microbatches_fill_rounds(p, samples / micro_batch)) continue;
                    if (p.virtual_pipeline > 1 && schedule != Schedule::one_f_one_b && space.virtual_pipeline.empty())
                        continue;
                    p.zero_stage = zero;
                    p.zero_shard_size = shard;
                    p.micro_batch_size = micro_batch;
                    p.schedule = schedule;
                    for (const Recompute& recompute : forms) {
                        p.recompute = recompute;
                        out.add(p);
                    }
                }
}

// Appends the plans that share the same and differ in how they share out experts.
void append_experts(Plan plan, const Framework& framework, const SweepSpace& space, PlanSpace& out) {
    for (std::int64_t expert_tensor : expert_tensors(space, plan)) {
        plan.parallelism.expert_tensor = expert_tensor;
        for (std::int64_t expert : expert_ranks(space, plan, expert_tensor)) {
            plan.parallelism.expert = expert;
            append(plan, framework, space, out);
        }
    }
}

// Appends the plans that share tensor, pipeline and virtual_pipeline.
void append_contexts(const Plan& base, const Framework& framework, const SweepSpace& space, PlanSpace& out) {
    const Parallelism& p = base.parallelism;
    const std::int64_t devices = base.cluster.devices() / p.tensor / p.pipeline;
    const std::int64_t sequence = base.training.sequence_length;
    std::vector<ContextMethod> methods = space.context_method;
    if (methods.empty()) methods.push_back(p.context_method);
    Plan plan = base;
    for (std::int64_t context : contexts(space, sequence, devices)) {
        bool counted = false;  // however many methods it has
        for (ContextMethod method : methods) {
            if (context == 1 && method != methods.front()) continue;  // there is nothing to exchange
            plan.parallelism.context = context;
            plan.parallelism.context_method = method;
            plan.parallelism.data = devices / context;
            if (!allowed(space.data, plan.parallelism.data) || !exchange_divides(plan)) continue;
            if (!std::exchange(counted, true)) out.count_combination(plan.parallelism.data);
            const bool divides = sequence % (p.tensor * context) == 0;
            plan.parallelism.sequence_parallel =
                p.tensor > 1 && space.sequence_parallel.value_or(framework.default_sequence_parallel && divides);
            append_experts(plan, framework, space, out);
        }
    }
}

// An axis by the name of its field, and how to leave it open.
struct NamedAxis {
    const char* field;
    std::vector<std::int64_t> SweepSpace::*values;
    std::int64_t Parallelism::*value;
};

constexpr NamedAxis named_axes[] = {
    {"tensor", &SweepSpace::tensor, &Parallelism::tensor},
    {"context", &SweepSpace::context, &Parallelism::context},
    {"pipeline", &SweepSpace::pipeline, &Parallelism::pipeline},
    {"virtual_pipeline", &SweepSpace::virtual_pipeline, &Parallelism::virtual_pipeline},
    {"data", &SweepSpace::data, &Parallelism::data},
    {"expert", &SweepSpace::expert, &Parallelism::expert},
    {"expert_tensor", &SweepSpace::expert_tensor, &Parallelism::expert_tensor},
    {"zero_shard_size", &SweepSpace::zero_shard_size, &Parallelism::zero_shard_size},
    {"micro_batch_size", &SweepSpace::micro_batch_size, &Parallelism::micro_batch_size},
};

std::set<std::int64_t> values_of(const PlanSpace& plans, std::int64_t Parallelism::*value) {
    std::set<std::int64_t> values;
    for (std::size_t i = 0; i < plans.size(); ++i) values.insert(plans.parallelism(i).*value);
    return values;
}

}  // namespace

// By leaving one thing open after the other until there are plans again.
Rejection why_nothing(const Plan& base, const SweepSpace& space) {
    for (const NamedAxis& axis : named_axes) {
        if ((space.*axis.values).empty()) continue;
        SweepSpace open = space;
        (open.*axis.values).clear();
        const PlanSpace plans = enumerate(base, open);
        if (plans.empty()) continue;
        return {.reason = "axis_leaves_nothing",
                .field = fmt::format("parallelism.{}", axis.field),
                .found = fmt::format("{}", fmt::join(space.*axis.values, ", ")),
                .rule = fmt::format("leaves no plan for this model, batch and {} devices", base.cluster.devices()),
                .allowed = fmt::format("{}", fmt::join(values_of(plans, axis.value), ", ")),
                .suggestion = ""};
    }
    if (SweepSpace open = space; !space.zero_stage.empty()) {
        open.zero_stage.clear();
        const PlanSpace plans = enumerate(base, open);
        std::set<int> stages;
        for (std::size_t i = 0; i < plans.size(); ++i) stages.insert(plans.parallelism(i).zero_stage);
        if (!plans.empty()) {
            const int asked = space.zero_stage.front();
            const std::vector<std::string> others =
                stages.count(asked) > 0 ? std::vector<std::string>{} : frameworks_with_zero(asked, false, false);
            return {.reason = "axis_leaves_nothing",
                    .field = "parallelism.zero_stage",
                    .found = fmt::format("{}", fmt::join(space.zero_stage, ", ")),
                    .rule = fmt::format("leaves no plan for {} on {} devices", base.framework.reference(),
                                        base.cluster.devices()) +
                            (others.empty() ? "" : fmt::format("; {} have {}", fmt::join(others, ", "), asked)),
                    .allowed = fmt::format("{}", fmt::join(stages, ", ")),
                    .suggestion = others.empty() ? "" : "--framework " + others.front()};
        }
    }
    if (!enumerate(base, {}).empty())
        return {
            .reason = "axes_leave_nothing",
            .field = "parallelism",
            .found = "the values of the axes",
            .rule = fmt::format("together leave no plan for this model, batch and {} devices", base.cluster.devices()),
            .allowed = "",
            .suggestion = "fewer of them"};
    std::set<std::int64_t> data;
    const PlanSpace all = enumerate(base, {});
    for (const auto& [ranks, count] : all.combinations()) data.insert(ranks);
    return {.reason = "batch_divides",
            .field = "training.global_batch_size",
            .found = fmt::format("{}", base.training.global_batch_size),
            .rule = fmt::format("must be a multiple of the data ranks that this model leaves on {} devices",
                                base.cluster.devices()),
            .allowed = fmt::format("multiples of {}", fmt::join(data, ", ")),
            .suggestion = fmt::format("{}", batch_near(base.training.global_batch_size, data))};
}

void PlanSpace::add(const Parallelism& p) {
    // Ranks and layers are far below 2^31: a plan with more does not check, and no cluster file has as many.
    const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
    points_.push_back({.micro_batch_size = p.micro_batch_size,
                       .tensor = narrow(p.tensor),
                       .context = narrow(p.context),
                       .pipeline = narrow(p.pipeline),
                       .virtual_pipeline = narrow(p.virtual_pipeline),
                       .data = narrow(p.data),
                       .recompute_layers = narrow(p.recompute.layers),
                       .zero_shard_size = narrow(p.zero_shard_size),
                       .expert = narrow(p.expert),
                       .expert_tensor = narrow(p.expert_tensor),
                       .zero_stage = static_cast<std::int8_t>(p.zero_stage),
                       .schedule = p.schedule,
                       .recompute = p.recompute.kind,
                       .context_method = p.context_method,
                       .sequence_parallel = p.sequence_parallel});
}

Parallelism PlanSpace::parallelism(std::size_t i) const {
    const Point& point = points_[i];
    Parallelism p = base_.parallelism;
    p.tensor = point.tensor;
    p.context = point.context;
    p.context_method = point.context_method;
    p.pipeline = point.pipeline;
    p.virtual_pipeline = point.virtual_pipeline;
    p.data = point.data;
    p.expert = point.expert;
    p.expert_tensor = point.expert_tensor;
    p.sequence_parallel = point.sequence_parallel;
    p.zero_stage = point.zero_stage;
    p.zero_shard_size = point.zero_shard_size;
    p.micro_batch_size = point.micro_batch_size;
    p.schedule = point.schedule;
    p.recompute = {point.recompute, point.recompute_layers};
    return p;
}

Plan PlanSpace::plan(std::size_t i) const {
    Plan plan = base_;
    plan.parallelism = parallelism(i);
    return plan;
}

std::vector<std::vector<std::size_t>> PlanSpace::parts() const {
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> by_ranks;
    std::vector<std::size_t>* part = nullptr;
    for (std::size_t i = 0; i < size(); ++i) {
        const bool goes_on =
            i > 0 && points_[i].tensor == points_[i - 1].tensor && points_[i].context == points_[i - 1].context;
        if (!goes_on) part = &by_ranks[{points_[i].tensor, points_[i].context}];
        part->push_back(i);
    }
    std::vector<std::vector<std::size_t>> parts;
    for (auto& [ranks, plans] : by_ranks) parts.push_back(std::move(plans));
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return parts;
}

PlanSpace enumerate(const Plan& base, const SweepSpace& space) {
    const Framework& framework = framework_named(base.framework);
    const std::int64_t devices = base.cluster.devices();
    PlanSpace out(base);
    for (std::int64_t tensor : divisors(devices)) {
        if (!allowed(space.tensor, tensor) || !divides_model(base.model, tensor)) continue;
        for (std::int64_t pipeline : divisors(devices / tensor)) {
            if (!allowed(space.pipeline, pipeline) || pipeline > base.model.layers) continue;
            Plan plan = base;
            plan.parallelism.tensor = tensor;
            plan.parallelism.pipeline = pipeline;
            for (std::int64_t chunks : virtual_pipelines(framework, space, plan)) {
                plan.parallelism.virtual_pipeline = chunks;
                append_contexts(plan, framework, space, out);
            }
        }
    }
    return out;
}

}  // namespace foretrain
