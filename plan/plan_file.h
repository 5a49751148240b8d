// Reading and writing a plan file (format "foretrain.plan/1").
//
//   Plan plan = plan_from_json(Json::parse_file("plan.json"));
//   plan_to_json(plan).dump();       // model and cluster inlined: it stands alone
//
// Left-out fields take defaults: data follows from the number of devices, the framework is the
// cluster's default, sequence parallelism the framework's. Unknown keys, and fields of the form
// that are not supported yet, are refused by name (UserError).
#pragma once

#include <string>

#include "base/json.h"
#include "plan/plan.h"

namespace foretrain {

Plan plan_from_json(const Json& value);
Json plan_to_json(const Plan& plan);

// Refuses a key that a plan does not have, before anyone asks for one that was meant. plan_from_json does so
// first; who takes fields from elsewhere does it before that.
void check_plan_keys(const Json& value);

// Parts, for command-line options of the same names and for sweeps.
Recompute recompute_from_text(const std::string& text);  // "none", "full", "segment 4", "block 2"
Schedule schedule_from_text(const std::string& text);
ContextMethod context_method_from_text(const std::string& text);  // "ring", "all-to-all"
// Whether several tensor ranks can share out a sequence's tokens after the context ranks did.
bool sequence_divides(std::int64_t tensor, std::int64_t context, std::int64_t sequence);
Json parallelism_to_json(const Parallelism& parallelism);

// Fills in `data` from the cluster's devices where it is 0.
void complete(Plan& plan);

}  // namespace foretrain
