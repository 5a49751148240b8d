#include "exec/data.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

// Few symbols, so that a small model sees each often enough within a few steps.
constexpr std::int64_t most_symbols = 64;
constexpr double noise = 0.1;

}  // namespace

SyntheticData::SyntheticData(std::uint64_t seed, std::int64_t vocabulary, std::int64_t sequence_length)
    : seed_(seed), symbols_(std::min(vocabulary, most_symbols)), sequence_length_(sequence_length) {
    FORETRAIN_CHECK(symbols_ > 0, "a vocabulary without symbols");
}

void SyntheticData::write(std::int64_t sample, std::int64_t first, std::span<std::int32_t> out) const {
    FORETRAIN_CHECK(static_cast<std::int64_t>(out.size()) == sequence_length_, "room for other than one sample");
    const CounterRandom random = CounterRandom::keyed(seed_, static_cast<std::uint64_t>(sample));
    std::int64_t token = 0;
    // Position p draws twice: whether it is random, and what it is then. The first always is.
    for (std::int64_t p = 0; p < first + sequence_length_; ++p) {
        const auto draw = 2 * static_cast<std::uint64_t>(p);
        const bool random_token = p == 0 || random.uniform(draw) < noise;
        token = random_token ? random.below(draw + 1, symbols_) : (5 * token + 3) % symbols_;
        if (p >= first) out[static_cast<std::size_t>(p - first)] = static_cast<std::int32_t>(token);
    }
}

std::int64_t first_sample(const Program& program, std::int64_t step, std::int64_t microbatch, std::int64_t data_rank) {
    const std::int64_t data_ranks = program.grid.data;
    const std::int64_t global_batch = program.microbatches * data_ranks * program.micro_batch_size;
    return step * global_batch + (microbatch * data_ranks + data_rank) * program.micro_batch_size;
}

}  // namespace foretrain
