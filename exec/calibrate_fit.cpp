// From the table of measurements to the constants of hardware/calibration.h, by the forms that
// predictions call: hardware/kernel_time.h and hardware/collective_time.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/least_squares.h"
#include "exec/calibrate.h"
#include "hardware/collective_time.h"
#include "hardware/kernel_time.h"
#include "plan/program/access.h"

namespace foretrain {

namespace {

// A rate from its inverse, in which the forms are linear: a term that takes no time has an endless one.
double inverse(double x) { return x > 0 ? 1 / x : std::numeric_limits<double>::infinity(); }
// The same for a file.
double finite_inverse(double x) { return std::clamp(inverse(x), 1e-6, 1e3); }

// What the fitted forms say of what was measured.
struct Agreement {
    std::vector<double> predicted, measured;

    std::string text() const {
        const FitError e = error_of(predicted, measured);
        return fmt::format("{} measurements, median error {:.1f} %, p90 {:.1f} %", measured.size(), 100 * e.median,
                           100 * e.p90);
    }
    // Four of five measurements lie within it: what a spread is.
    double spread() const { return std::min(error_of(predicted, measured).p80, 1.0); }
};

template <class Form>
std::vector<double> fit(const Form& form, std::size_t constants, const std::vector<double>& us, Agreement& agreement) {
    const std::vector<double> x = fit_linear(form, constants, us);
    for (std::size_t i = 0; i < us.size(); ++i) agreement.predicted.push_back(form(i, x));
    agreement.measured.insert(agreement.measured.end(), us.begin(), us.end());
    return x;
}

BirthCertificate certificate(const Birthplace& b, const std::string& what) {
    return {.source = b.command + ": " + what, .device = b.cpu, .date = b.date};
}

struct GemmFit {
    GemmConstants constants;
    FlopRate peak;
};

// A core is a processor of one multiprocessor with tiles of one element; `bandwidth` is its own, bytes/us.
GemmFit fit_gemm(const Measurements& m, DType type, double bandwidth, const Birthplace& born) {
    std::vector<GemmShape> shapes;
    std::vector<double> measured;
    Processor core{.flops = 0, .bandwidth = bandwidth, .multiprocessors = 1};
    for (const KernelMeasurement& k : m.kernels) {
        const auto* a = std::get_if<GemmArgs>(&k.args);
        if (a == nullptr || a->type != type) continue;
        shapes.push_back({.m = a->m,
                          .n = a->n,
                          .k = a->k,
                          .input_bytes = operand_bytes(a->type),
                          .output_bytes = size_of(a->output),
                          .accumulate = a->accumulate,
                          .stored_bytes = size_of(a->type)});
        measured.push_back(k.us);
        core.flops = std::max(core.flops, 2 * static_cast<double>(a->m * a->n * a->k) / k.us);
    }
    const auto with = [&](const std::vector<double>& x) {  // logarithms keep them positive
        return GemmConstants{.dtype = type,
                             .efficiency = std::exp(x[0]),
                             .tile_overhead_us = std::exp(x[1]),
                             .p = 4,
                             .launch_us = std::exp(x[2]),
                             .tiles = {{1, 1}},
                             .splits = {1},
                             .born = {}};
    };
    const auto predicted = [&](const GemmConstants& c) {
        const PreparedGemm prepared = prepare(c, core);
        std::vector<double> us;
        for (const GemmShape& s : shapes) us.push_back(gemm_us(s, prepared));
        return us;
    };
    const auto badness = [&](const std::vector<double>& x) {
        const std::vector<double> us = predicted(with(x));
        double sum = 0;
        for (std::size_t i = 0; i < us.size(); ++i) sum += std::pow(us[i] / measured[i] - 1, 2);
        return sum;
    };
    GemmConstants c = with(minimise(badness, {0, std::log(1e-4), std::log(1.0)}));
    const Agreement agreement{predicted(c), measured};
    c.spread = agreement.spread();
    c.born = certificate(born, agreement.text());
    return {c, FlopRate{core.flops * 1e6}};
}

// One launch time and one overhead of a tile for all head dimensions, one efficiency for each.
AttentionPass fit_attention(const Measurements& m, bool backward, const std::map<DType, FlopRate>& peak,
                            Agreement& agreement) {
    std::vector<std::pair<AttentionShape, Processor>> table;
    std::vector<double> us;
    std::set<int> head_dims;
    const auto take = [&](const auto& a, double measured_us) {
        table.push_back({{a.batch, a.sequence, a.heads, a.head_dim, backward},
                         {.flops = peak.at(a.type).per_second * 1e-6, .multiprocessors = 1}});
        us.push_back(measured_us);
        head_dims.insert(static_cast<int>(a.head_dim));
    };
    for (const KernelMeasurement& k : m.kernels) {
        if (const auto* f = std::get_if<AttentionForwardArgs>(&k.args); f != nullptr && !backward) take(*f, k.us);
        if (const auto* b = std::get_if<AttentionBackwardArgs>(&k.args); b != nullptr && backward) take(*b, k.us);
    }
    const auto with = [&](const std::vector<double>& x, double (*rate)(double)) {
        // p: the larger of all work and the longest tile, which on one processor is never the larger.
        AttentionPass pass{.efficiency = {}, .tile_overhead_us = x[1], .p = 100, .launch_us = x[0]};
        std::size_t next = 2;
        for (const int head_dim : head_dims) pass.efficiency.emplace_back(head_dim, rate(x[next++]));
        return pass;
    };
    const auto form = [&](std::size_t i, const std::vector<double>& x) {
        return attention_us(table[i].first, with(x, inverse), table[i].second);
    };
    return with(fit(form, 2 + head_dims.size(), us, agreement), finite_inverse);
}

AttentionConstants fit_attention(const Measurements& m, const std::map<DType, FlopRate>& peak, const Birthplace& born) {
    AttentionConstants a;
    Agreement agreement;
    a.kernel = "cpu";
    a.forward = fit_attention(m, false, peak, agreement);
    a.backward = fit_attention(m, true, peak, agreement);
    a.spread = agreement.spread();
    a.born = certificate(born, agreement.text());
    return a;
}

bool is_memory_bound(KernelKind kind) {
    return kind != KernelKind::gemm && kind != KernelKind::attention_forward &&
           kind != KernelKind::attention_backward && kind != KernelKind::ring_attention_forward &&
           kind != KernelKind::ring_attention_backward;
}

MemoryBoundConstants fit_memory_bound(const Measurements& m, double bandwidth, const Birthplace& born) {
    struct Table {
        std::vector<std::int64_t> bytes;
        std::vector<double> us;
    };
    std::map<KernelKind, Table> tables;
    Table all;
    const auto take = [&](KernelKind kind, Bytes bytes, double us) {
        for (Table* t : {&tables[kind], &all}) {
            t->bytes.push_back(bytes.value);
            t->us.push_back(us);
        }
    };
    for (const KernelMeasurement& k : m.kernels)
        if (const KernelKind kind = kind_of(k.args); is_memory_bound(kind)) take(kind, work(k.args).bytes, k.us);
    for (const TrafficMeasurement& t : m.traffic) take(KernelKind::cast, t.bytes, t.us);

    const auto form = [&](const Table& t) {  // x: launch, and the inverse of the efficiency
        return [&t, core = Processor{.bandwidth = bandwidth}](std::size_t i, const std::vector<double>& x) {
            return memory_bound_us(t.bytes[i], x[0], inverse(x[1]), core);
        };
    };
    MemoryBoundConstants out;
    const std::vector<double> common = fit_linear(form(all), 2, all.us);
    out.launch_us = common[0];
    out.efficiency = finite_inverse(common[1]);
    Agreement agreement;
    for (const auto& [kind, table] : tables) {
        const std::vector<double> x = fit(form(table), 2, table.us, agreement);
        out.overrides.push_back({std::string(name_of(kind)), x[0], finite_inverse(x[1])});
    }
    out.spread = agreement.spread();
    out.born = certificate(born, agreement.text());
    return out;
}

DomainConstants fit_domain(const Measurements& m, const Birthplace& born) {
    std::vector<CollectiveMeasurement> rings, messages;
    std::vector<double> ring_times, message_times;
    for (const CollectiveMeasurement& c : m.collectives) {
        const bool message = c.kind == InstructionKind::send;
        (message ? messages : rings).push_back(c);
        (message ? message_times : ring_times).push_back(c.us);
    }
    // There is no second protocol.
    DomainConstants d{.simple_from = Bytes{std::int64_t{1} << 50}, .link = "threads", .born = {}};
    const auto with_ring = [&d](const std::vector<double>& x, double (*rate)(double)) {
        DomainConstants c = d;
        c.a_us = x[0];
        c.s_us = x[1];
        c.ring_gbps = rate(x[2]);
        return c;
    };
    const auto with_pairwise = [&d](const std::vector<double>& x, double (*rate)(double)) {
        DomainConstants c = d;
        c.pairwise_a_us = x[0];
        c.pairwise_p_us = x[1];
        c.pairwise_gbps = rate(x[2]);
        return c;
    };
    const auto ring = [&](std::size_t i, const std::vector<double>& x) {
        const CollectiveMeasurement& c = rings[i];
        return ring_us(collective_of(c.kind), c.bytes.value, c.ranks, with_ring(x, inverse));
    };
    const auto message = [&](std::size_t i, const std::vector<double>& x) {
        return domain_message_us(messages[i].bytes.value, with_pairwise(x, inverse));
    };
    Agreement agreement;
    d = with_ring(fit(ring, 3, ring_times, agreement), finite_inverse);
    d = with_pairwise(fit(message, 3, message_times, agreement), finite_inverse);
    d.spread = agreement.spread();
    d.born = certificate(born, agreement.text());
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
