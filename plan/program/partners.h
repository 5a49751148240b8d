// Instructions that complete together: both sides of a message, and the embedding's sum on the first
// and the last stage. The one rule of who meets whom, for verify, simulation and reports.
//
// Messages travel in channels: from one stage to another, activations apart from gradients, for
// with two stages both travel between the same two. The k-th send of a channel meets its k-th recv.
//
//   channel_of(send, /*stage=*/0) == channel_of(recv, /*stage=*/1)
//   partners(program)[0][7]      // the other side of stage 0's instruction 7: {1, 9}
#pragma once

#include <cstdint>
#include <vector>

#include "plan/program/program.h"

namespace foretrain {

struct Channel {
    std::int32_t from = -1, to = -1;  // stages
    bool gradients = false;           // towards the previous chunk of the model
    auto operator<=>(const Channel&) const = default;
};

// Of a message of `stage`.
Channel channel_of(const Instruction& message, std::int32_t stage);

// Two lists that meet each other in order: the two sides of a channel, or the embedding's sums of
// first and last stage.
struct Meeting {
    std::int32_t stage[2] = {-1, -1};
    std::vector<std::int32_t> ids[2];  // of instructions
    bool messages = false;             // the first side sends
};
// Ordered by channel. In a program that verify refuses the two lists may differ in length.
std::vector<Meeting> meetings(const Program& program);

struct Partner {
    std::int32_t stage = -1;
    std::int32_t instruction = -1;
    bool operator==(const Partner&) const = default;
};
// By stage and instruction; of what meets nobody, nothing. Precondition: the lists that meet are
// equally long.
std::vector<std::vector<Partner>> partners(const Program& program);

}  // namespace foretrain
