// What nccl-tests printed: bus bandwidth of one collective over sizes.
//
//   NcclTest t = read_nccl_test(text, "all_reduce.txt");
//   t.collective == "all_reduce";  t.ranks == 16;  t.nodes == 2
//   t.plateau_gbps()                                        // where it no longer rises
//   set_measured(cluster, t);                               // hardware/measured.h: the links reach what was measured
//
// The collective is named by the tests since 2.13 ("Collective test starting: all_reduce_perf"), else by the file
// ("all_reduce_perf.log"). Errors: UserError with the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cluster_spec.h"

namespace foretrain {

struct NcclTest {
    struct Size {
        std::int64_t bytes = 0;
        double bus_gbps = 0;  // out of place
    };
    std::string collective;  // "all_reduce", "all_gather", "reduce_scatter", "sendrecv", ...
    int ranks = 0;
    int nodes = 0;            // 0: the output does not say
    std::vector<Size> sizes;  // ascending; not empty

    // The highest at a quarter of the largest size or more: there the latency is over.
    double plateau_gbps() const;
};

NcclTest read_nccl_test(std::string_view text, const std::string& origin);

// An all-reduce on one node tells of its switches or of its ring, all-gather and reduce-scatter of the ring, sendrecv
// of messages; an all-reduce across nodes of the network. UserError for others, and where the cluster's nodes are not
// those of the test.
void set_measured(ClusterSpec& cluster, const NcclTest& test, const std::string& source);

}  // namespace foretrain
