// What of a layer's experts stands on one rank, and how many rows of tokens come to it.
//
// A rank sends each expert `capacity` rows of its own: with a capacity factor what it may send at most, padded or
// not; without one (dropless) the mean, times the imbalance of the busiest rank. So every rank of the exchange
// sends and receives as much, and an expert gets capacity rows from each of them.
//
//   ExpertShare s = expert_share(mixtral, {.expert = 8}, 4096, 1);   // 8 experts, 2 a token
//   s.local == 1;  s.capacity == 1024;  s.sent() == 8192;  s.of_expert() == 8192
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace foretrain {

struct ExpertShare {
    std::int64_t experts = 0;   // of a layer
    std::int64_t local = 0;     // on this rank
    std::int64_t capacity = 0;  // rows from one rank to one expert
    std::int64_t ranks = 1;     // of Axis::expert
    std::int64_t tensor = 1;    // of Axis::expert_tensor
    std::int64_t ffn = 0;       // width of an expert, on this rank

    std::int64_t sent() const { return capacity * experts; }              // rows that go out, and come in
    std::int64_t of_expert() const { return capacity * ranks * tensor; }  // rows of a local expert
    std::int64_t gathered() const { return of_expert() * local; }         // of all of them
};

// `rows` of tokens on this rank.
ExpertShare expert_share(const ModelSpec& model, const Parallelism& parallelism, std::int64_t rows, double imbalance);

}  // namespace foretrain
