// Reading a framework's profiles (format "foretrain.framework/1"): one file for each framework, its
// versions from the oldest to the newest. A version may begin as a copy of one before it in the same file
// ("like": "2021") and say only what differs. Every figure must have a source in the same version or in
// the one that it is like; UserError where one is missing, unknown or out of range. `stands_for` says which
// runs a version stands for: {"from_month": "2022-05", "until_month": "2023-12", "from_release": "0.3",
// "until_release": "0.5", "details": ["bigscience"], "compiled": true}, all of them optional.
//
//   std::vector<Framework> out;
//   read_frameworks({"megatron-lm", text}, out);      // appends each version
#pragma once

#include <vector>

#include "base/preset.h"
#include "plan/framework.h"

namespace foretrain {

void read_frameworks(const Preset& preset, std::vector<Framework>& out);

}  // namespace foretrain
