// Reading a framework's profiles (format "foretrain.framework/1"): one file for each framework, its
// versions from the oldest to the newest. A version may begin as a copy of one before it in the same file
// ("like": "2021") and say only what differs. Every figure must have a source in the same version or in
// the one that it is like; UserError where one is missing, unknown or out of range. `stands_for` says which
// runs a version stands for: {"from_month": "2022-05", "until_month": "2023-12", "from_release": "0.3",
// "until_release": "0.5", "details": ["bigscience"], "compiled": true}, all of them optional.
//
//   std::vector<Framework> out;
//   read_frameworks({"megatron-lm", text}, out);      // appends each version
//   frameworks_from_json(Json::parse_file("mine.json"))
//
// A version may also be like one of another framework ("like": "megatron-lm@2024"), in a user's file like any
// embedded one.
#pragma once

#include <vector>

#include "base/json.h"
#include "base/preset.h"
#include "plan/framework.h"

namespace foretrain {

// Whether a version begins as a copy of another framework's, which must then have been read before.
bool begins_as_another(const Preset& preset);
void read_frameworks(const Preset& preset, std::vector<Framework>& out);  // an embedded file
std::vector<Framework> frameworks_from_json(const Json& file);
// Whole, like no other: what reads back equal. Precondition: at least one, all of one name.
Json framework_file_json(const std::vector<Framework>& versions);

Json costs_to_json(const SoftwareCosts& costs);
SoftwareCosts costs_from_json(const Json& costs);

// What a version could say, on top of `f`. Where there are no sources of their own, the plan is the source.
void override_framework(Framework& f, const Json& overrides);

}  // namespace foretrain
