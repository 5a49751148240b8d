// From the table of measurements to the constants of hardware/calibration.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "exec/calibrate.h"
#include "exec/least_squares.h"

namespace foretrain {

namespace {

// The forms below are those of hardware/calibration.h for one multiprocessor, tiles {{1, 1}} and
// splits {1}: a roofline with an overhead for each element of the result.
constexpr double operand_efficiency = 0.9, accumulate_efficiency = 0.85, accumulate_exposed = 0.5;
constexpr std::int64_t query_block = 128;

struct Gemm {
    double elements = 0, flops = 0, bytes = 0, added = 0, us = 0;  // added: bytes of an output that is read too
};

struct GemmFit {
    GemmConstants constants;
    FlopRate peak;
};

double gemm_us(const Gemm& g, double peak, double bandwidth, const GemmConstants& c) {
    const double compute = g.flops / (peak * c.efficiency) + g.elements * c.tile_overhead_us;
    const double memory = g.bytes / (operand_efficiency * bandwidth);
    return std::pow(std::pow(compute, c.p) + std::pow(memory, c.p), 1 / c.p) + c.launch_us +
           accumulate_exposed * g.added / (accumulate_efficiency * bandwidth);
}

std::string quality(std::size_t count, const FitError& e) {
    return fmt::format("{} measurements, median error {:.1f} %, p90 {:.1f} %", count, 100 * e.median, 100 * e.p90);
}

BirthCertificate certificate(const Birthplace& b, const std::string& what) {
    return {.source = b.command + ": " + what, .device = b.cpu, .date = b.date};
}

// Rates here are a microsecond.
GemmFit fit_gemm(const Measurements& m, DType type, double bandwidth, const Birthplace& born) {
    std::vector<Gemm> table;
    std::vector<double> measured;
    double peak = 0;
    for (const KernelMeasurement& k : m.kernels) {
        const auto* a = std::get_if<GemmArgs>(&k.args);
        if (a == nullptr || a->type != type) continue;
        const auto size = static_cast<double>(size_of(type));
        Gemm g;
        g.elements = static_cast<double>(a->m * a->n);
        g.flops = 2 * g.elements * static_cast<double>(a->k);
        g.bytes = size * (static_cast<double>((a->m + a->n) * a->k) + g.elements);
        g.added = a->accumulate ? size * g.elements : 0;
        g.us = k.us;
        peak = std::max(peak, g.flops / g.us);
        table.push_back(g);
        measured.push_back(g.us);
    }
    GemmConstants c{.dtype = type, .efficiency = 1, .p = 4, .tiles = {{1, 1}}, .splits = {1}, .born = {}};
    const auto with = [&](const std::vector<double>& x) {  // logarithms keep them positive
        GemmConstants trial = c;
        trial.efficiency = std::exp(x[0]);
        trial.tile_overhead_us = std::exp(x[1]);
        trial.launch_us = std::exp(x[2]);
        return trial;
    };
    const auto badness = [&](const std::vector<double>& x) {
        double sum = 0;
        for (const Gemm& g : table) sum += std::pow(gemm_us(g, peak, bandwidth, with(x)) / g.us - 1, 2);
        return sum;
    };
    c = with(minimise(badness, {0, std::log(1e-4), std::log(1.0)}));
    std::vector<double> predicted;
    for (const Gemm& g : table) predicted.push_back(gemm_us(g, peak, bandwidth, c));
    c.born = certificate(born, quality(table.size(), error_of(predicted, measured)));
    return {c, FlopRate{peak * 1e6}};
}

// One launch time and one overhead of a tile for all head dimensions, one efficiency for each.
AttentionPass fit_attention(const Measurements& m, bool backward, const std::map<DType, FlopRate>& peak,
                            std::vector<double>& predicted, std::vector<double>& measured) {
    struct Row {
        std::int64_t head_dim;
        double tiles, at_peak, us;  // microseconds at peak, and measured
    };
    std::vector<Row> table;
    std::map<std::int64_t, std::size_t> column;  // by head_dim, after launch and tile
    const auto take = [&](const auto& a, double us) {
        const double products = backward ? 2.5 : 1;
        const auto keys = static_cast<double>(std::min(a.sequence, (a.sequence + query_block) / 2));
        const double flops = products * 4 * static_cast<double>(a.batch * a.heads * a.sequence * a.head_dim) * keys;
        const auto tiles = static_cast<double>(a.batch * a.heads * ceil_div(a.sequence, query_block));
        table.push_back({a.head_dim, tiles, flops / (peak.at(a.type).per_second * 1e-6), us});
        column.emplace(a.head_dim, 0);
    };
    for (const KernelMeasurement& k : m.kernels) {
        if (const auto* f = std::get_if<AttentionForwardArgs>(&k.args); f != nullptr && !backward) take(*f, k.us);
        if (const auto* b = std::get_if<AttentionBackwardArgs>(&k.args); b != nullptr && backward) take(*b, k.us);
    }
    std::size_t next = 2;
    for (auto& [head_dim, at] : column) at = next++;
    std::vector<std::vector<double>> rows;
    std::vector<double> us;
    for (const Row& r : table) {
        std::vector<double>& row = rows.emplace_back(next, 0.0);
        row[0] = 1;
        row[1] = r.tiles;
        row[column[r.head_dim]] = r.at_peak;
        us.push_back(r.us);
    }
    const std::vector<double> x = fit_nonnegative(rows, us);
    // p: the larger of all work and the longest tile, which on one processor is never the larger.
    AttentionPass pass{.efficiency = {}, .tile_overhead_us = x[1], .p = 100, .launch_us = x[0]};
    for (const auto& [head_dim, at] : column) pass.efficiency.emplace_back(static_cast<int>(head_dim), 1 / x[at]);
    for (const std::vector<double>& row : rows)
        predicted.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
    measured.insert(measured.end(), us.begin(), us.end());
    return pass;
}

AttentionConstants fit_attention(const Measurements& m, const std::map<DType, FlopRate>& peak, const Birthplace& born) {
    AttentionConstants a;
    std::vector<double> predicted, measured;
    a.kernel = "cpu";
    a.forward = fit_attention(m, false, peak, predicted, measured);
    a.backward = fit_attention(m, true, peak, predicted, measured);
    a.born = certificate(born, quality(measured.size(), error_of(predicted, measured)));
    return a;
}

bool is_memory_bound(KernelKind kind) {
    return kind != KernelKind::gemm && kind != KernelKind::attention_forward && kind != KernelKind::attention_backward;
}

MemoryBoundConstants fit_memory_bound(const Measurements& m, double bandwidth, const Birthplace& born) {
    struct Table {
        std::vector<std::vector<double>> rows;  // 1, bytes
        std::vector<double> us;
    };
    std::map<KernelKind, Table> tables;
    Table all;
    const auto take = [&](KernelKind kind, Bytes bytes, double us) {
        for (Table* t : {&tables[kind], &all}) {
            t->rows.push_back({1, static_cast<double>(bytes.value)});
            t->us.push_back(us);
        }
    };
    for (const KernelMeasurement& k : m.kernels)
        if (const KernelKind kind = kind_of(k.args); is_memory_bound(kind)) take(kind, work(k.args).bytes, k.us);
    for (const TrafficMeasurement& t : m.traffic) take(KernelKind::cast, t.bytes, t.us);

    const auto efficiency = [bandwidth](double us_per_byte) {
        return us_per_byte > 0 ? std::clamp(1 / (us_per_byte * bandwidth), 1e-6, 1e3) : 1e3;
    };
    MemoryBoundConstants out;
    const std::vector<double> common = fit_nonnegative(all.rows, all.us);
    out.launch_us = common[0];
    out.efficiency = efficiency(common[1]);
    std::vector<double> predicted, measured;
    for (const auto& [kind, table] : tables) {
        const std::vector<double> x = fit_nonnegative(table.rows, table.us);
        out.overrides.push_back({std::string(name_of(kind)), x[0], efficiency(x[1])});
        for (std::size_t i = 0; i < table.us.size(); ++i) {
            predicted.push_back(x[0] + x[1] * table.rows[i][1]);
            measured.push_back(table.us[i]);
        }
    }
    out.born = certificate(born, quality(measured.size(), error_of(predicted, measured)));
    return out;
}

DomainConstants fit_domain(const Measurements& m, const Birthplace& born) {
    constexpr double pairwise_window = 64 * 1024;
    std::vector<std::vector<double>> rings, messages;
    std::vector<double> ring_us, message_us;
    for (const CollectiveMeasurement& c : m.collectives) {
        const auto bytes = static_cast<double>(c.bytes.value);
        if (c.kind == InstructionKind::send) {
            messages.push_back({1, std::min(1.0, bytes / pairwise_window), bytes});
            message_us.push_back(c.us);
        } else {
            const double steps = static_cast<double>(c.ranks - 1) * (c.kind == InstructionKind::all_reduce ? 2 : 1);
            rings.push_back({1, steps, steps * bytes / static_cast<double>(c.ranks)});
            ring_us.push_back(c.us);
        }
    }
    const std::vector<double> ring = fit_nonnegative(rings, ring_us);
    const std::vector<double> pair = fit_nonnegative(messages, message_us);
    const auto gbps = [](double us_per_byte) { return us_per_byte > 0 ? 1e-3 / us_per_byte : 1e3; };
    DomainConstants d;
    d.link = "threads";
    d.a_us = ring[0];
    d.s_us = ring[1];
    d.ring_gbps = gbps(ring[2]);
    d.simple_from = Bytes{std::int64_t{1} << 50};  // there is no second protocol
    d.pairwise_a_us = pair[0];
    d.pairwise_p_us = pair[1];
    d.pairwise_gbps = gbps(pair[2]);
    std::vector<double> predicted;
    for (const auto& r : rings) predicted.push_back(ring[0] + ring[1] * r[1] + ring[2] * r[2]);
    for (const auto& r : messages) predicted.push_back(pair[0] + pair[1] * r[1] + pair[2] * r[2]);
    ring_us.insert(ring_us.end(), message_us.begin(), message_us.end());
    d.born = certificate(born, quality(ring_us.size(), error_of(predicted, ring_us)));
    return d;
}

}  // namespace

ClusterSpec fit_machine(const Measurements& m, const Birthplace& born) {
    ClusterSpec c;
    DeviceSpec& d = c.device;
    c.name = d.name = "this-machine";
    c.devices_per_node = m.cores;
    c.host_memory = m.host_memory;
    c.default_framework = "foretrain";
    d.memory = m.host_memory / m.cores;
    d.memory_bandwidth = m.memory;
    d.multiprocessors = 1;
    d.reserved = Bytes{round_up(ceil_div(m.resident.value, m.cores), MiB)};
    const double bandwidth = m.memory.bytes_per_second * 1e-6;
    for (const DType type : {DType::fp32, DType::fp64}) {
        const GemmFit fit = fit_gemm(m, type, bandwidth, born);
        d.peak[type] = fit.peak;
        d.calibration.gemm.push_back(fit.constants);
    }
    d.calibration.attention = fit_attention(m, d.peak, born);
    d.calibration.memory_bound = fit_memory_bound(m, bandwidth, born);
    c.domain = fit_domain(m, born);

    const std::string how = fmt::format("{} on {}, {}", born.command, born.cpu, born.date);
    d.sources["peak_flops_per_second"] = how + ": the fastest GEMM";
    d.sources["memory_bandwidth_bytes_per_second"] = how + ": a copy, read and written, on all cores at once";
    d.sources["memory_bytes"] = "physical memory of the machine, divided among its cores";
    d.sources["reserved_bytes"] = how + ": resident set of a tiny run without its arenas, divided among its ranks";
    c.sources["devices_per_node"] = "cores of the machine";
    return c;
}

}  // namespace foretrain
