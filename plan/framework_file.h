// Reading a framework's profiles (format "foretrain.framework/1"): one file for each framework, its
// versions from the oldest to the newest. A version may begin as a copy of one before it in the same file
// ("like": "2021") and say only what differs. Every figure must have a source in the same version or in
// the one that it is like; UserError where one is missing, unknown or out of range.
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
