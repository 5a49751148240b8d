// What was measured of a device and of its links: constants with their birth certificates. The forms
// that make times of them are in hardware/kernel_time.h and hardware/collective_time.h; one set of
// forms serves GPUs and this machine's CPU, and only the constants differ.
//
// Times are microseconds and bandwidths GB/s here, as the constants' sources give them; the simulator
// turns predictions into integer picoseconds once.
//
// Every part says how far it can be trusted: `spread` is the relative half-width of an interval that
// holds the true time in four cases of five (0: not stated), and a part that was measured on another
// device says so in its certificate ("carried over from ...", hardware/calibration_file.h).
//
//   Calibration c = read_cluster("dgx-h100").device.calibration;   // hardware/cluster_file.h
//   c.gemm_for(DType::bf16)->efficiency                            // of peak
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"

namespace foretrain {

// Where a figure comes from: enough to measure it again.
struct BirthCertificate {
    std::string source;  // document or command
    std::string device;  // on which it was measured
    std::string date;
    bool operator==(const BirthCertificate&) const = default;
};

// gemm_us
struct GemmConstants {
    DType dtype = DType::bf16;
    double efficiency = 1;  // of peak
    double intensity = 0;   // rows columns / (rows + columns) at which a tile reaches half of that
    double tile_overhead_us = 0;
    double wave_quantisation = 0;  // share of a full wave that the rest of the last one costs: 0 to 1
    double p = 4;                  // of the norm that joins computing and memory
    double launch_us = 0;
    double sustained = 0;     // slower in training than in a call of a few microseconds, by this share
    double throttle = 0;      // the same of a benchmark of calls that last milliseconds: gemm_burst_us
    double split_cost = 1;    // of the traffic of partial sums, where k is split
    double epilogue = 0;      // of the time to write the output
    double quantisation = 0;  // times m k / bandwidth: inputs that are quantised on the way in
    std::vector<std::pair<int, int>> tiles{{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
    std::vector<int> splits{1, 2, 4, 8};
    double spread = 0;
    BirthCertificate born;
    bool operator==(const GemmConstants&) const = default;
};

// attention_us
struct AttentionPass {
    std::vector<std::pair<int, double>> efficiency;  // by head_dim; the nearest at least as large serves
    double tile_overhead_us = 0;
    double p = 1;  // of the norm that joins all work and the longest tile
    double launch_us = 3;
    bool operator==(const AttentionPass&) const = default;
};
struct AttentionConstants {
    std::string kernel;  // "flash2", "flash3", "cpu", ...
    AttentionPass forward;
    AttentionPass backward;
    double spread = 0;
    BirthCertificate born;
    bool operator==(const AttentionConstants&) const = default;
};

// memory_bound_us, for all other kernels
struct MemoryBoundConstants {
    double launch_us = 3;
    double efficiency = 0.8;
    // Kernel kinds that differ, by name of kind (base/kernel_kind.h); on a CPU most do.
    struct Override {
        std::string kind;
        double launch_us = 3;
        double efficiency = 0.8;
        bool operator==(const Override&) const = default;
    };
    std::vector<Override> overrides;
    double spread = 0;
    BirthCertificate born;
    bool operator==(const MemoryBoundConstants&) const = default;
};

// Collectives inside one fast domain (NVLink, or threads of one process): domain_collective_us, domain_message_us,
// domain_all_to_all_us
struct DomainConstants {
    // Groups of different sizes may have different links: the entry with the fewest ranks that hold the
    // group counts, else the figure of the whole domain.
    double ring_gbps = 0;
    std::vector<std::pair<int, double>> ring_gbps_by_ranks;  // ascending; may be empty
    double a_us = 0;                                         // of a call
    double s_us = 0;                                         // of a step
    double d = 0;                                            // of a chunk, once a call
    double ramp_us = 0;                                      // T
    double simple_s_us = 0;                                  // of a step of the Simple protocol
    Bytes simple_from{1 << 20};                              // chunk from which it serves
    int nvls_ranks = 0;                                      // fewest that the switch reduces for; 0: none
    double nvls_gbps = 0;
    double nvls_wide_gbps = 0;  // of more than eight ranks; 0: the same
    double nvls_a_us = 0;
    double nvls_ramp_us = 0;
    double pairwise_gbps = 0;
    double pairwise_a_us = 0;
    double pairwise_p_us = 0;  // of set-up, paid in full from 64 KiB
    double pairwise_ramp_us = 0;
    double pairwise_s_us = 0;  // of an all-to-all, for each doubling of the ranks
    double pairwise_d = 0;     // of one of its parts, once a call
    std::string link;          // what it is made of: "nvlink3", "threads"; may be empty
    double spread = 0;
    BirthCertificate born;
    bool operator==(const DomainConstants&) const = default;

    double ring_of(std::int64_t ranks) const {
        for (const auto& [up_to, gbps] : ring_gbps_by_ranks)
            if (ranks <= up_to) return gbps;
        return ring_gbps;
    }
    double nvls_of(std::int64_t ranks) const { return ranks > 8 && nvls_wide_gbps > 0 ? nvls_wide_gbps : nvls_gbps; }
};

// Collectives across nodes, see recipes named in `born`: network_all_reduce_us,
// network_ring_us, network_message_us
struct NetworkConstants {
    double efficiency = 0.92;  // of line rate
    double hop_us = 5;
    double l1_us = 50;              // for each doubling of the nodes, beyond about 0.3 MiB
    double k_us = 39;               // the same, beyond about 7.5 MiB
    double ramp_us = 1.8;           // T
    double two_node_tree_gbps = 0;  // cap of the two-node tree's better-than-line all-reduce; 0: none
    double p2p_us = 12;
    double p2p_efficiency = 0.94;
    double latency_scale = 1;  // of all times that do not depend on a bandwidth
    double spread = 0;
    BirthCertificate born;
    bool operator==(const NetworkConstants&) const = default;
};

struct Calibration {
    std::vector<GemmConstants> gemm;
    AttentionConstants attention;
    MemoryBoundConstants memory_bound;
    bool operator==(const Calibration&) const = default;

    // The constants for inputs of this type; nullptr where the device was not measured with it.
    const GemmConstants* gemm_for(DType dtype) const {
        for (const GemmConstants& g : gemm)
            if (g.dtype == dtype) return &g;
        return nullptr;
    }
    // Or those that serve for them: the half-precision types run on the same units at the same speed, and are measured
    // as one (Azure's fp16 GEMMs on A100 agree with constants fitted to bf16 tables).
    const GemmConstants* gemm_serving(DType dtype) const {
        const GemmConstants* own = gemm_for(dtype);
        return own != nullptr ? own : gemm_for(other_half(dtype));
    }
};

}  // namespace foretrain
