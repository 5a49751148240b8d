// Which layers a stage holds: the only place that decides.
//
// A pipeline of p stages with v chunks each (virtual_pipeline) cuts the model's L layers into p v
// runs; run g is chunk g / p of stage g % p. How long a run is:
//
//   as they are                     L / (p v)
//   stage_layers                    as listed, one entry a run
//   first_stage_layers, last_...    that many on the first or last stage, the rest shared evenly by
//                                   the others; each stage's share evenly by its chunks
//   embedding_and_head_as_layers    (L + 2) / (p v), one less on the first and the last run
//
// No layer is ever dropped: what does not divide is refused.
//
//   plan.model.layers = 9, plan.parallelism = {.pipeline = 4, .first_stage_layers = 2, .last_stage_layers = 1};
//   layers_by_chunk(plan)      // 2 3 3 1
#pragma once

#include <cstdint>
#include <vector>

#include "plan/check.h"
#include "plan/plan.h"

namespace foretrain {

// By run. Precondition: layers_divide.
std::vector<std::int64_t> layers_by_chunk(const Plan& plan);
// Of the longest run, without listing them: there may be many.
std::int64_t most_layers_of_chunk(const Plan& plan);

// Does every run get at least one layer, and every layer a run? Sizes must be in range.
bool layers_divide(const Plan& plan);
// Do the microbatches fill the rounds that interleaved chunks take them in?
bool microbatches_fill_rounds(const Parallelism& parallelism, std::int64_t microbatches);

// Every rule of layouts and interleaving that the plan breaks. Sizes must be in range.
void check_stage_layers(const Plan& plan, std::vector<Rejection>& out);

}  // namespace foretrain
