// What a collective or a message takes on idle links, in microseconds: the forms whose constants
// hardware/calibration.h holds, over plain numbers. Predictions call them, and so does the
// calibration that fits the constants.
//
// `bytes` is the whole array, as nccl-tests counts it: the buffer of an all-reduce or all-to-all, ranks
// times the shard of an all-gather or reduce-scatter. Where the library has several algorithms it takes the
// faster, and so does `collective_us`.
//
//   DomainConstants h100 = ...;                                         // eight ranks, 1 GiB
//   double us = domain_collective_us(Collective::all_reduce, GiB, 8, h100);
//   double bus_gbps = GiB * 2.0 * 7 / 8 / us / 1e3;                     // about 470
#pragma once

#include <cstdint>

#include "hardware/calibration.h"

namespace foretrain {

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all };

// Where the members of a group stand.
struct GroupPlacement {
    std::int64_t ranks = 1;
    std::int64_t nodes = 1;
    std::int64_t per_node = 1;  // on its fullest node
    double line_gbps = 0;       // what it may use per node and direction; 0 inside a node
    bool operator==(const GroupPlacement&) const = default;
};

// Inside a node, of S bytes over n >= 1 ranks. A ring takes 2(n-1) steps for an all-reduce and n-1 for
// the others, each of a chunk c = S/n:
//   x = steps c / ring;  t = a + s steps + x + d c/ring + sqrt(x T)
//   from c >= simple_from: t = (t^4 + (a + simple_s steps)^4)^(1/4)
double ring_us(Collective kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);

// Switch reduction (NVLS) serves an all-reduce of at least 1 MiB over at least nvls_ranks:
//   x = S (1 + 1/n) / nvls;  t = nvls_a + x + sqrt(x nvls_T)
bool switch_reduces(std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);
double switch_all_reduce_us(std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);

double domain_collective_us(Collective kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);

// Point to point: x = S / pairwise;  t = pairwise_a + pairwise_p min(1, S/64 KiB) + x + sqrt(x pairwise_T)
double domain_message_us(std::int64_t bytes, const DomainConstants& domain);

// All-to-all of parts c = S/n, each rank's to every other in turn: x = c (n-1) / pairwise;
//   t = pairwise_a + pairwise_s lg n + pairwise_p min(1, c/64 KiB) + x + pairwise_d c/pairwise + sqrt(x pairwise_T)
double domain_all_to_all_us(std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);

// Across N nodes with g ranks on each, n in all. The tree of an all-reduce:
//   t = 6.8 + 2((g-1) 0.6 + lg N hop) + x + lg N (l1 S/(S + 0.3 MiB) + k S/(S + 7.5 MiB)) + sqrt(x T)
//   x = 2 (n-1)/n S / (efficiency * line, or two_node_tree where that is more; at most what the domain carries)
double network_all_reduce_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                             const NetworkConstants& network);

// The ring of an all-gather or reduce-scatter, x = (n-1)/n S / (as above):
//   t = 6.8 + (n-1 - (N-1)) 3.4 + (N-1) 17 + x
//   or, for chunks below 16 KiB and where it is faster, 6.8 + (n-1 - (N-1)) 0.85 + (N-1) 5 + 4 x
double network_ring_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                       const NetworkConstants& network);

// In all three, times without a bandwidth are taken latency_scale times.
// p2p + S / (p2p_efficiency * line), with one rank's line rate in GB/s.
double network_message_us(std::int64_t bytes, double line_gbps, const NetworkConstants& network);

// An all-to-all across nodes: x = S (n-g)/n / (0.9 line/g), what a rank sends to others' nodes;
//   t = 20 + 0.6 (n-1) + max(S (g-1)/n / pairwise, x) + sqrt(35 x)
// Set by hand to the band of a simulator's tables (github:aliyun/SimAI) and one slide's peak; no curve is known.
double network_all_to_all_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain);

// Every rank sends `bytes` to the next one around the group, all at once; where the group spans nodes, one of
// each node over a line of its own of `rank_line_gbps`. 0 for a group of one.
double ring_shift_us(std::int64_t bytes, const GroupPlacement& group, double rank_line_gbps,
                     const DomainConstants& domain, const NetworkConstants& network);

// Whichever of the above collectives serves the group; 0 for a group of one or for no bytes.
double collective_us(Collective kind, std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                     const NetworkConstants& network);

}  // namespace foretrain
