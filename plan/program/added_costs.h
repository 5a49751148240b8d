// What a framework adds to a plan's kernels and collectives: its SoftwareCosts worked out for the plan's
// devices and ranks, as integers that stand in the program.
//
//   AddedCosts a = added_costs(plan, framework_named(plan.framework));
//   a.launch_forward                         // the host takes so long to enqueue a layer
#pragma once

#include "plan/framework.h"
#include "plan/plan.h"
#include "plan/program/program.h"

namespace foretrain {

struct AddedCosts {
    Time launch_forward, launch_backward, launch_again;  // of a layer; again: besides forward, when recomputed
    Time launch_collective;                              // of each tensor collective, besides
    Time embed_forward, embed_backward;                  // of what comes before the first layer,
    Time head_forward, head_backward;                    // and after the last
    bool host_waits = false;                             // a pass is launched from when its input is there
    bool host_waits_for_batches = false;                 // so is a model's beginning, whatever its input
    Time stall_forward, stall_backward;                  // of a layer
    Time stall_step;                                     // of each chunk's part of the optimizer step
    Time stall_parameters;                               // before that of the next, for what ranks hand out by turns
    Time stall_message;                                  // at the beginning of a pass whose input is a message,
    std::int16_t message_share = 0;                      // and this share of what the message takes
    Time expert_launch_forward, expert_launch_backward;  // of a layer with experts, besides
    Time expert_stall_forward, expert_stall_backward;    // the same, in place of the stalls above
    std::int16_t expert_exchange = Instruction::whole;   // of what the ranks that share experts out exchange
    std::int16_t tensor_forward = Instruction::whole, tensor_backward = Instruction::whole;  // Instruction::share
    std::int16_t data_share = Instruction::whole;       // the same of what the data ranks exchange
    std::int16_t beside_data_share = 0;                 // of that, what compute loses to it where it runs beside
    std::int16_t parameter_share = Instruction::whole;  // as data_share, of parameters gathered at the step's end

    // Of offload: of an element of optimizer state, sent there and back and updated; of a byte each way; and what a
    // layer's products take at least, beside which its tensors are sent.
    double update_ps = 0, host_byte_ps = 0;
    Time products;

    bool launches() const { return launch_forward > Time{} || launch_backward > Time{}; }
};

AddedCosts added_costs(const Plan& plan, const Framework& framework);

}  // namespace foretrain
