#include "sim/host_memory.h"

#include <algorithm>

#include "models/parameters.h"
#include "plan/framework.h"
#include "plan/program/stage.h"

namespace foretrain {

namespace {

constexpr std::int64_t bytes_of_a_token = 16;

Bytes with_buffers(Bytes b) { return b * 3 / 2; }

std::int64_t largest_weight(const Plan& plan, const Framework& framework) {
    const std::int64_t vocab = padded_vocabulary(plan.model, framework, plan.parallelism.tensor);
    std::int64_t most = 0;
    const auto look = [&](const UnitRef& unit) {
        for (const ParameterSpec& p : unit_parameters(plan.model, unit, vocab))
            most = std::max(most, p.elements(p.experts > 0 ? plan.parallelism.expert_tensor : plan.parallelism.tensor,
                                             plan.parallelism.expert));
    };
    look({UnitKind::embedding});
    look({UnitKind::layer, 0});  // layers are alike, but for experts
    const std::int64_t last = plan.model.layers - 1;
    look({UnitKind::layer, last});
    if (plan.model.has_experts(last)) look({UnitKind::experts, last});
    look({UnitKind::head});
    return most;
}

// Of a rank that holds so many bytes of weights: state, gradients in fp32 and weights on their way
// (github:deepspeedai/DeepSpeed@edaa72212672 deepspeed/runtime/zero/stage3.py).
Bytes optimizer_on_host(const Plan& plan, const StateTypes& types, Bytes weights) {
    const Parallelism& p = plan.parallelism;
    if (!p.optimizer_on_host) return {};
    const int zero = p.effective_zero();
    const std::int64_t shards = p.zero_shard_size == 0 ? p.replicas() : p.zero_shard_size;
    const std::int64_t elements = weights.value / size_of(types.weight) / (zero == 1 || zero == 2 ? shards : 1);
    const std::int64_t state = (types.master ? 3 : 2) * size_of(types.optimizer);
    return Bytes{elements * (state + size_of(DType::fp32) + size_of(types.weight))};
}

// What the offloaded layers of a stage keep, of each microbatch that is in flight there.
Bytes activations_on_host(const Plan& plan, std::int64_t stage) {
    const Parallelism& p = plan.parallelism;
    if (p.recompute.kind != Recompute::Kind::offload) return {};
    StageContext context = make_context(plan);
    const auto slot = [&](const Recompute& recompute) {
        context.parallelism.recompute = recompute;
        return build_passes(context, {.layers = 1, .first = true, .last = true}, Depth::full).slot_bytes;
    };
    const Bytes layer = slot({}) - slot({Recompute::Kind::offload, 1});
    return layer * p.recompute.layers * std::min(plan.microbatches(), p.pipeline - stage);
}

// What `of_rank` of the stages comes to on the node that holds most. Ranks fill nodes in order, and stages are
// the furthest apart: it is the node where a stage begins or ends, or one inside it.
template <class OfRank>
Bytes most_on_a_node(const Plan& plan, const OfRank& of_rank) {
    const RankGrid grid = plan.grid();
    const std::int64_t of_stage = grid.tensor * grid.context * grid.data, of_node = plan.cluster.devices_per_node;
    const auto on_node = [&](std::int64_t node) {
        Bytes sum;
        const std::int64_t end = std::min((node + 1) * of_node, grid.world());
        for (std::int64_t rank = node * of_node; rank < end;) {
            const std::int64_t stage = rank / of_stage;
            const std::int64_t next = std::min(end, (stage + 1) * of_stage);
            sum += of_rank(static_cast<std::size_t>(stage)) * (next - rank);
            rank = next;
        }
        return sum;
    };
    Bytes most;
    for (std::int64_t stage = 0; stage < grid.pipeline; ++stage) {
        const std::int64_t first = stage * of_stage / of_node, last = ((stage + 1) * of_stage - 1) / of_node;
        for (const std::int64_t node : {first, std::min(first + 1, last), last}) most = std::max(most, on_node(node));
    }
    return most;
}

}  // namespace

HostMemory host_memory(const Prediction& p) {
    HostMemory host;
    const Plan& plan = p.plan;
    host.capacity = plan.cluster.host_memory;
    if (p.memory.empty()) return host;
    const Framework& framework = framework_named(plan.framework);
    if (framework.runnable) return host;
    const StateTypes types = state_types(plan.training, framework.half_gradient);
    if (framework.builds_on_host && plan.parallelism.zero_stage == 3) {
        const Bytes largest{4 * largest_weight(plan, framework)};
        host.building = most_on_a_node(plan, [&](std::size_t) { return with_buffers(largest); });
    } else if (framework.builds_on_host) {
        host.building = most_on_a_node(
            plan, [&](std::size_t s) { return with_buffers(p.memory[s].weights / size_of(types.weight) * 4); });
    }
    if (framework.checkpoints_beside)
        host.checkpoint =
            most_on_a_node(plan, [&](std::size_t s) { return p.memory[s].weights + p.memory[s].optimizer; });
    host.offloaded = most_on_a_node(plan, [&](std::size_t s) {
        return optimizer_on_host(plan, types, p.memory[s].weights) +
               activations_on_host(plan, static_cast<std::int64_t>(s));
    });
    const std::int64_t tokens = plan.training.global_batch_size / plan.parallelism.data *
                                plan.training.sequence_length / plan.parallelism.context;
    host.batch = most_on_a_node(plan, [&](std::size_t) { return Bytes{bytes_of_a_token * tokens}; });
    return host;
}

}  // namespace foretrain
