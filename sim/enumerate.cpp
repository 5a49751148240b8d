#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "plan/framework.h"
#include "plan/layers_by_chunk.h"
#include "sim/sweep.h"

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
    return m.attention_heads % tensor == 0 && m.kv_heads % tensor == 0 && m.ffn_hidden_size % tensor == 0;
}

std::vector<std::int64_t> micro_batches(const SweepSpace& space, std::int64_t samples) {
    std::vector<std::int64_t> out;
    if (space.micro_batch_size.empty())
        for (std::int64_t b = 1; b <= 64 && samples % b == 0; b *= 2) out.push_back(b);
    for (std::int64_t b : space.micro_batch_size)
        if (b > 0 && samples % b == 0) out.push_back(b);
    return out;
}

std::vector<Recompute> recomputes(const Framework& framework, const SweepSpace& space, std::int64_t layers) {
    if (!space.recompute.empty()) return space.recompute;
    const auto has = [&](Recompute::Kind kind) {
        return std::find(framework.recompute.begin(), framework.recompute.end(), kind) != framework.recompute.end();
    };
    std::vector<Recompute> out{{}};
    if (has(Recompute::Kind::selective)) out.push_back({Recompute::Kind::selective, 0});
    if (has(Recompute::Kind::full)) out.push_back({Recompute::Kind::full, 0});
    if (has(Recompute::Kind::block))
        for (std::int64_t quarter = 1; quarter <= 3; ++quarter)
            if (const std::int64_t n = layers * quarter / 4; n > 0 && n < layers && layers * quarter % 4 == 0)
                out.push_back({Recompute::Kind::block, n});
    return out;
}

std::vector<int> zero_stages(const Framework& framework, const SweepSpace& space, std::int64_t data) {
    std::vector<int> out;
    for (int stage : framework.zero_stages)
        if (allowed(space.zero_stage, stage) && (data > 1 || stage == 0 || !space.zero_stage.empty()))
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

// Appends the plans that share tensor, pipeline, virtual_pipeline, context and data.
void append(const Plan& base, const Framework& framework, const SweepSpace& space, std::vector<Plan>& out) {
    const Parallelism& p = base.parallelism;
    if (base.training.global_batch_size % p.data != 0) return;
    const std::int64_t samples = base.training.global_batch_size / p.data;
    const std::vector<Schedule> schedules = space.schedule.empty() ? std::vector<Schedule>{p.schedule} : space.schedule;
    const std::int64_t layers = most_layers_of_chunk(base);
    for (int zero : zero_stages(framework, space, p.data))
        for (std::int64_t shard : shard_sizes(space, zero, p.context * p.data))
            for (std::int64_t micro_batch : micro_batches(space, samples))
                for (Schedule schedule : schedules) {
                    if (!microbatches_fill_rounds(p, samples / micro_batch)) continue;
                    if (p.virtual_pipeline > 1 && schedule != Schedule::one_f_one_b && space.virtual_pipeline.empty())
                        continue;
                    for (const Recompute& recompute : recomputes(framework, space, layers)) {
                        out.push_back(base);
                        Parallelism& q = out.back().parallelism;
                        q.zero_stage = zero;
                        q.zero_shard_size = shard;
                        q.micro_batch_size = micro_batch;
                        q.schedule = schedule;
                        q.recompute = recompute;
                    }
                }
}

// Appends the plans that share tensor, pipeline and virtual_pipeline.
void append_contexts(const Plan& base, const Framework& framework, const SweepSpace& space, std::vector<Plan>& out) {
    const Parallelism& p = base.parallelism;
    const std::int64_t devices = base.cluster.devices() / p.tensor / p.pipeline;
    const std::int64_t sequence = base.training.sequence_length;
    std::vector<ContextMethod> methods = space.context_method;
    if (methods.empty()) methods.push_back(p.context_method);
    for (std::int64_t context : contexts(space, sequence, devices))
        for (ContextMethod method : methods) {
            if (context == 1 && method != methods.front()) continue;  // there is nothing to exchange
            Plan plan = base;
            plan.parallelism.context = context;
            plan.parallelism.context_method = method;
            plan.parallelism.data = devices / context;
            if (!allowed(space.data, plan.parallelism.data) || !exchange_divides(plan)) continue;
            const bool divides = sequence % (p.tensor * context) == 0;
            plan.parallelism.sequence_parallel =
                p.tensor > 1 && space.sequence_parallel.value_or(framework.default_sequence_parallel && divides);
            append(plan, framework, space, out);
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
    {"zero_shard_size", &SweepSpace::zero_shard_size, &Parallelism::zero_shard_size},
    {"micro_batch_size", &SweepSpace::micro_batch_size, &Parallelism::micro_batch_size},
};

std::set<std::int64_t> values_of(const std::vector<Plan>& plans, std::int64_t Parallelism::*value) {
    std::set<std::int64_t> values;
    for (const Plan& plan : plans) values.insert(plan.parallelism.*value);
    return values;
}

}  // namespace

// By leaving one thing open after the other until there are plans again.
Rejection why_nothing(const Plan& base, const SweepSpace& space) {
    for (const NamedAxis& axis : named_axes) {
        if ((space.*axis.values).empty()) continue;
        SweepSpace open = space;
        (open.*axis.values).clear();
        const std::vector<Plan> plans = enumerate(base, open);
        if (plans.empty()) continue;
        return {.reason = "axis_leaves_nothing",
                .field = fmt::format("parallelism.{}", axis.field),
                .found = fmt::format("{}", fmt::join(space.*axis.values, ", ")),
                .rule = fmt::format("leaves no plan for this model, batch and {} devices", base.cluster.devices()),
                .allowed = fmt::format("{}", fmt::join(values_of(plans, axis.value), ", ")),
                .suggestion = ""};
    }
    if (!enumerate(base, {}).empty())
        return {
            .reason = "axes_leave_nothing",
            .field = "parallelism",
            .found = "the values of the axes",
            .rule = fmt::format("together leave no plan for this model, batch and {} devices", base.cluster.devices()),
            .allowed = "",
            .suggestion = "fewer of them"};
    // A multiple of every number of data ranks leaves the model's own.
    Plan divisible = base;
    divisible.training.global_batch_size = base.cluster.devices();
    const std::set<std::int64_t> data = values_of(enumerate(divisible, {}), &Parallelism::data);
    return {.reason = "batch_divides",
            .field = "training.global_batch_size",
            .found = fmt::format("{}", base.training.global_batch_size),
            .rule = fmt::format("must be a multiple of the data ranks that this model leaves on {} devices",
                                base.cluster.devices()),
            .allowed = fmt::format("multiples of {}", fmt::join(data, ", ")),
            .suggestion = fmt::format("{}", *data.begin())};
}

std::vector<Plan> enumerate(const Plan& base, const SweepSpace& space) {
    const Framework& framework = framework_named(base.framework);
    const std::int64_t devices = base.cluster.devices();
    std::vector<Plan> out;
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
