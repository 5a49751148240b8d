// The moment at which most of a stage's memory lives, in the order in which the host issues: how much
// lives in it, and in which pass, section and microbatch it comes. In closed form, from what one pass of each
// chunk holds and from how many passes are in flight (sim/flight.h).
//
//   std::vector<Holding> holdings = holdings_of(skeleton, stage);
//   LivePeak peak = live_peak(flight, holdings.size(), [&](std::size_t c) -> const Holding& { return holdings[c]; });
//   text(moment_of(skeleton, stage, holdings, peak))    // "backward pass of microbatch 0, in layer7.mlp; 4 in flight"
#pragma once

#include <cstddef>
#include <vector>

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

// Of a chunk of this shape, the passes of which hold that.
inline Holding holding_of(const StageShape& shape, Bytes message, const Life& forward, const Life& backward) {
    return {.input = shape.first ? Bytes{} : message,
            .output = shape.last ? Bytes{} : message,
            .forward = forward,
            .backward = backward};
}
// Of the stage's chunks.
std::vector<Holding> holdings_of(const Skeleton& skeleton, std::size_t stage);
PeakMoment moment_of(const Skeleton& skeleton, std::size_t stage, const std::vector<Holding>& holdings,
                     const LivePeak& peak);

}  // namespace foretrain
