// Where a rank stands: its coordinates on the axes tensor, context, data and pipeline.
//
// Rank order, innermost first: tp, cp, dp, pp; so the tensor group is the closest together and the
// stages are the furthest apart. A group is a slice of the grid along one axis. Ranks along `context` hold
// other tokens of the same samples, ranks along `data` other samples; both hold the same parameters, so
// the two axes together are one more, `replica`: the group that sums gradients and that ZeRO shards over.
// ZeRO may shard over a part of them: `shard` consecutive replicas, the group of that axis, hold all
// parameters between them, and those that hold the same part are the group of the axis `replicate`.
//
// Experts are laid out over all ranks of a stage by themselves, innermost first: `expert_tensor` ranks share an
// expert's matrices, the `expert` axis holds all experts of a layer between them, and `expert_replica` are
// those that hold the same.
//
//   RankGrid g{.tensor = 2, .context = 2, .data = 2, .pipeline = 2};     // world 16
//   g.members(5, Axis::data) == {1, 5}
//   g.members(5, Axis::replica) == {1, 3, 5, 7}
//   g.shard = 2;
//   g.members(5, Axis::shard) == {5, 7};  g.members(5, Axis::replicate) == {1, 5}
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace foretrain {

// `embedding` is the pair of first and last stage, which share a tied weight.
enum class Axis : std::uint8_t {
    none,
    tensor,
    context,
    data,
    replica,
    shard,
    replicate,
    pipeline,
    embedding,
    expert,
    expert_tensor,
    expert_replica
};
constexpr std::size_t axis_count = 12;

std::string_view name_of(Axis axis);
std::optional<Axis> axis_from_name(std::string_view name);

struct RankGrid {
    std::int64_t tensor = 1;
    std::int64_t context = 1;
    std::int64_t data = 1;
    std::int64_t pipeline = 1;
    std::int64_t shard = 0;   // a divisor of the replicas; 0: all of them
    std::int64_t expert = 1;  // times expert_tensor a divisor of the ranks of a stage
    std::int64_t expert_tensor = 1;

    bool operator==(const RankGrid&) const = default;

    std::int64_t world() const { return tensor * context * data * pipeline; }
    std::int64_t size(Axis axis) const;
    // The distance in ranks between neighbours of a group.
    std::int64_t stride(Axis axis) const;
    std::int64_t coordinate(std::int64_t rank, Axis axis) const;
    // Ranks of `rank`'s group along `axis`, ascending: the order in which sums are taken.
    std::vector<std::int64_t> members(std::int64_t rank, Axis axis) const;
    std::int64_t rank_in_stage(std::int64_t rank, std::int64_t stage) const;  // same place, another stage
};

}  // namespace foretrain
