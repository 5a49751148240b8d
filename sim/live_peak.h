// The moment at which most of a stage's memory lives, in the order in which the host issues: how much
// lives in it, and in which pass, section and microbatch it comes. In closed form, from what one pass of each
// chunk holds and from how many passes are in flight (sim/flight.h).
//
//   LivePeak peak = live_peak(flight, chunks, [&](std::size_t c) { return holding_of(*chunk[c].stage, context); });
//   text(moment_of(skeleton, stage, flight))    // "backward pass of microbatch 0, in layer7.mlp; 4 in flight"
#pragma once

#include <cstddef>

#include "plan/program/result.h"
#include "plan/program/skeleton.h"
#include "sim/flight.h"

namespace foretrain {

// What one pass of a chunk holds.
struct Holding {
    Bytes input, output;  // a message from the chunk before, to the chunk after; 0: there is none
    Life forward, backward;
};

struct LivePeak {
    Bytes bytes;                             // on top of what stands all through the step
    const Flight::Moment* moment = nullptr;  // the first at which it is reached
};

// `holding(c)`: of the stage's chunk c. While a pass runs, there are its messages to both sides; a passed forward
// pass keeps its input.
template <class HoldingOf>
LivePeak live_peak(const Flight& flight, std::size_t chunks, HoldingOf&& holding) {
    LivePeak peak;
    for (const Flight::Moment& moment : flight.moments) {
        const Holding& now = holding(moment.chunk);
        Bytes live = now.output + now.input + (moment.backward ? now.backward : now.forward).peak;
        for (std::size_t c = 0; c < chunks; ++c)
            if (moment.in_flight[c] > 0) {
                const Holding& kept = holding(c);
                live += (kept.forward.net + kept.input) * moment.in_flight[c];
            }
        const bool earlier = peak.moment != nullptr && live == peak.bytes && moment.pass < peak.moment->pass;
        if (live > peak.bytes || earlier) peak = {live, &moment};
    }
    return peak;
}

Holding holding_of(const Stage& chunk, DType message_type);
PeakMoment moment_of(const Skeleton& skeleton, std::size_t stage, const Flight& flight);

}  // namespace foretrain
