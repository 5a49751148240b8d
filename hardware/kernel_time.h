// What a kernel takes on an idle device, in microseconds: the forms whose constants
// hardware/calibration.h holds, over plain numbers. Predictions call them, and so does the
// calibration that fits the constants. One set of forms serves GPUs and a CPU.
//
// A Processor is a device reduced to what a kernel sees of it. With one multiprocessor and tiles
// {{1, 1}} the GEMM form is a roofline with an overhead for each element of the result, which is how
// a CPU is described.
//
//   GemmConstants c = ...;                                         // of an A100
//   Processor a100{.flops = 312e6, .bandwidth = 2039e3, .multiprocessors = 108};
//   double us = gemm_us({.m = 4096, .n = 4096, .k = 4096}, prepare(c, a100));  // about 540
#pragma once

#include <cstdint>
#include <vector>

#include "hardware/calibration.h"

namespace foretrain {

// Rates a microsecond, so that a quotient is a time in microseconds.
struct Processor {
    double flops = 0;                  // peak P, FLOP/us
    double bandwidth = 0;              // bw of memory, bytes/us
    std::int64_t multiprocessors = 1;  // S
};

// C (m, n) = A (m, k) B (k, n) [+ C].
struct GemmShape {
    std::int64_t m = 0, n = 0, k = 0;
    double input_bytes = 2;         // of an element of A and B, as the product reads them
    std::int64_t output_bytes = 2;  // of an element of C
    bool accumulate = false;        // C is read as well
    std::int64_t stored_bytes = 2;  // of an element of A and B before they are quantised, if they are
    std::int64_t groups = 1;        // as many such products, whose tiles fill the waves together
};

// GemmConstants with everything that does not depend on the shape worked out.
struct PreparedGemm {
    struct Tile {
        std::int64_t rows = 1, columns = 1;
        double us_per_k = 0;  // of one tile on one multiprocessor
    };
    std::vector<Tile> tiles;
    std::vector<int> splits;
    std::int64_t multiprocessors = 1;
    double per_multiprocessor = 1;  // 1 / multiprocessors
    double us_per_byte = 0;         // 1 / bandwidth
    double tile_overhead = 0, wave_quantisation = 0, p = 1, split_cost = 0, epilogue = 0, launch = 0;
    double quantisation = 0;
    double slower = 1;  // 1 + sustained
    double throttle = 0;
};
PreparedGemm prepare(const GemmConstants& constants, const Processor& processor);

// With tiles of tm x tn and a split s of k:
//   x    = ceil(m/tm) ceil(n/tn) s / S;   waves = x <= 1 ? 1 : x + wave_quantisation (ceil(x) - x)
//   I    = tm tn / (tm + tn)
//   tile = 2 tm tn (k/s) / (P/S * efficiency * I/(I + intensity)) + tile_overhead
//   Tc   = min over tiles and splits of waves * tile + [s>1] split_cost * 8 s m n / bw
//   Tm   = (operand bytes) / (0.9 bw)
//   T    = (Tc^p + Tm^p)^(1/p) + epilogue * (output bytes)/bw + launch + quantisation * m k/bw;
//          times (1 + sustained)
// An output that is added to counts above as one of the type that inputs are stored in, as the tables hold it, and pays
// half of what it moves beyond that at 0.85 bw: 0.5 (4 + 4 - 2) m n for bf16 products in fp32 sums.
double gemm_us(const GemmShape& shape, const PreparedGemm& gemm);

// The same in a benchmark that repeats one call: clocks fall the more the longer a call lasts, in place of
// the `sustained` share: T (1 + throttle (1 - exp(-T / 4 ms))). Tables of measured products are of this kind.
double gemm_burst_us(const GemmShape& shape, const PreparedGemm& gemm);

// Causal flash attention over `batch` sequences with `heads` query heads on this rank; with a `window`
// a query sees no more keys than that.
struct AttentionShape {
    std::int64_t batch = 0, sequence = 0, heads = 0, head_dim = 0;
    bool backward = false;
    std::int64_t window = 0;  // 0: none
    std::int64_t keys = 0;    // that each query sees, without a mask; 0: those of its sequence up to itself
};

// F = 4 b h s^2 d FLOPs forward, 2.5 F backward; the mask leaves kv = (s + 128)/2 keys of s:
//   work = F kv/s / (P e);  longest = F/(b h) * 128/s / (P/S e)
//   (kv and 128 at most s, for sequences shorter than a block of 128 queries; a window w leaves
//   kv = w - w^2/2s + 64, and w keys in place of s for the longest; without a mask kv is all keys, also for
//   the longest)
//   T = (work^p + longest^p)^(1/p) + tile_overhead max(tiles/S, 1) + launch
double attention_us(const AttentionShape& shape, const AttentionPass& pass, const Processor& processor);

// T = launch + bytes / (efficiency * bw)
double memory_bound_us(std::int64_t bytes, double launch_us, double efficiency, const Processor& processor);

// (a^p + b^p)^(1/p) for a, b >= 0: near the larger where they differ, above both where they are alike.
double p_norm(double a, double b, double p);

}  // namespace foretrain
