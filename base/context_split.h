// Which tokens of a sequence a context-parallel rank holds.
//
// A sequence is cut into 2c equal chunks; rank r of c holds chunks r and 2c-1-r, in that order. Under the
// causal mask an early chunk sees few keys and a late one many, so each such pair sees equally many: every
// rank has the same work. One rank holds the sequence as it is.
//
//   position_in_sequence(0, 12, 2, 1) == 3      // rank 1 of 2 holds 3 4 5 6 7 8,
//   position_in_sequence(3, 12, 2, 0) == 9      // rank 0 holds 0 1 2 9 10 11
#pragma once

#include <cstdint>

namespace foretrain {

// Position in the whole sequence of a rank's token number `local` of it. `sequence` divides by 2 ranks
// where there are several.
constexpr std::int64_t position_in_sequence(std::int64_t local, std::int64_t sequence, std::int64_t ranks,
                                            std::int64_t rank) {
    if (ranks == 1) return local;
    const std::int64_t chunk = sequence / (2 * ranks);
    return local < chunk ? rank * chunk + local : (2 * ranks - 1 - rank) * chunk + (local - chunk);
}

}  // namespace foretrain
