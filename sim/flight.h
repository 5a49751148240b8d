// How many passes of each chunk are in flight when a stage's memory is fullest: what a schedule alone
// decides about memory. From it and from what one pass of each chunk holds follow, in closed form, the
// slots of a layout and the most bytes that live at once.
//
//   Flight f = flight_of(schedule_order(Schedule::one_f_one_b, 4, 0, 16), 1);
//   f.moments[0].in_flight      // {3}: when the fullest forward pass begins
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule_order.h"

namespace foretrain {

struct Flight {
    // A pass, and the passes of each chunk in flight when it begins: a forward pass not counted, a
    // backward pass counted. Of the passes of one kind and chunk only those are moments that no other exceeds: it would
    // have as many or more of every chunk.
    struct Moment {
        bool backward = false;
        std::size_t chunk = 0;
        std::vector<std::int64_t> in_flight;  // by chunk
        std::size_t pass = 0;                 // of those alike the first: its place in the stage's order
        std::int32_t microbatch = 0;
    };
    std::vector<Moment> moments;
    std::vector<std::int64_t> most;  // by chunk, at any time
    std::int64_t fullest = 0;        // of all chunks together, before a forward or at a backward pass
};

Flight flight_of(const std::vector<Pass>& order, std::size_t chunks);

// The same for a stage of a schedule, in time that does not grow with the microbatches.
Flight flight_of(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches,
                 std::int64_t chunks);

}  // namespace foretrain
