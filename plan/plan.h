// A plan: a model, a cluster, what is trained and how it is spread over the devices.
//
// Everything needed to predict a step or to run one. The fields are those of the plan file
// (format "foretrain.plan/1"), each also a command-line option of the same name.
//
//   Plan plan = read_plan("plan.json");                 // plan/plan_file.h
//   if (auto no = check(plan); !no.empty()) ...         // plan/check.h
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "hardware/cluster_spec.h"
#include "models/model_spec.h"
#include "plan/framework_ref.h"
#include "plan/rank_grid.h"

namespace foretrain {

enum class Schedule : std::uint8_t { gpipe, one_f_one_b };

// How ranks that hold other tokens of the same samples attend to each other's: keys and values go around
// the group a block at a time, or the split by tokens is exchanged for one by heads and back.
enum class ContextMethod : std::uint8_t { ring, all_to_all };

// What a layer keeps for its backward pass. `layers` is the n of block_layers and of offload's activation_layers
// and the k of segment_layers and every. operators: the results of attention, of the products before it and of the
// activation, as users of FSDP checkpoint operator by operator ("selective_op"); offload: nothing is computed again,
// but what the first n layers of a stage keep waits in host memory.
struct Recompute {
    enum class Kind : std::uint8_t { none, selective, full, block, segment, every, operators, offload };
    Kind kind = Kind::none;
    std::int64_t layers = 0;
    auto operator<=>(const Recompute&) const = default;
};

struct Overlap {
    bool gradient_reduce = true;   // reduce a layer's gradients while earlier layers run backward
    bool parameter_gather = true;  // gather the next layer's parameters (ZeRO-3) while this one computes
    bool pipeline = true;          // compute while messages between stages are under way
    bool tensor = false;           // send what tensor ranks exchange in pieces, beside the products around it
    bool operator==(const Overlap&) const = default;
};

// The kernels that compute attention: products and a softmax over the whole matrix of scores, or one of the fused.
// Which of the fused decides what is kept of it; its time is that of the device's measured kernels.
enum class AttentionKind : std::uint8_t { unfused, flash1, flash2, flash3, cudnn };

// What becomes of the 16-bit logits: a copy of them in fp32 by the loss's own operations one by one, the same
// compiled into fewer (Megatron-LM's "native" fusion), or gradients written over them (Transformer Engine, Liger).
enum class CrossEntropy : std::uint8_t { fp32_copy, native, fused };

// How the framework was set up where its profile leaves a choice that costs memory and changes no result.
struct SoftwareChoices {
    bool deterministic = false;          // kernels that give the same bits each time
    bool own_layers = false;             // Megatron-LM's layers in place of Transformer Engine's
    std::optional<bool> attention_mask;  // the data loader makes one
    bool quantised_parameters = false;   // weights are gathered as products take them: no copies beside them
    bool fused_softmax = true;           // scale, mask and softmax of unfused attention in one kernel
    bool gathers_tokens = false;         // of experts: all tokens go to all of their ranks, in a buffer that stays
    bool expert_overlap = false;         // of experts: exchanges run beside another microbatch's products
    bool grouped_products = false;       // of experts: in one kernel, with workspaces of its own
    std::int64_t deferred_head = 0;      // microbatches that the head's weight gradient lags behind
    bool operator==(const SoftwareChoices&) const = default;
};

// What is null is the framework profile's.
struct Training {
    std::int64_t global_batch_size = 0;  // samples a step
    std::int64_t sequence_length = 0;    // tokens a sample
    DType precision = DType::bf16;       // of weights and activations; fp64 only to run and compare
    // What the products of the layers' matrices compute in where it is fewer bits, of inputs quantised on the way
    // in; attention, embedding and head do not. A file says "precision": "fp8" for fp8 over bf16.
    std::optional<DType> products;
    DType computes() const { return products.value_or(precision); }  // the word for it in files
    double learning_rate = 1e-3;                                     // AdamW, constant
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    // Tokens that the busiest rank's experts get, over the mean, where none are dropped; 0: as the framework's
    // profile has it.
    double expert_imbalance = 0;
    std::optional<AttentionKind> attention;
    std::optional<CrossEntropy> cross_entropy;
    std::optional<double> hidden_dropout, attention_dropout;
    std::optional<DType> gradient_type;               // as gradients are collected and reduced
    std::optional<bool> fused_gradient_accumulation;  // products of weight gradients add to what is collected
    std::optional<bool> compiled;
    SoftwareChoices software;
    bool operator==(const Training&) const = default;
};

struct Parallelism {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t context = 1;
    ContextMethod context_method = ContextMethod::ring;
    std::int64_t virtual_pipeline = 1;  // chunks a stage; more than one: interleaved
    std::int64_t data = 1;
    std::int64_t expert = 1;         // ranks that share out a layer's experts
    std::int64_t expert_tensor = 1;  // ranks that share an expert's matrices: a divisor of `tensor`
    bool sequence_parallel = false;
    int zero_stage = 0;
    std::int64_t zero_shard_size = 0;  // consecutive replicas that share out what ZeRO shards; 0: all
    std::int64_t micro_batch_size = 1;
    Schedule schedule = Schedule::one_f_one_b;
    Recompute recompute;
    bool optimizer_on_host = false;  // its state is in host memory, and updated there
    // Which layers a stage holds, see plan/layers_by_chunk.h; left as they are: even.
    std::vector<std::int64_t> stage_layers;  // by chunk, in the model's order
    std::int64_t first_stage_layers = 0;     // 0: as the other stages
    std::int64_t last_stage_layers = 0;
    bool embedding_and_head_as_layers = false;
    Overlap overlap;
    bool operator==(const Parallelism&) const = default;

