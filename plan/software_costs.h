// What a framework costs on top of kernels and collectives: the host that enqueues, compute that stands
// still, collectives that hide well or badly, kernels other than those measured on the device. The figures
// are a profile's (plan/presets/frameworks); our own engine has none of them.
//
//   const SoftwareCosts& c = framework_named("megatron-lm").costs;
//   c.host.forward_operations                       // that the host enqueues for a layer, forward
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"

namespace foretrain {

// Figures that hold from a number on (of ranks, of TFLOP/s), ascending.
using Steps = std::vector<std::pair<int, double>>;

// The figure of the last step that `at` reaches; 0 below the first.
inline double figure_at(const Steps& steps, double at) {
    double figure = 0;
    for (const auto& [from, value] : steps)
        if (at >= static_cast<double>(from)) figure = value;
    return figure;
}

// Such figures for each type that matrix products compute in.
using StepsByType = std::map<DType, Steps>;

struct Operations {
    std::int64_t forward = 0, backward = 0;
    bool operator==(const Operations&) const = default;
};

// The host runs ahead of the device until the device waits for it.
struct HostCosts {
    std::int64_t forward_operations = 0, backward_operations = 0;  // of a layer
    // Of an operation, by the device's dense bf16 peak in TFLOP/s from which on it holds, ascending: new
    // devices stand beside new processors.
    Steps operation_us;
    Steps collective_us;      // of a tensor collective, by ranks from which on it holds
    double recompute_us = 0;  // of a layer run again, besides its operations
    // Before the first layer (batch, masks, embedding) and after the last (norm, logits, loss).
    Operations embedding, head;
    bool waits_for_messages = false;  // it does not run ahead from one pipeline message to the next
    bool waits_for_batches = false;   // nor from one microbatch to the next, where a model begins
    bool operator==(const HostCosts&) const = default;
};

// Compute stands still, whatever the host does.
struct StallCosts {
    double forward_us = 0, backward_us = 0;  // of a layer
    double step_us = 0;
    bool operator==(const StallCosts&) const = default;
};

// Of a message between stages that a pass begins with, besides what it takes on its way: compute stands still
// while the host launches both directions and synchronises. With one chunk a stage nothing can be computed while
// the message is on its way, and the schedule itself says so. Where chunks take turns it may come while another
// pass runs; compute then stands still for a share, per mille, of both.
struct MessageCosts {
    double each_us = 0;
    std::int64_t interleaved = 0;
    // Each tensor rank sends its share of what all of them hold, and the receivers gather it.
    bool split = false;
    bool operator==(const MessageCosts&) const = default;
};

// Shares in per mille of a tensor collective, for which compute waits; the rest is behind products.
struct TensorShares {
    std::int64_t forward = 1000, backward = 1000;
    bool operator==(const TensorShares&) const = default;
};

// Shares in per mille of what a collective takes.
struct OverlapCosts {
    TensorShares tensor;
    // The same where the plan asks for its overlap: collectives in pieces beside the products that need or make
    // them. Nothing: the software cannot.
    std::optional<TensorShares> tensor_in_pieces;
    // That compute loses to a collective over the data ranks that runs beside it, inside a node and across.
    std::int64_t data_inside = 0, data_across = 0;
    std::int64_t data_takes = 1000;  // of a collective over the data ranks: more than it need take
    // Of the gathers of updated parameters at a step's end (ZeRO-1, 2), for which the next step waits.
    std::int64_t parameters_take = 1000;
    // Where they span nodes, of each rank that shares them out: one after the other sends its own to all others.
    double parameters_rank_us = 0;
    bool operator==(const OverlapCosts&) const = default;
};

// Of a layer with experts, besides what any layer costs.
struct ExpertCosts {
    // Operations that the host enqueues: some for the layer, and some for each expert of the rank.
    struct Operations {
        double layer = 0, each = 0;
        double of(double experts) const { return layer + each * experts; }
        bool operator==(const Operations&) const = default;
    };
    Operations forward_operations, backward_operations;
    double host_takes = 1;   // times as long as other operations: CUDA graphs spare most of it
    double gap_us = 0;       // for which the device stands still, of each of those operations
    double stall_takes = 1;  // times what a layer's StallCosts and those gaps come to
    // Per mille of the exchanges of tokens, for which compute waits, by devices that a node has; empty: all.
    Steps exchange;
    bool once_per_node = false;  // a token crosses to a node once, whatever number of its experts is there
    double traffic = 1;          // on the time of router, permutations and activation
    double imbalance = 1;        // Training::expert_imbalance where a plan has none
    bool operator==(const ExpertCosts&) const = default;
};

// Factors on the time of memory-bound kernels, by what they do.
struct TrafficFactors {
    double stream_forward = 1, stream_backward = 1;          // norms, residual sums, rotation
    double activation_forward = 1, activation_backward = 1;  // of the MLP
    double loss = 1;
    bool operator==(const TrafficFactors&) const = default;
};

// Factors on the time of attention kernels where the device was measured with those of this name.
struct AttentionFactor {
    std::string measured;
    double forward = 1, backward = 1;
    bool operator==(const AttentionFactor&) const = default;
};

// Attention by products and elementwise kernels over the whole matrix of scores, mask and all.
struct UnfusedAttention {
    double product_efficiency = 0;                 // of the peak; 0: attention is fused
    double forward_bytes = 0, backward_bytes = 0;  // moved for each score
    // Mask, softmax and dropout have a kernel of their own where the matrices of a microbatch are a multiple of so
    // many. Elsewhere each is done by itself: so many times the bytes, and more operations of the host.
    std::int64_t softmax_multiple = 1;
    double without_softmax_kernel = 1;
    std::int64_t operations_without = 0;
    double unaligned_products = 1;  // times that products take whose head size is no multiple of 8
    bool operator==(const UnfusedAttention&) const = default;

    bool has_softmax_kernel(std::int64_t matrices) const { return matrices % softmax_multiple == 0; }
};

struct SoftwareCosts {
    HostCosts host;
    StallCosts stall;
    MessageCosts messages;
    OverlapCosts overlap;
    TrafficFactors traffic;
    ExpertCosts experts;
    std::vector<AttentionFactor> attention;
    UnfusedAttention unfused;
    double host_update_ns = 0;          // of a parameter whose optimizer is on the host, by all processors of a node
    UnfusedAttention unfused_if_asked;  // where a plan asks for it and it is not the framework's own choice
    // All ranks wait for the slowest: of every operation, more for each doubling of the nodes.
    double straggling = 0;
    StepsByType gemm;  // factors on matrix products; where there is none: as measured
    bool operator==(const SoftwareCosts&) const = default;

    // Half-precision types share what stands for either.
    double gemm_takes(DType type, double dense_bf16_tera) const {
        auto found = gemm.find(type);
        if (found == gemm.end()) found = gemm.find(other_half(type));
        return found == gemm.end() ? 1 : figure_at(found->second, dense_bf16_tera);
    }

    // Where the device was measured with this attention; nullptr: it takes what was measured.
    const AttentionFactor* factor_for(std::string_view measured) const {
        for (const AttentionFactor& f : attention)
            if (f.measured == measured) return &f;
        return nullptr;
    }
};

}  // namespace foretrain
