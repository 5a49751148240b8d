#include "sim/flight.h"

#include <algorithm>

namespace foretrain {

namespace {

bool covers(const Flight::Moment& a, const Flight::Moment& b) {
    return a.backward == b.backward && a.chunk == b.chunk &&
           std::equal(a.in_flight.begin(), a.in_flight.end(), b.in_flight.begin(), std::greater_equal<>());
}

void add(Flight& flight, Flight::Moment moment) {
    for (const Flight::Moment& known : flight.moments)
        if (covers(known, moment)) return;
    std::erase_if(flight.moments, [&](const Flight::Moment& known) { return covers(moment, known); });
    flight.moments.push_back(std::move(moment));
}

}  // namespace

Flight flight_of(const std::vector<Pass>& order, std::size_t chunks) {
    Flight out;
    out.most.assign(chunks, 0);
    std::vector<std::int64_t> now(chunks, 0);
    for (std::size_t n = 0; n < order.size(); ++n) {
        const Pass& pass = order[n];
        const auto c = static_cast<std::size_t>(pass.chunk);
        add(out, {pass.backward, c, now, n, pass.microbatch});
        now[c] += pass.backward ? -1 : 1;
        out.most[c] = std::max(out.most[c], now[c]);
    }
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
                .most = {most}};
    }
    return flight_of(schedule_order(schedule, stages, stage, n, chunks), static_cast<std::size_t>(chunks));
}

}  // namespace foretrain
