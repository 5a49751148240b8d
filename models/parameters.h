// Every parameter tensor of a model, in the order in which foretrain lays them out: the one
// definition from which counts, shards, initial values and checkpoints follow.
//
// A tensor is viewed as (outer, sharded, inner), row-major. Tensor parallelism splits the middle
// dimension into equal contiguous runs; rank r of t holds local element (o, i, j) = global element
// (o, r * sharded/t + i, j). A column-parallel weight is (1, rows, columns), a row-parallel one is
// (rows, columns, 1), a gated up projection is (2, ffn, hidden): gate rows first, then up rows.
// The fused query-key-value weight groups its rows by key-value head (its query heads, then its
// key, then its value), so that whole groups fall to a rank.
//
// Parameters are gathered in units: the smallest piece that is reduced, sharded (ZeRO) and
// gathered as one. A unit is one layer, the routed experts of a layer, the token embedding, its norm, the
// positions, or the head (final norm apart). Inside a unit the tensors that every tensor rank replicates stand
// last, and of those the ones whose gradient is a sum over the heads of all ranks (`over_heads`) stand first.
//
// The routed experts of a layer are a unit apart, since other ranks share them out. Their tensors begin with the
// expert: fc1 of E experts is (E * gates, ffn, hidden), fc2 (E * hidden, ffn, 1). Rank r of e expert ranks holds
// E/e consecutive ones, whose matrices the ranks of Axis::expert_tensor split as tensor ranks split others. What
// every token visits stays with the layer: router (E rows, replicated), shared experts (an MLP) and their gate.
//
// Latent attention has its narrow matrices replicated: q_down, kv_down (latent rows first, then those of the rope
// key that all heads share) and the norms of the latents. q_up (or q, straight from the hidden state) and kv_up
// are grouped by head: in q_up a head's nope rows before its rope rows, in kv_up its key before its value.
//
//   for (const ParameterSpec& p : unit_parameters(model, {UnitKind::layer, 3})) total += p.elements();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model_spec.h"

namespace foretrain {

enum class UnitKind : std::uint8_t { embedding, positions, layer, final_norm, head, embedding_norm, experts };

struct UnitRef {
    UnitKind kind = UnitKind::layer;
    std::int64_t layer = 0;  // for UnitKind::layer and UnitKind::experts
    bool operator==(const UnitRef&) const = default;
};

std::string name_of(const UnitRef& unit);  // "embedding", "layer3", "experts3", ...

enum class Init : std::uint8_t { normal, ones, zeros };

struct ParameterSpec {
    std::string name;  // "layers.3.qkv.weight"; also the key of its initial values
    std::int64_t outer = 1;
    std::int64_t sharded = 1;  // the dimension that tensor parallelism splits, if it does
    std::int64_t inner = 1;
    bool replicated = false;  // every tensor rank holds all of it
    Init init = Init::normal;
    double init_std = 0.02;
    bool over_heads = false;   // replicated, but a rank's gradient comes from its own heads only
    std::int64_t experts = 0;  // whose tensors `outer` holds side by side; 0: of no routed expert

    std::int64_t elements() const { return outer * sharded * inner; }
    // Of one rank; `tensor_ranks` are those of Axis::expert_tensor where there are experts.
    std::int64_t elements(std::int64_t tensor_ranks, std::int64_t expert_ranks = 1) const {
        const std::int64_t held = experts > 0 ? elements() / expert_ranks : elements();
        return replicated ? held : held / tensor_ranks;
    }
};

// The units of the whole model in forward order, a layer's experts after it. A tied head is not a unit of its own: its
// weight is the embedding's.
std::vector<UnitRef> units_of(const ModelSpec& model);

// The tensors of one unit, sharded ones first. `vocab` is the number of rows of embedding and head,
// padded or not. The head of a tied model lists the embedding's weight (same name).
std::vector<ParameterSpec> unit_parameters(const ModelSpec& model, const UnitRef& unit, std::int64_t vocab);

// Parameters of the model, tied weights once, vocabulary unpadded.
std::int64_t parameter_count(const ModelSpec& model);
// Those that a token meets: of the routed experts of a layer, `topk`.
std::int64_t active_parameter_count(const ModelSpec& model);

}  // namespace foretrain