    // The most that a rank's experts can get of all tokens, over the mean: all of them, or each of their tokens once.
    double most_imbalance(const MixtureOfExperts& moe) const {
        const double apart = static_cast<double>(moe.experts) / static_cast<double>(moe.topk);
        return moe.experts > 0 ? std::min(static_cast<double>(expert), std::max(apart, 1.0)) : 1;
    }
    // Ranks that hold the same parameters: the size of Axis::replica.
    std::int64_t replicas() const { return context * data; }
    // Those that hold the same experts: of Axis::expert_replica.
    std::int64_t expert_replicas() const { return tensor * context * data / (expert * expert_tensor); }
    int effective_zero() const { return replicas() == 1 ? 0 : zero_stage; }
    // Of the residual stream on one rank, of a microbatch: a share of the tokens under sequence parallelism.
    std::int64_t rows(std::int64_t sequence_length) const {
        const std::int64_t tokens = micro_batch_size * (sequence_length / context);
        return sequence_parallel ? tokens / tensor : tokens;
    }
};

struct Plan {
    ModelSpec model;
    ClusterSpec cluster;
    FrameworkRef framework;
    Training training;
    Parallelism parallelism;

    RankGrid grid() const {
        const Parallelism& p = parallelism;
        return {p.tensor, p.context, p.data, p.pipeline, p.zero_shard_size, p.expert, p.expert_tensor};
    }
    std::int64_t world() const { return grid().world(); }
    // Microbatches a step on each data rank. Precondition: the plan checks.
    std::int64_t microbatches() const {
        return training.global_batch_size / (parallelism.micro_batch_size * parallelism.data);
    }
};

// What one rank passes of a microbatch from layer to layer, and to the next stage.
std::int64_t boundary_elements(const ModelSpec& model, const Training& training, const Parallelism& parallelism);

// One line, e.g. "tp 4 pp 2 v 3 dp 2 zero 1 mbs 1 1f1b sp recompute full" (with "cp 2 ring" after tp where
// there are several, "ep 8 etp 2" of experts, and "zero 3/8" where 8 replicas share out), and its parts' names.
std::string describe(const Parallelism& parallelism);
std::string describe(const Recompute& recompute);           // "none", "segment 4", ...
std::string describe_zero(const Parallelism& parallelism);  // "1", "3/8"
std::string_view name_of(Recompute::Kind kind);             // "none", "segment N", ...
std::string_view name_of(Schedule schedule);                // "gpipe", "1f1b"
std::string_view name_of(ContextMethod method);             // "ring", "all-to-all"
std::string_view name_of(AttentionKind kind);               // "unfused", "flash2", ...
std::string_view name_of(CrossEntropy kind);                // "fp32-copy", "native", "fused"

}  // namespace foretrain
