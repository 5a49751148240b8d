// Rules of what ranks exchange: over which of the replicas ZeRO shards, and what runs beside computing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/check_rules.h"

namespace foretrain::check_rules {

// A part of the replicas that ZeRO shards over: some equal parts make up all of them.
void check_shard(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    if (p.zero_shard_size == 0) return;
    Rejection r{.field = "parallelism.zero_shard_size", .found = std::to_string(p.zero_shard_size)};
    const std::optional<std::int64_t> replicas = product({p.context, p.data});
    if (p.zero_stage == 0) {
        r.reason = "shard_needs_zero";
        r.found += " with zero_stage 0";
        r.rule = "needs a ZeRO stage that shards: stage 0 shards nothing";
        r.suggestion = "zero_stage 1, or zero_shard_size left out";
    } else if (p.zero_shard_size == 1) {
        r.reason = "shard_of_one";
        r.rule = "must be at least 2: one replica that shares with nobody is stage 0";
        r.suggestion = "zero_stage 0, with zero_shard_size left out";
    } else if (replicas && *replicas % p.zero_shard_size != 0) {
        std::vector<std::int64_t> divisors = small_divisors(*replicas);
        divisors.erase(divisors.begin());
        r.reason = "shard_divides_replicas";
        r.rule =
            fmt::format("must divide the replicas, {} = {}",
                        p.context > 1 ? fmt::format("context {} x data {}", p.context, p.data) : "data", *replicas);
        r.allowed = divisors.empty() ? "" : fmt::format("{}", fmt::join(divisors, ", "));
        r.suggestion = divisors.empty() ? "zero_shard_size left out" : neighbours_of(p.zero_shard_size, divisors);
    } else {
        return;
    }
    out.push_back(std::move(r));
}

// Chunks go around the stages: messages that wait for each other's passes would come to a standstill.
void check_overlap(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    if (p.overlap.pipeline || p.virtual_pipeline == 1 || p.pipeline == 1) return;
    out.push_back({.reason = "interleaving_overlaps_messages",
                   .field = "parallelism.overlap.pipeline",
                   .found = fmt::format("false with virtual_pipeline {}", p.virtual_pipeline),
                   .rule = "must be true where a stage holds several chunks: messages that hold up their stages would "
                           "wait for each other",
                   .suggestion = "true, or virtual_pipeline 1"});
}

}  // namespace foretrain::check_rules
