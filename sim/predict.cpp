#include "sim/predict.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "plan/framework.h"
#include "plan/program/lower.h"
#include "plan/program/memory_terms.h"
#include "sim/estimate.h"
#include "sim/flops.h"
#include "sim/host_memory.h"
#include "sim/interval.h"
#include "sim/plan_costs.h"
#include "sim/simulator.h"

namespace foretrain {

std::vector<StageMemory> with_reserved(const Plan& plan, std::vector<StageMemory> stages) {
    const Framework& framework = framework_named(plan.framework);
    for (StageMemory& m : stages) {
        m.reserved = plan.cluster.device.reserved + framework.reserved;
        m.libraries = libraries_of(plan, framework);
        m.slack = slack_of(plan, framework);
        // Our engine sets regions aside; others' allocators hold what lives. The difference is in
        // working sets and slots that are not full at the moment of the peak.
        if (framework.runnable) continue;
        Bytes unused = m.allocated() - m.libraries - m.live_peak;
        if (framework.memory.idle_rings) unused += m.rings;
        for (Bytes* part : {&m.workspace, &m.communication, &m.activations}) {
            const Bytes less = std::min(unused, *part);
            *part -= less;
            unused -= less;
        }
    }
    return stages;
}

std::vector<Rejection> check_memory(const Plan& plan, const std::vector<StageMemory>& stages, Bytes capacity) {
    const std::size_t largest = largest_of(stages);
    const Bytes needed = stages[largest].total();
    if (needed <= capacity) return {};
    return {{.reason = "out_of_memory",
             .field = fmt::format("memory of stage {}", largest),
             .found = fmt::format("{:.2f} GiB", gibibytes(needed)),
             .rule = fmt::format("must fit {:.2f} GiB {} {}", gibibytes(capacity),
                                 capacity < plan.cluster.device.memory ? "allowed on" : "of", plan.cluster.device.name),
             .allowed = "",
             .suggestion = "more tensor, pipeline or ZeRO sharding, recompute, or a smaller micro-batch"}};
}

namespace {

// Of the time in which a stage waits for others, messages cost what its step would be shorter by without
// them; the rest is the bubble: it would wait even so.
void tell_bubble(Prediction& p, Estimator& estimator) {
    if (p.times.size() == 1) return;
    const Estimate free = estimator.estimate_with_free_messages();
    for (std::size_t s = 0; s < p.times.size(); ++s) {
        StageTime& t = p.times[s];
        const Time messages = std::clamp(t.step - free.times[s].step, Time{}, t.pipeline_exposed);
        t.bubble = t.pipeline_exposed - messages;
    }
}

// With a timeline of `shared` costs, where there are some; `plan` is what they are set to.
Prediction predict(const Plan& plan, PlanCosts* shared) {
    Prediction p;
    p.plan = plan;
    p.capacity = plan.cluster.device.memory;
    p.rejections = check(plan);
    if (!p.feasible()) return p;
    const Skeleton skeleton = make_skeleton(plan, Depth::brief);
    const CostModel cost(plan);
    Estimator estimator(skeleton, cost);
    if (shared != nullptr) estimator.use(shared->timeline(estimator.activity()));
    p.memory = with_reserved(plan, estimator.memory());
    p.rejections = check_memory(plan, p.memory, p.capacity);
    Estimate e = estimator.estimate();
    p.step = e.step;
    p.times = std::move(e.times);
    tell_bubble(p, estimator);
    p.interval = step_interval(p);
    p.host = host_memory(p);
    p.peaks = estimator.peaks();
    p.wire = estimator.wire();
    const Training& t = plan.training;
    const ModelFlops flops = model_flops(plan.model, static_cast<double>(t.global_batch_size * t.sequence_length),
                                         static_cast<double>(t.sequence_length));
    p.model_flops = flops.full;
    p.model_flops_causal = flops.causal;
    p.hardware_flops = estimator.executed(&BodyCost::gemm_flops) + estimator.executed(&BodyCost::attention_flops);
    return p;
}

}  // namespace

Time estimated_step(const Plan& plan) {
    const Skeleton skeleton = make_skeleton(plan, Depth::brief);
    const CostModel cost(plan);
    return Estimator(skeleton, cost).estimate().step;
}

Prediction estimate(const Plan& plan) { return predict(plan, nullptr); }

Prediction estimate(const Plan& plan, PlanCosts& shared) {
    shared.set(plan.parallelism);
    return predict(plan, &shared);
}

Prediction simulate(const Plan& plan, Trace* trace) {
    Prediction p = estimate(plan);
    if (p.times.empty()) return p;
    const Skeleton skeleton = make_skeleton(plan);
    if (std::optional<Rejection> no = check_lowerable(skeleton)) {
        Prediction refused;
        refused.plan = plan;
        refused.capacity = p.capacity;
        refused.rejections.push_back(std::move(*no));
        return refused;
    }
    const CostModel cost(plan);
    Trace simulated = simulate(lower(skeleton), cost);
    // Nothing contends in this simulation, so the breakdown of the estimate holds for it too.
    FORETRAIN_CHECK(step_time(simulated) == p.step, "estimate and simulation differ");
    for (std::size_t s = 0; s < p.memory.size(); ++s)
        FORETRAIN_CHECK(simulated.ranks[s].live_peak == p.memory[s].live_peak, "live peaks differ");
    if (trace != nullptr) *trace = std::move(simulated);
    return p;
}

}  // namespace foretrain
