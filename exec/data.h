// Synthetic training data that can be learnt: in every sample each token determines the next, by
// one rule for all samples, except that a tenth of the tokens are random.
//
// A token depends on (seed, sample, position) only; so every plan that reads the same samples in a
// step reads the same data, whoever reads which. Step t reads samples t*global_batch ... of which
// microbatch k on data rank r of d takes (k*d + r)*micro_batch + j.
//
//   SyntheticData data(seed, vocabulary, sequence_length);
//   data.tokens(sample, out);      // sequence_length of them
//   data.targets(sample, out);     // the same, one further
#pragma once

#include <cstdint>
#include <span>

#include "base/counter_random.h"
#include "plan/program/program.h"

namespace foretrain {

class SyntheticData {
public:
    SyntheticData(std::uint64_t seed, std::int64_t vocabulary, std::int64_t sequence_length);

    void tokens(std::int64_t sample, std::span<std::int32_t> out) const { write(sample, 0, out); }
    void targets(std::int64_t sample, std::span<std::int32_t> out) const { write(sample, 1, out); }

private:
    void write(std::int64_t sample, std::int64_t first, std::span<std::int32_t> out) const;

    std::uint64_t seed_;
    std::int64_t symbols_;
    std::int64_t sequence_length_;
};

// First sample of a microbatch: it reads micro_batch_size in a row.
std::int64_t first_sample(const Program& program, std::int64_t step, std::int64_t microbatch, std::int64_t data_rank);

}  // namespace foretrain
