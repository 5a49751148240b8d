#include "sim/flight.h"

#include <algorithm>
#include <iterator>

namespace foretrain {

namespace {

bool as_many(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

// The moments of one kind of pass of one chunk, none of them with as many or more in flight than another.
void add(std::vector<Flight::Moment>& known, const Pass& pass, std::size_t n, const std::vector<std::int64_t>& now) {
    for (const Flight::Moment& m : known)
        if (as_many(m.in_flight, now)) return;
    std::erase_if(known, [&](const Flight::Moment& m) { return as_many(now, m.in_flight); });
    known.push_back({pass.backward, static_cast<std::size_t>(pass.chunk), now, n, pass.microbatch});
}

}  // namespace

Flight flight_of(const std::vector<Pass>& order, std::size_t chunks) {
    Flight out;
    out.most.assign(chunks, 0);
    std::vector<std::vector<Flight::Moment>> moments(2 * chunks);
    std::vector<std::int64_t> now(chunks, 0);
    std::int64_t together = 0;
    for (std::size_t n = 0; n < order.size(); ++n) {
        const Pass& pass = order[n];
        const auto c = static_cast<std::size_t>(pass.chunk);
        add(moments[2 * c + (pass.backward ? 1 : 0)], pass, n, now);
        out.fullest = std::max(out.fullest, together);
        now[c] += pass.backward ? -1 : 1;
        together += pass.backward ? -1 : 1;
        out.most[c] = std::max(out.most[c], now[c]);
    }
    for (std::vector<Flight::Moment>& some : moments)
        std::move(some.begin(), some.end(), std::back_inserter(out.moments));
    return out;
}

Flight flight_of(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches,
                 std::int64_t chunks) {
    const std::int64_t n = enough_microbatches(schedule, stages, chunks, microbatches);
    if (chunks == 1) {  // all in flight are alike
        const std::int64_t most = schedule == Schedule::gpipe ? n : std::min(n, stages - stage);
        const auto fullest = static_cast<std::int32_t>(most - 1);
        return {.moments = {{false, 0, {most - 1}, static_cast<std::size_t>(most - 1), fullest},
                            {true, 0, {most}, static_cast<std::size_t>(most), 0}},
                .most = {most},
                .fullest = most};
    }
    return flight_of(schedule_order(schedule, stages, stage, n, chunks), static_cast<std::size_t>(chunks));
}

}  // namespace foretrain
