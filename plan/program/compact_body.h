// A body in few instructions, for those who only want its clocks: runs of instructions of one stream
// become one wherever nothing else can tell. What the passes of body_passes.h look at is kept (the
// first and last use of each unit's weights and gradients), so that they work on it as on the whole.
//
//   CompactBody c = compact(stage, body);          // before the passes
//   c.merged[7]      // which one of c.body.code stands for instruction 7, also by its `body`; -1: none
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/stage.h"

namespace foretrain {

struct CompactBody {
    Body body;  // each instruction's `body` is its own index: passes may insert others
    std::vector<std::int32_t> merged;
};

// `body` has not been through the passes over data ranks.
CompactBody compact(const Stage& stage, const Body& body);

}  // namespace foretrain
