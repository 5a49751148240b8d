#include "hardware/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/units.h"

namespace foretrain {

namespace {

// What of the memory bandwidth a GEMM's operands reach, and what the output that it adds to does.
// Fitted with the other GEMM constants to the GEMM tables of NVIDIA's aiconfigurator.
constexpr double operand_efficiency = 0.9;
constexpr double accumulate_efficiency = 0.85;
constexpr double accumulate_exposed = 0.5;  // the other half hides behind the tiles still computing

constexpr double throttle_us = 4000;  // gemm_burst_us, of the same fit

// Rows of queries that one block of a flash attention kernel works on.
constexpr std::int64_t query_block = 128;

// Busy time of the multiprocessors, tile by tile: the fastest of the library's tile shapes and splits
// of k. A last wave that is not full costs as a full one by the share `wave_quantisation`.
double compute_us(const GemmShape& s, const PreparedGemm& g) {
    const double elements = static_cast<double>(s.groups) * static_cast<double>(s.m) * static_cast<double>(s.n);
    const double split_us = g.split_cost * 8 * elements * g.us_per_byte;
    double best = std::numeric_limits<double>::infinity();
    for (const PreparedGemm::Tile& t : g.tiles) {
        const std::int64_t tiles = s.groups * ceil_div(s.m, t.rows) * ceil_div(s.n, t.columns);
        const double whole = t.us_per_k * static_cast<double>(s.k);
        for (const int split : g.splits) {
            const std::int64_t work = tiles * split;
            const double x = static_cast<double>(work) * g.per_multiprocessor;
            const double full = static_cast<double>(ceil_div(work, g.multiprocessors));
            const double waves = work <= g.multiprocessors ? 1 : x + g.wave_quantisation * (full - x);
            const double us = waves * (whole / split + g.tile_overhead) + (split > 1 ? split * split_us : 0);
            best = std::min(best, us);
        }
    }
    return best;
}

}  // namespace

double p_norm(double a, double b, double p) {
    const double large = std::max(a, b), small = std::min(a, b);
    if (small <= 0 || p == 1) return large + small;
    // large (1 + (small/large)^p)^(1/p), which costs one power and one root and cannot overflow
    return large * std::exp(std::log1p(std::exp(p * std::log(small / large))) / p);
}

PreparedGemm prepare(const GemmConstants& c, const Processor& processor) {
    PreparedGemm g;
    const double flops = processor.flops / static_cast<double>(processor.multiprocessors);
    for (const auto& [rows, columns] : c.tiles) {
        const double area = static_cast<double>(rows) * columns;
        const double intensity = area / (rows + columns);
        const double rate = flops * c.efficiency * intensity / (intensity + c.intensity);
        g.tiles.push_back({rows, columns, 2 * area / rate});
    }
    g.splits = c.splits;
    g.multiprocessors = processor.multiprocessors;
    g.per_multiprocessor = 1 / static_cast<double>(processor.multiprocessors);
    g.us_per_byte = 1 / processor.bandwidth;
    g.tile_overhead = c.tile_overhead_us;
    g.wave_quantisation = c.wave_quantisation;
    g.p = c.p;
    g.split_cost = c.split_cost;
    g.epilogue = c.epilogue;
    g.launch = c.launch_us;
    g.quantisation = c.quantisation;
    g.slower = 1 + c.sustained;
    g.throttle = c.throttle;
    return g;
}

namespace {

double cold_gemm_us(const GemmShape& s, const PreparedGemm& g) {
    const double groups = static_cast<double>(s.groups);
    const double elements = groups * static_cast<double>(s.m) * static_cast<double>(s.n);
    const double inputs = groups * static_cast<double>(s.m + s.n) * static_cast<double>(s.k) * s.input_bytes;
    // The tables hold outputs of the type that inputs are stored in. One that is added to pays for what it moves beyond
    // that: 4 + 4 - 2 bytes an element when bf16 products go into fp32 sums.
    const double written = static_cast<double>(s.accumulate ? s.stored_bytes : s.output_bytes);
    const double beyond = s.accumulate ? 2 * static_cast<double>(s.output_bytes) - written : 0;

    const double compute = compute_us(s, g);
    const double memory = (inputs + written * elements) * g.us_per_byte / operand_efficiency;
    double us = p_norm(compute, memory, g.p) + g.epilogue * written * elements * g.us_per_byte + g.launch;
    us += g.quantisation * groups * static_cast<double>(s.m) * static_cast<double>(s.k) * g.us_per_byte;
    return us + accumulate_exposed * beyond * elements * g.us_per_byte / accumulate_efficiency;
}

}  // namespace

double gemm_us(const GemmShape& s, const PreparedGemm& g) { return cold_gemm_us(s, g) * g.slower; }

double gemm_burst_us(const GemmShape& s, const PreparedGemm& g) {
    const double us = cold_gemm_us(s, g);
    return us * (1 + g.throttle * (1 - std::exp(-us / throttle_us)));
}

double attention_us(const AttentionShape& a, const AttentionPass& pass, const Processor& processor) {
    double efficiency = 1;
    for (const auto& [head_dim, measured] : pass.efficiency) {
        efficiency = measured;
        if (head_dim >= a.head_dim) break;
    }
    const double s = static_cast<double>(a.sequence), d = static_cast<double>(a.head_dim);
    const bool windowed = a.window > 0 && a.window < a.sequence;
    const double seen = static_cast<double>(a.keys > 0 ? a.keys : windowed ? a.window : a.sequence);  // by the last
    const double streams = static_cast<double>(a.batch) * static_cast<double>(a.heads);
    const double multiprocessors = static_cast<double>(processor.multiprocessors);
    const double rate = processor.flops * efficiency;
    // Two products forward; backward five, the scores being computed again.
    const double products = a.backward ? 2.5 : 1;
    // Keys that an average query block sees under the causal mask, its own diagonal block in full: half
    // the sequence, or of a window w the w (1 - w / 2s) that its query sees.
    const double average = windowed ? seen * (1 - seen / (2 * s)) : s / 2;
    const double keys = a.keys > 0 ? seen : std::min(s, average + query_block / 2.0);
    const double queries = static_cast<double>(std::min(a.sequence, query_block));

    const double work = products * 4 * streams * s * keys * d / rate;
    // The last block of a sequence sees the most keys, and no other multiprocessor can help it.
    const double longest = products * 4 * queries * d * seen / (rate / multiprocessors);
    const double tiles = streams * static_cast<double>(ceil_div(a.sequence, query_block));
    return p_norm(work, longest, pass.p) + pass.tile_overhead_us * std::max(tiles / multiprocessors, 1.0) +
           pass.launch_us;
}

double memory_bound_us(std::int64_t bytes, double launch_us, double efficiency, const Processor& processor) {
    return launch_us + static_cast<double>(bytes) / (efficiency * processor.bandwidth);
}

}  // namespace foretrain
