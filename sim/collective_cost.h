// What a collective or a message takes on idle links, in microseconds: the forms that
// hardware/calibration.h states, as free functions over plain constants.
//
// `bytes` is the whole array, as nccl-tests counts it: the buffer of an all-reduce, ranks times the
// shard of an all-gather or reduce-scatter. Where the library has several algorithms it takes the
// faster, and so does `collective_us`.
//
//   DomainConstants h100 = ...;                                              // eight ranks, 1 GiB
//   double us = domain_collective_us(InstructionKind::all_reduce, GiB, 8, h100);
//   double bus_gbps = GiB * 2.0 * 7 / 8 / us / 1e3;                          // about 470
#pragma once

#include <cstdint>

#include "hardware/cluster_spec.h"
#include "plan/program/program.h"
#include "sim/placement.h"

namespace foretrain {

// Inside a node.
double ring_us(InstructionKind kind, std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);
bool switch_reduces(std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);  // may NVLS serve?
double switch_all_reduce_us(std::int64_t bytes, std::int64_t ranks, const DomainConstants& domain);
double domain_collective_us(InstructionKind kind, std::int64_t bytes, std::int64_t ranks,
                            const DomainConstants& domain);
double domain_message_us(std::int64_t bytes, const DomainConstants& domain);

// Across nodes. The last takes one rank's line rate in GB/s.
double network_all_reduce_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                             const NetworkConstants& network);
double network_ring_us(std::int64_t bytes, const GroupPlacement& group, const DomainConstants& domain,
                       const NetworkConstants& network);
double network_message_us(std::int64_t bytes, double line_gbps, const NetworkConstants& network);

// Whichever of the above serves the group; 0 for a group of one or for no bytes.
double collective_us(InstructionKind kind, std::int64_t bytes, const GroupPlacement& group,
                     const DomainConstants& domain, const NetworkConstants& network);

}  // namespace foretrain
