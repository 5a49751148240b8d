// The passes that turn a body's plain arithmetic into what really happens under ZeRO: they decide
// where weights and gradients stand, and insert the collectives over the replicas.
#pragma once

#include "plan/program/stage.h"

namespace foretrain {

// A stretch of code that uses a unit's weights, before another unit's are used; or all that writes its
// gradients. `first` and `last` are instructions that do.
struct UnitUse {
    std::int32_t unit = -1;
    std::int32_t first = -1;
    std::int32_t last = -1;
};

// In order; a unit's weights may be used in several stretches. Of a body that the passes have not changed.
std::vector<UnitUse> weight_uses(const Stage& stage, const Body& body);
std::vector<UnitUse> gradient_uses(const Body& body);

// A pass whose input is a message begins with what the framework makes compute stand still for; a host that waits
// for messages waits for that too. Outside the code of any layer, and before the passes below.
void add_message_stalls(const StageContext& context, const StageShape& shape, Body& body);
// What such a pass begins with: nothing, or up to two stalls.
std::vector<Instruction> message_stalls(const StageContext& context);

// ZeRO-3: gathers each unit's weights before their use into a ring of two, one unit ahead if
// overlap.parameter_gather. Below ZeRO-3 weights are where they are.
void add_parameter_gather(const StageContext& context, const Stage& stage, Body& body);

// Reduces each unit's gradients over the replicas once their last contribution is written: every
// microbatch into the rank's shard under ZeRO-2 and 3, else only where `last_microbatch`. Where ZeRO shards
// over a part of the replicas, the sums in the shards are then summed over the ranks that hold the same
// one, in `last_microbatch` only: until then each group of ranks gathers its own. With
// overlap.gradient_reduce while earlier layers run backward, else (ZeRO-0, 1) after all of them.
// Under sequence parallelism the gradients of tensors that every tensor rank holds are partial
// sums over tokens: they are summed over the tensor ranks first. Those of a norm that all heads share
// are partial sums over heads, with or without it.
void add_gradient_reduce(const StageContext& context, const Stage& stage, std::vector<KernelArgs>& kernels, Body& body,
                         bool last_microbatch);

}  // namespace foretrain
