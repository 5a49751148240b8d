// Every combination of a sweep's axes that divides: the space, and its plans by number.
//
// A space of millions of plans is a list of small tuples; a plan is made of one when it is asked for.
//
//   PlanSpace space = enumerate(base, {.tensor = {4, 8}});     // base: model, cluster, framework, training
//   space.size(); space.parallelism(0); space.plan(0);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/check.h"
#include "plan/plan.h"

namespace foretrain {

// The values of each axis; empty: the default axis.
//   tensor, pipeline: every divisor of the number of devices that divides the model;
//   virtual_pipeline: every number of chunks that divides a stage's layers, if the framework
//   interleaves, for 1f1b whose microbatches fill their rounds;
//   context: from 16k tokens a sequence on powers of two up to 16, else 1; context_method: the base plan's;
//   data: what tensor, context and pipeline leave;
//   micro_batch_size: powers of two up to 64 that divide a data rank's share of the global batch;
//   zero_stage: the framework's (0 alone where there is one replica);
//   expert: every number of ranks that divides a layer's experts and, with expert_tensor, the ranks of a stage;
//   expert_tensor: 1 and the tensor ranks, if these divide an expert; 1 of a model without experts;
//   zero_shard_size: all replicas (0); of those given, where a stage shards, what divides the replicas;
//   recompute: none, selective, full, and block 1/4, 1/2, 3/4 of a stage's layers, if the framework
//   has them;  schedule: the base plan's.
struct SweepSpace {
    std::vector<std::int64_t> tensor, context, pipeline, virtual_pipeline, data, expert, expert_tensor,
        micro_batch_size;
    std::vector<ContextMethod> context_method;
    std::vector<int> zero_stage;
    std::vector<std::int64_t> zero_shard_size;
    std::vector<Schedule> schedule;
    std::vector<Recompute> recompute;
    bool every_block = false;               // recompute: also block n for every n below a chunk's layers
    bool every_micro_batch = false;         // micro_batch_size: every divisor of a data rank's share
    std::optional<bool> sequence_parallel;  // empty: the framework's, wherever it can be
};

class PlanSpace {
public:
    explicit PlanSpace(const Plan& base) : base_(base) {}

    std::size_t size() const { return points_.size(); }
    bool empty() const { return points_.empty(); }
    const Plan& base() const { return base_; }
    Parallelism parallelism(std::size_t i) const;
    Plan plan(std::size_t i) const;

    class Iterator {
    public:
        Iterator(const PlanSpace& space, std::size_t at) : space_(&space), at_(at) {}
        Plan operator*() const { return space_->plan(at_); }
        Iterator& operator++() {
            ++at_;
            return *this;
        }
        bool operator!=(const Iterator& other) const { return at_ != other.at_; }

    private:
        const PlanSpace* space_;
        std::size_t at_;
    };
    Iterator begin() const { return {*this, 0}; }
    Iterator end() const { return {*this, size()}; }

    // The plans that share tensor and context ranks, and so most of what they cost: the largest part first.
    std::vector<std::vector<std::size_t>> parts() const;

    void add(const Parallelism& parallelism);

    // Combinations of tensor, pipeline, chunks and context by the data ranks that they leave, whether these divide
    // the batch or not.
    const std::map<std::int64_t, std::int64_t>& combinations() const { return combinations_; }
    void count_combination(std::int64_t data_ranks) { ++combinations_[data_ranks]; }

private:
    // What differs between plans.
    struct Point {
        std::int64_t micro_batch_size = 1;
        std::int32_t tensor = 1, context = 1, pipeline = 1, virtual_pipeline = 1, data = 1, recompute_layers = 0,
                     zero_shard_size = 0, expert = 1, expert_tensor = 1;
        std::int8_t zero_stage = 0;
        Schedule schedule = Schedule::one_f_one_b;
        Recompute::Kind recompute = Recompute::Kind::none;
        ContextMethod context_method = ContextMethod::ring;
        bool sequence_parallel = false;
    };

    Plan base_;
    std::vector<Point> points_;
    std::map<std::int64_t, std::int64_t> combinations_;
};

// `base` gives everything but the axes.
PlanSpace enumerate(const Plan& base, const SweepSpace& space);
// What stands in the way where `enumerate` finds nothing: the axis or the batch, and what would do.
Rejection why_nothing(const Plan& base, const SweepSpace& space);

}  // namespace foretrain
