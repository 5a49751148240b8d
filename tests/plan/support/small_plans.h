// Plans small enough to lower in a millisecond, over every way of being parallel that the builders
// know. The cluster is a few round numbers: nothing here asks what anything costs.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace foretrain::testing {

ModelSpec small_gpt(bool tied);  // learned positions, LayerNorm, GELU, biases
ModelSpec small_llama();         // rotary positions, RMSNorm, SwiGLU, grouped queries, untied
ModelSpec small_tied_llama();

// Four layers, framework foretrain, sequence 8, fp32, six samples a data rank.
Plan small_plan(const ModelSpec& model, const Parallelism& parallelism, DType precision = DType::fp32);

// A varied set: all products of the main axes at their ends, and each further choice in turn.
std::vector<Plan> varied_plans();
std::string plan_name(const Plan& plan);

}  // namespace foretrain::testing
