#include "plan/program/added_costs.h"

#include <algorithm>

#include "plan/attention_choice.h"

namespace foretrain {

namespace {

// Ranks that share out what ZeRO-1 or 2 updates, each of which sends its part to all others in its turn.
Time parameters_by_turns(const Plan& plan, const OverlapCosts& overlap) {
    const Parallelism& p = plan.parallelism;
    const int zero = p.effective_zero();
    const std::int64_t ranks = p.zero_shard_size == 0 ? p.replicas() : p.zero_shard_size;
    if ((zero != 1 && zero != 2) || plan.cluster.holds_inside(p.tensor * ranks)) return {};
    return from_microseconds(overlap.parameters_rank_us) * ranks;
}

// Of one pass over one layer on one rank, at the device's peak.
Time products_at_peak(const Plan& plan) {
    const ModelSpec& m = plan.model;
    const auto peak = plan.cluster.device.peak.find(plan.training.computes());
    if (peak == plan.cluster.device.peak.end() || peak->second.per_second <= 0) return {};
    const double matrices = static_cast<double>(m.hidden_size) *
                            static_cast<double>(m.qkv_size() + m.query_size() + m.fc1_size() + m.ffn_hidden_size);
    const double tokens = static_cast<double>(plan.parallelism.micro_batch_size) *
                          static_cast<double>(plan.training.sequence_length / plan.parallelism.context);
    return from_seconds(2 * matrices * tokens / static_cast<double>(plan.parallelism.tensor) / peak->second.per_second);
}

// Gradients go there and weights come back; the processors of a node update what its devices hold of it.
void add_offload(const Plan& plan, const Framework& framework, AddedCosts& a) {
    const Parallelism& p = plan.parallelism;
    const double link = plan.cluster.device.host_link.bytes_per_second;
    if (link <= 0) return;
    a.host_byte_ps = 1e12 / link;
    if (p.recompute.kind == Recompute::Kind::offload) a.products = products_at_peak(plan);
    if (!p.optimizer_on_host) return;
    const StateTypes types = state_types(plan.training, framework.half_gradient);
    const auto bytes = static_cast<double>(size_of(types.gradient) + size_of(types.weight));
    a.update_ps = bytes * a.host_byte_ps + framework.costs.host_update_ns * 1e3 * plan.cluster.devices_per_node;
}

}  // namespace

AddedCosts added_costs(const Plan& plan, const Framework& framework) {
    const SoftwareCosts& c = framework.costs;
    const Parallelism& p = plan.parallelism;
    const Time operation = from_microseconds(figure_at(c.host.operation_us, plan.cluster.device.dense_bf16_tera()));
    AddedCosts a;
    const std::int64_t matrices = p.micro_batch_size * (plan.model.attention_heads / p.tensor);
    const UnfusedAttention unfused = unfused_attention(plan, framework);
    const bool more = unfused.product_efficiency > 0 && !unfused.has_softmax_kernel(matrices);
    const std::int64_t softmax = more ? unfused.operations_without : 0;
    a.launch_forward = operation * (c.host.forward_operations + softmax);
    a.launch_backward = operation * (c.host.backward_operations + softmax);
    a.embed_forward = operation * c.host.embedding.forward;
    a.embed_backward = operation * c.host.embedding.backward;
    a.head_forward = operation * c.host.head.forward;
    a.head_backward = operation * c.host.head.backward;
    a.launch_again = from_microseconds(c.host.recompute_us);
    a.launch_collective = from_microseconds(figure_at(c.host.collective_us, static_cast<double>(p.tensor)));
    a.host_waits = c.host.waits_for_messages && p.pipeline > 1;
    a.host_waits_for_batches = c.host.waits_for_batches;
    a.stall_forward = from_microseconds(c.stall.forward_us);
    a.stall_backward = from_microseconds(c.stall.backward_us);
    const ExpertCosts& e = c.experts;
    const double local = p.expert > 0 ? static_cast<double>(plan.model.moe.experts / p.expert) : 0;
    const double operation_us = figure_at(c.host.operation_us, plan.cluster.device.dense_bf16_tera());
    a.expert_launch_forward = from_microseconds(operation_us * e.host_takes * e.forward_operations.of(local));
    a.expert_launch_backward = from_microseconds(operation_us * e.host_takes * e.backward_operations.of(local));
    const auto stall = [&](double us, const ExpertCosts::Operations& operations) {
        return from_microseconds((us + e.gap_us * operations.of(local)) * e.stall_takes);
    };
    a.expert_stall_forward = stall(c.stall.forward_us, e.forward_operations);
    a.expert_stall_backward = stall(c.stall.backward_us, e.backward_operations);
    if (!e.exchange.empty())
        a.expert_exchange =
            static_cast<std::int16_t>(figure_at(e.exchange, static_cast<double>(plan.cluster.devices_of_node())));
    a.stall_step = from_microseconds(c.stall.step_us) / p.virtual_pipeline;
    a.stall_parameters = parameters_by_turns(plan, c.overlap) / p.virtual_pipeline;
    const bool interleaved = p.virtual_pipeline > 1;
    a.message_share = static_cast<std::int16_t>(interleaved ? c.messages.interleaved : 0);
    const Time message = from_microseconds(c.messages.each_us);
    a.stall_message = interleaved ? message * c.messages.interleaved / Instruction::whole : message;
    const TensorShares tensor =
        p.overlap.tensor ? c.overlap.tensor_in_pieces.value_or(c.overlap.tensor) : c.overlap.tensor;
    a.tensor_forward = static_cast<std::int16_t>(tensor.forward);
    a.tensor_backward = static_cast<std::int16_t>(tensor.backward);
    a.data_share = static_cast<std::int16_t>(c.overlap.data_takes);
    a.parameter_share =
        static_cast<std::int16_t>(c.overlap.data_takes * c.overlap.parameters_take / Instruction::whole);
    a.beside_data_share = static_cast<std::int16_t>(
        plan.cluster.holds_inside(p.tensor * p.context * p.data) ? c.overlap.data_inside : c.overlap.data_across);
    add_offload(plan, framework, a);
    return a;
}

}  // namespace foretrain
