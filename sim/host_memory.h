// What a plan needs of a node's host memory (plan/program/host_memory.h), and where each figure is from:
//
//   building    P parameters of a rank in fp32, 4 P bytes, times 1.5 for buffers, of each rank of the node: what
//               DeepSpeed's estimator counts (runtime/zero/stage_1_and_2.py,
//               estimate_zero2_model_states_mem_needs, without offload); with ZeRO-3 and its zero.Init, P is the
//               largest weight (runtime/zero/stage3.py). Other frameworks here build on the device or on none
//               (their profiles' "builds_on_host" and its source): 0.
//   checkpoint  weights and optimizer state as they lie on each rank, if the profile can write a checkpoint beside
//               training: "raises CPU memory by checkpoint_size_per_rank x number_of_ranks" (PyTorch's recipe of
//               asynchronous saving); replicas that leave the writing to one of them need less.
//   batch       16 bytes for each token of a step that a rank reads: token and target as 64-bit integers, PyTorch's
//               type of indices. An assumption: the whole step is read ahead, by every rank.
//
// Our own engine holds all of its state in its devices' memory and writes no checkpoints: all are 0.
//
//   HostMemory h = host_memory(prediction);       // needs plan and memory; empty without
#pragma once

#include "plan/program/result.h"

namespace foretrain {

HostMemory host_memory(const Prediction& prediction);

}  // namespace foretrain
