#include "hardware/table_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/counter_random.h"
#include "base/error.h"

namespace foretrain {

namespace {

constexpr std::size_t fewest_rows = 40;
constexpr std::int64_t large_array = std::int64_t{1} << 20;
constexpr double large_counts = 4;  // a large product in the sum of errors: training is made of them

// Half of the rows for each purpose.
template <class Row>
struct Halves {
    std::vector<Row> fitted, held_out;

    Halves(const std::vector<Row>& rows, std::uint64_t seed) {
        const CounterRandom random = CounterRandom::keyed(hash("table_fit"), seed);
        for (std::size_t i = 0; i < rows.size(); ++i) (random.uniform(i) < 0.5 ? fitted : held_out).push_back(rows[i]);
    }
};

// A constant of a form and the range in which it is searched: on a logarithmic scale between positive bounds, else on
// a plain one.
template <class Constants>
struct Knob {
    double Constants::*member;
    double least, most;

    double get(const Constants& c) const {
        const double x = std::clamp(c.*member, least, most);
        return least > 0 ? std::log(x) : x;
    }
    void set(Constants& c, double at) const { c.*member = std::clamp(least > 0 ? std::exp(at) : at, least, most); }
};

template <class Constants>
Constants with(Constants c, const std::vector<Knob<Constants>>& knobs, const std::vector<double>& x) {
    for (std::size_t i = 0; i < knobs.size(); ++i) knobs[i].set(c, x[i]);
    return c;
}

// |log(predicted / measured)|, rounded off below a hundredth: rows that nothing explains do not decide the rest.
double badness(double predicted, double measured) {
    constexpr double rounded = 0.01;
    const double x = std::log(predicted / measured);
    return std::sqrt(x * x + rounded * rounded);
}

template <class Constants>
Constants search(const Constants& start, const std::vector<Knob<Constants>>& knobs,
                 const std::function<double(const Constants&)>& total, int rounds) {
    std::vector<double> x;
    for (const Knob<Constants>& knob : knobs) x.push_back(knob.get(start));
    const auto f = [&](const std::vector<double>& at) { return total(with(start, knobs, at)); };
    for (int run = 0; run < 2; ++run) x = minimise(f, x, rounds);
    return with(start, knobs, x);
}

GemmShape shape_of(const MeasuredGemm& r) {
    const std::int64_t stored = is_quantised(r.dtype) ? size_of(DType::bf16) : size_of(r.dtype);
    return {.m = r.m,
            .n = r.n,
            .k = r.k,
            .input_bytes = operand_bytes(r.dtype),
            .output_bytes = stored,
            .stored_bytes = stored};
}

void need_rows(std::size_t rows, const char* of) {
    if (rows < fewest_rows)
        throw UserError({.file = "table",
                         .field = "",
                         .found = fmt::format("{} rows of {}", rows, of),
                         .expected = fmt::format("at least {}", fewest_rows),
                         .suggestion = ""});
}

double domain_us(const MeasuredCollective& r, const DomainConstants& c) {
    return r.kind == Collective::all_to_all ? domain_all_to_all_us(r.bytes, r.ranks, c)
                                            : domain_collective_us(r.kind, r.bytes, r.ranks, c);
}

}  // namespace

FitError error_of(const std::vector<MeasuredGemm>& rows, const GemmConstants& c, const Processor& processor) {
    const PreparedGemm prepared = prepare(c, processor);
    std::vector<double> predicted, measured;
    for (const MeasuredGemm& r : rows) {
        if (!r.is_large()) continue;
        predicted.push_back(gemm_burst_us(shape_of(r), prepared));
        measured.push_back(r.us);
    }
    return error_of(predicted, measured);
}

GemmTableFit fit_gemm_table(const std::vector<MeasuredGemm>& rows, const GemmConstants& start,
                            const Processor& processor, const TableFitOptions& options) {
    need_rows(rows.size(), "products");
    const Halves<MeasuredGemm> halves(rows, options.seed);
    using G = GemmConstants;
    std::vector<Knob<G>> knobs{{&G::efficiency, 0.05, 2},
                               {&G::intensity, 0.01, 500},
                               {&G::tile_overhead_us, 1e-3, 50},
                               {&G::wave_quantisation, 0, 1},
                               {&G::p, 1, 20},
                               {&G::launch_us, 0.1, 100},
                               {&G::throttle, 0, 0.3},
                               {&G::split_cost, 0.1, 10},
                               {&G::epilogue, 1e-3, 10}};
    if (is_quantised(start.dtype)) knobs.push_back({&G::quantisation, 0, 20});
    const auto total = [&](const G& c) {
        const PreparedGemm prepared = prepare(c, processor);
        double sum = 0;
        for (const MeasuredGemm& r : halves.fitted)
            sum += (r.is_large() ? large_counts : 1) * badness(gemm_burst_us(shape_of(r), prepared), r.us);
        return sum;
    };
    GemmTableFit fit;
    fit.constants = search<G>(start, knobs, total, options.rounds);
    fit.fitted = error_of(halves.fitted, fit.constants, processor);
    fit.held_out = error_of(halves.held_out, fit.constants, processor);
    fit.fitted_rows = halves.fitted.size();
    fit.held_out_rows = halves.held_out.size();
    return fit;
}

FitError error_of(const std::vector<MeasuredCollective>& rows, const DomainConstants& c) {
    std::vector<double> predicted, measured;
    for (const MeasuredCollective& r : rows) {
        if (r.nodes != 1 || r.bytes <= large_array) continue;
        predicted.push_back(domain_us(r, c));
        measured.push_back(r.us);
    }
    return error_of(predicted, measured);
}

DomainTableFit fit_domain_table(const std::vector<MeasuredCollective>& rows, const DomainConstants& start,
                                const TableFitOptions& options) {
    std::vector<MeasuredCollective> inside;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(inside),
                 [](const MeasuredCollective& r) { return r.nodes == 1 && r.ranks > 1; });
    need_rows(inside.size(), "collectives in one node");
    const Halves<MeasuredCollective> halves(inside, options.seed);
    using D = DomainConstants;
    // What the table holds nothing of stays as it is.
    std::vector<Knob<D>> knobs;
    const auto has = [&](const std::function<bool(const MeasuredCollective&)>& what) {
        return std::any_of(halves.fitted.begin(), halves.fitted.end(), what);
    };
    if (has([](const MeasuredCollective& r) { return r.kind != Collective::all_to_all; }))
        knobs = {{&D::ring_gbps, 0.1, 1e5}, {&D::a_us, 0.1, 1e3},       {&D::s_us, 0.01, 1e3}, {&D::d, 0, 2},
                 {&D::ramp_us, 0.01, 1e3},  {&D::simple_s_us, 0.1, 1e3}};
    if (has([&](const MeasuredCollective& r) {
            return r.kind == Collective::all_reduce && switch_reduces(r.bytes, r.ranks, start);
        }))
        knobs.insert(knobs.end(),
                     {{&D::nvls_gbps, 0.1, 1e5}, {&D::nvls_a_us, 0.1, 1e3}, {&D::nvls_ramp_us, 0.01, 1e3}});
    if (has([](const MeasuredCollective& r) { return r.kind == Collective::all_to_all; }))
        knobs.insert(knobs.end(), {{&D::pairwise_gbps, 0.1, 1e5},
                                   {&D::pairwise_a_us, 0.1, 1e3},
                                   {&D::pairwise_p_us, 0, 1e3},
                                   {&D::pairwise_ramp_us, 0.01, 1e3},
                                   {&D::pairwise_s_us, 0, 1e3},
                                   {&D::pairwise_d, 0, 5}});
    const auto total = [&](const D& c) {
        double sum = 0;
        for (const MeasuredCollective& r : halves.fitted) sum += badness(domain_us(r, c), r.us);
        return sum;
    };
    D from = start;
    from.ring_gbps_by_ranks.clear();
    DomainTableFit fit;
    fit.constants = search<D>(from, knobs, total, options.rounds);
    fit.fitted = error_of(halves.fitted, fit.constants);
    fit.held_out = error_of(halves.held_out, fit.constants);
    fit.fitted_rows = halves.fitted.size();
    fit.held_out_rows = halves.held_out.size();
    return fit;
}

}  // namespace foretrain
