// Batches near the one asked for that more data ranks divide.
//
//   batch_near(1024, {3, 48, 384})                  // 1152 = 3 x 384
//   left_out_by_batch(1000, {{8, 20}, {16, 30}})    // 30 combinations; 1008 would allow all 50
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "plan/program/result.h"

namespace foretrain {

// A multiple of the most data ranks that have one within an eighth of the batch; of the fewest where none has.
std::int64_t batch_near(std::int64_t batch, const std::set<std::int64_t>& data_ranks);

// `combinations`: of the other axes, by the data ranks that they leave. Told is the batch within an eighth of the
// one asked for that allows most of them; where none allows more, the nearest that allows all.
LeftOutByBatch left_out_by_batch(std::int64_t batch, const std::map<std::int64_t, std::int64_t>& combinations);

}  // namespace foretrain
