// What was measured of a device: the constants of the cost functions in sim/, with their birth
// certificates. One set of forms serves GPUs and this machine's CPU; only the constants differ.
//
// Times are microseconds and bandwidths GB/s here, as the constants' sources give them; the cost
// functions turn them into integer picoseconds once.
//
//   GEMM (one tile shape tm x tn, split s of k; S = multiprocessors, P = peak, bw = memory):
//     x    = ceil(m/tm) ceil(n/tn) s / S;   waves = x <= 1 ? 1 : x + wave_quantisation (ceil(x) - x)
//     I    = tm tn / (tm + tn)
//     tile = 2 tm tn (k/s) / (P/S * efficiency * I/(I + intensity)) + tile_overhead
//     Tc   = min over tiles and splits of waves * tile + [s>1] split_cost * 8 s m n / bw
//     Tm   = (operand bytes) / (0.9 bw)
//     T    = (Tc^p + Tm^p)^(1/p) + epilogue * (output bytes)/bw + launch;  times (1 + sustained)
//   An output that is added to counts above as one of the input's type, as the tables hold it, and pays
//   half of what it moves beyond that at 0.85 bw: 0.5 (4 + 4 - 2) m n for bf16 products in fp32 sums.
//
// Every part says how far it can be trusted: `spread` is the relative half-width of an interval that
// holds the true time in four cases of five (0: not stated), and a part that was measured on another
// device says so in its certificate ("carried over from ...", hardware/calibration_file.h).
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

struct GemmConstants {
    DType dtype = DType::bf16;
    double efficiency = 1;  // e, of peak
    double intensity = 0;   // I0, elements
    double tile_overhead_us = 0;
    double wave_quantisation = 0;
    double p = 4;
    double launch_us = 0;
    double sustained = 0;  // theta: slower in training than in a short benchmark
    double split_cost = 1;
    double epilogue = 0;
    std::vector<std::pair<int, int>> tiles{{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
    std::vector<int> splits{1, 2, 4, 8};
    double spread = 0;
    BirthCertificate born;
    bool operator==(const GemmConstants&) const = default;
};

// Flash attention: F = 4 b h s^2 d FLOPs forward, 2.5 F backward, half of it causal.
//   work = F kv/s / (P e);  longest = F/(b h) * 128/s / (P/S e);  kv = (s + 128)/2 if causal
//   (both at most s, for sequences shorter than a block of 128 queries)
//   T = (work^p + longest^p)^(1/p) + tile_overhead max(tiles/S, 1) + launch
struct AttentionPass {
    std::vector<std::pair<int, double>> efficiency;  // by head_dim; the nearest at least as large serves
    double tile_overhead_us = 0;
    double p = 1;
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

// Memory-bound kernels: T = launch + bytes / (efficiency * memory bandwidth).
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

// Collectives inside one fast domain (NVLink, or threads of one process). S = nccl-tests size,
// c = S/n, steps = 2(n-1) for all-reduce, n-1 for all-gather and reduce-scatter:
//   x = steps c / ring;  t = a + s steps + x + d c/ring + sqrt(x T)
//   from c >= simple_from: t = (t^4 + (a + s_simple steps)^4)^(1/4)
//   switch reduction (NVLS), all-reduce of >= 1 MiB and n >= nvls_ranks:
//     x = S (1 + 1/n) / nvls;  t = nvls_a + x + sqrt(x nvls_T)
//   ring and nvls depend on n where groups of different sizes have different links: the entry of
//   ring_gbps_by_ranks with the fewest ranks >= n counts (else ring_gbps), and nvls_wide beyond 8 ranks
//   point to point: a2 + p2 min(1, S/64 KiB) + x + sqrt(x T2),  x = S / pairwise
struct DomainConstants {
    double ring_gbps = 0;                                    // of the whole domain
    std::vector<std::pair<int, double>> ring_gbps_by_ranks;  // of smaller groups, ascending; may be empty
    double a_us = 0;
    double s_us = 0;
    double d = 0;
    double ramp_us = 0;  // T
    double simple_s_us = 0;
    Bytes simple_from{1 << 20};
    int nvls_ranks = 0;  // 0: none
    double nvls_gbps = 0;
    double nvls_wide_gbps = 0;  // of more than eight ranks; 0: the same
    double nvls_a_us = 0;
    double nvls_ramp_us = 0;
    double pairwise_gbps = 0;
    double pairwise_a_us = 0;
    double pairwise_p_us = 0;
    double pairwise_ramp_us = 0;
    std::string link;  // what it is made of: "nvlink3", "threads"; may be empty
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

// Collectives across nodes, see recipes named in `born`:
//   all-reduce: 6.8 + 2((g-1) 0.6 + lg N * hop) + x + lg N (l1 S/(S + 0.3 MiB) + k S/(S + 7.5 MiB)) + sqrt(x T)
//   ring:       6.8 + (steps - N + 1) 3.4 + (N-1) 17 + x
//   point to point: p2p_us + S / (0.94 w)
struct NetworkConstants {
    double efficiency = 0.92;  // of line rate
    double hop_us = 5;
    double l1_us = 50;
    double k_us = 39;
    double ramp_us = 1.8;
    double two_node_tree_gbps = 0;  // cap of the two-node tree's better-than-line all-reduce; 0: none
    double p2p_us = 12;
    double p2p_efficiency = 0.94;
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
};

}  // namespace foretrain
