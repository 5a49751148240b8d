#include "plan/program/added_costs.h"

#include <algorithm>

namespace foretrain {

AddedCosts added_costs(const Plan& plan, const Framework& framework) {
    const SoftwareCosts& c = framework.costs;
    const Parallelism& p = plan.parallelism;
    const Time operation = from_microseconds(figure_at(c.host.operation_us, plan.cluster.device.dense_bf16_tera()));
    AddedCosts a;
    a.launch_forward = operation * c.host.forward_operations;
    a.launch_backward = operation * c.host.backward_operations;
    a.launch_again = from_microseconds(c.host.recompute_us);
    a.launch_collective = from_microseconds(figure_at(c.host.collective_us, static_cast<double>(p.tensor)));
    a.host_waits = c.host.waits_for_messages && p.pipeline > 1;
    a.stall_forward = from_microseconds(c.stall.forward_us);
    a.stall_backward = from_microseconds(c.stall.backward_us);
    a.stall_step = from_microseconds(c.stall.step_us) / p.virtual_pipeline;
    const bool interleaved = p.virtual_pipeline > 1;
    a.message_share = static_cast<std::int16_t>(interleaved ? c.messages.interleaved : 0);
    const Time message = from_microseconds(c.messages.each_us);
    a.stall_message = interleaved ? message * c.messages.interleaved / Instruction::whole : message;
    const TensorShares tensor =
        p.overlap.tensor ? c.overlap.tensor_in_pieces.value_or(c.overlap.tensor) : c.overlap.tensor;
    a.tensor_forward = static_cast<std::int16_t>(tensor.forward);
    a.tensor_backward = static_cast<std::int16_t>(tensor.backward);
    a.data_share = static_cast<std::int16_t>(c.overlap.data_takes);
    a.beside_data_share = static_cast<std::int16_t>(
        plan.cluster.holds_inside(p.tensor * p.context * p.data) ? c.overlap.data_inside : c.overlap.data_across);
    return a;
}

}  // namespace foretrain
