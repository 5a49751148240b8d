#include "sim/batch_advice.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace foretrain {

namespace {

// Never zero.
std::int64_t nearest_multiple(std::int64_t x, std::int64_t of) {
    const std::int64_t below = x / of * of;
    return below == 0 || x - below > of / 2 ? below + of : below;
}

// Further away it is another training.
bool is_near(std::int64_t batch, std::int64_t other) { return std::abs(other - batch) <= batch / 8; }

}  // namespace

std::int64_t batch_near(std::int64_t batch, const std::set<std::int64_t>& data_ranks) {
    for (auto ranks = data_ranks.rbegin(); ranks != data_ranks.rend(); ++ranks)
        if (const std::int64_t multiple = nearest_multiple(batch, *ranks); is_near(batch, multiple)) return multiple;
    return nearest_multiple(batch, *data_ranks.begin());
}

LeftOutByBatch left_out_by_batch(std::int64_t batch, const std::map<std::int64_t, std::int64_t>& combinations) {
    const auto allowed = [&](std::int64_t b) {
        std::int64_t sum = 0;
        for (const auto& [ranks, count] : combinations) sum += b % ranks == 0 ? count : 0;
        return sum;
    };
    LeftOutByBatch out;
    for (const auto& [ranks, count] : combinations) out.of += count;
    out.combinations = out.of - allowed(batch);
    if (out.combinations == 0) return out;
    std::int64_t common = 1;  // what each divides: it divides the devices, so it cannot overflow
    std::set<std::int64_t> multiples;
    for (const auto& [ranks, count] : combinations) {
        common = std::lcm(common, ranks);
        multiples.insert({nearest_multiple(batch, ranks), nearest_multiple(batch, common)});
    }
    out.batch = batch;
    for (const std::int64_t b : multiples) {
        if (!is_near(batch, b) || allowed(b) < allowed(out.batch)) continue;
        if (allowed(b) > allowed(out.batch) || std::abs(b - batch) < std::abs(out.batch - batch)) out.batch = b;
    }
    if (out.batch == batch) out.batch = nearest_multiple(batch, common);
    out.then_left_out = out.of - allowed(out.batch);
    return out;
}

}  // namespace foretrain
