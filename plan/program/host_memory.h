// Host memory that a plan needs on the node that needs most, as far as the plan and the framework's
// profile tell. What the operating system, the processes, their libraries and file
// caches hold comes on top; no source for it is known, so it is not in here.
//
// All figures are bytes of one node.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace foretrain {

struct HostMemory {
    // While training begins: weights that the framework builds on the host and then moves to the devices.
    Bytes building;
    // While a checkpoint is written beside training, at most: a copy of weights and optimizer state of each rank.
    Bytes checkpoint;
    // Tokens and targets of one step.
    Bytes batch;
    // All through training: optimizer state with gradients and weights on their way, and what layers keep for the
    // backward pass.
    Bytes offloaded;
    // That the cluster's file states for a node; 0: unknown.
    Bytes capacity;

    Bytes needed() const { return std::max(building, checkpoint) + batch + offloaded; }  // never both at once
    bool too_much() const { return capacity > Bytes{} && needed() > capacity; }
};

}  // namespace foretrain
