// Devices and clusters with the published constants, made by hand so that the numbers the tests
// compute from stand beside them.
#pragma once

#include "hardware/cluster_spec.h"

namespace foretrain::support {

ClusterSpec a100_cluster(std::int64_t nodes);  // 8 GPUs, 8 x 200 Gb/s a node
ClusterSpec h100_cluster(std::int64_t nodes);  // 8 GPUs, 8 x 400 Gb/s a node

// Round numbers: 1 TFLOP/s, 1 GB/s of memory, kernels and links without latency, 1 GB/s in the node
// (8 devices) and 1 GB/s for each of its 8 NICs.
ClusterSpec round_cluster(std::int64_t nodes);

ClusterSpec without_sustained(ClusterSpec cluster);  // short benchmarks, as the GEMM tables hold them

}  // namespace foretrain::support
