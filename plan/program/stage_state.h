// The units of a stage and the memory of their weights, gradients and optimizer state, by ZeRO
// stage: 0 holds all on every replica, 1 shards the optimizer state, 2 the gradients too,
// 3 the weights too. The first of the builders that make a Stage (build_stage in stage.cpp).
//
// Per unit of n elements (padded to a multiple of d, the replicas or those of a subgroup
// that ZeRO shards over):
//
//   ZeRO   weights        gradients                 optimizer state
//   0      n              n                         n
//   1      n              n (own n/d is an alias)   n/d
//   2      n              n/d, n in a ring of two   n/d
//   3      n/d, n in a    n/d, n in a ring of two   n/d
//          ring of two
#pragma once

#include "plan/program/stage.h"

namespace foretrain {

void build_stage_state(const StageContext& context, Stage& stage);

constexpr std::int64_t ring_entries = 2;  // of gathered weights and of gradients on their way

// Bytes of one entry of the ring of gathered weights, and of gradients followed by this rank's part.
Bytes gathered_entry_bytes(const StageContext& context, const Stage& stage);
Bytes staging_entry_bytes(const StageContext& context, const Stage& stage);
Bytes staging_shard_offset(const StageContext& context, const Stage& stage);  // within an entry

}  // namespace foretrain
