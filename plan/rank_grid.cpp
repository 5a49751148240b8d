#include "plan/rank_grid.h"

#include <iterator>

#include "base/error.h"

namespace foretrain {

namespace {
constexpr Axis all_axes[] = {Axis::none,      Axis::tensor, Axis::context,       Axis::data,
                             Axis::replica,   Axis::shard,  Axis::replicate,     Axis::pipeline,
                             Axis::embedding, Axis::expert, Axis::expert_tensor, Axis::expert_replica};
static_assert(std::size(all_axes) == axis_count);
}  // namespace

std::string_view name_of(Axis axis) {
    switch (axis) {
        case Axis::none: return "none";
        case Axis::tensor: return "tensor";
        case Axis::context: return "context";
        case Axis::data: return "data";
        case Axis::replica: return "replica";
        case Axis::shard: return "shard";
        case Axis::replicate: return "replicate";
        case Axis::pipeline: return "pipeline";
        case Axis::embedding: return "embedding";
        case Axis::expert: return "expert";
        case Axis::expert_tensor: return "expert_tensor";
        case Axis::expert_replica: return "expert_replica";
    }
    return "?";
}

std::optional<Axis> axis_from_name(std::string_view name) {
    for (Axis axis : all_axes)
        if (name == name_of(axis)) return axis;
    return std::nullopt;
}

std::int64_t RankGrid::size(Axis axis) const {
    switch (axis) {
        case Axis::none: return 1;
        case Axis::tensor: return tensor;
        case Axis::context: return context;
        case Axis::data: return data;
        case Axis::replica: return context * data;
        case Axis::shard: return shard == 0 ? context * data : shard;
        case Axis::replicate: return shard == 0 ? 1 : context * data / shard;
        case Axis::pipeline: return pipeline;
        case Axis::embedding: return pipeline > 1 ? 2 : 1;
        case Axis::expert: return expert;
        case Axis::expert_tensor: return expert_tensor;
        case Axis::expert_replica: return tensor * context * data / (expert * expert_tensor);
    }
    return 1;
}

std::int64_t RankGrid::stride(Axis axis) const {
    switch (axis) {
        case Axis::none:
        case Axis::tensor:
        case Axis::expert_tensor: return 1;
        case Axis::context:
        case Axis::replica:
        case Axis::shard: return tensor;
        case Axis::replicate: return tensor * size(Axis::shard);
        case Axis::data: return tensor * context;
        case Axis::pipeline: return tensor * context * data;
        case Axis::embedding: return tensor * context * data * (pipeline - 1);
        case Axis::expert: return expert_tensor;
        case Axis::expert_replica: return expert_tensor * expert;
    }
    return 1;
}

std::int64_t RankGrid::coordinate(std::int64_t rank, Axis axis) const {
    if (axis == Axis::none) return 0;
    if (axis == Axis::embedding) return coordinate(rank, Axis::pipeline) == 0 ? 0 : 1;
    return rank / stride(axis) % size(axis);
}

std::vector<std::int64_t> RankGrid::members(std::int64_t rank, Axis axis) const {
    FORETRAIN_CHECK(rank >= 0 && rank < world(), "rank outside the world");
    const std::int64_t first =
        axis == Axis::embedding ? rank_in_stage(rank, 0) : rank - coordinate(rank, axis) * stride(axis);
    std::vector<std::int64_t> group;
    for (std::int64_t i = 0; i < size(axis); ++i) group.push_back(first + i * stride(axis));
    return group;
}

std::int64_t RankGrid::rank_in_stage(std::int64_t rank, std::int64_t stage) const {
    const std::int64_t per_stage = stride(Axis::pipeline);
    return stage * per_stage + rank % per_stage;
}

}  // namespace foretrain
