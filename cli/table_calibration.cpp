#include "cli/table_calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <set>

#include "hardware/cluster_file.h"
#include "hardware/table_fit.h"
#include "reports/text_table.h"

namespace foretrain::cli {

namespace {

std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

// A line for what was fitted: before on all rows, then both halves with the constants found.
class Report {
public:
    void row(const std::string& what, const FitError& before, const FitError& fitted, const FitError& held_out,
             std::size_t rows) {
        table_.row({what, fmt::format("{}", rows), percent(before.median), percent(before.p90), percent(fitted.median),
                    percent(fitted.p90), percent(held_out.median), percent(held_out.p90)});
    }
    std::string text() const {
        return table_.text() +
               "\nbefore: with the cluster's own constants; fitted: the half that the new ones were fitted to; held "
               "out:\n"
               "the other half. Of products the errors count those of at least 10 GFLOP, of collectives those larger\n"
               "than 1 MiB.\n";
    }

private:
    TextTable table_{
        {"constants", "rows", "before: median", "p90", "fitted: median", "p90", "held out: median", "p90"}};
};

std::string certificate(const std::string& file, const FitError& held_out, std::size_t rows) {
    return fmt::format("foretrain calibrate --from-table {}: half of {} rows; {} median and {} p90 on the other half",
                       file, rows, percent(held_out.median), percent(held_out.p90));
}

// The one name that rows go by, or the one asked for.
std::string chosen(const Options& options, const std::set<std::string>& names, const char* what) {
    const std::string all = fmt::format("{}", fmt::join(names, ", "));
    if (!options.has("rows")) {
        if (names.size() == 1) return *names.begin();
        option_error("rows", "nothing", fmt::format("one {} of the table: {}", what, shortened(all, 300)));
    }
    const std::string name = options.text("rows");
    if (!names.contains(name))
        option_error("rows", "\"" + shortened(name) + "\"", fmt::format("a {} of the table", what),
                     nearest(name, {names.begin(), names.end()}));
    return name;
}

Processor processor_of(const DeviceSpec& device, DType type) {
    const auto peak = device.peak.find(type);
    if (peak == device.peak.end())
        option_error("cluster", "device " + device.name, fmt::format("one with a peak for {}", name_of(type)));
    return {peak->second.per_second * 1e-6, device.memory_bandwidth.bytes_per_second * 1e-6, device.multiprocessors};
}

void fit_products(const Options& options, const TableFitOptions& how, ClusterSpec& cluster, Report& report) {
    const std::string file = options.text("from-table");
    const std::vector<MeasuredGemm> table = read_gemm_table(file);
    std::set<std::string> names;
    for (const MeasuredGemm& r : table) names.insert(r.gpu);
    const std::string gpu = chosen(options, names, "gpu");
    std::set<DType> types;
    for (const MeasuredGemm& r : table)
        if (r.gpu == gpu) types.insert(r.dtype);
    for (const DType type : types) {
        const std::vector<MeasuredGemm> rows = rows_of(table, gpu, type);
        const Processor processor = processor_of(cluster.device, type);
        std::vector<GemmConstants>& known = cluster.device.calibration.gemm;
        auto own = std::find_if(known.begin(), known.end(), [&](const GemmConstants& g) { return g.dtype == type; });
        if (own == known.end()) {
            const GemmConstants* like = cluster.device.calibration.gemm_serving(DType::bf16);
            own = known.insert(known.end(), like != nullptr ? *like : GemmConstants{});
            own->dtype = type;
        }
        const GemmTableFit fit = fit_gemm_table(rows, *own, processor, how);
        report.row(fmt::format("products, {}", name_of(type)), error_of(rows, *own, processor), fit.fitted,
                   fit.held_out, rows.size());
        *own = fit.constants;
        own->spread = fit.held_out.p80;
        own->born = {certificate(file, fit.held_out, rows.size()), gpu, own->born.date};
    }
}

void fit_links(const Options& options, const TableFitOptions& how, ClusterSpec& cluster, Report& report) {
    const std::string file = options.text("from-table");
    std::vector<MeasuredCollective> rows = read_collective_table(file);
    std::set<std::string> names;
    for (const MeasuredCollective& r : rows) names.insert(r.table);
    if (options.has("rows") || names.size() > 1) {
        // Tables of one machine share the beginning of their names.
        const std::string begins = options.text_or("rows", "");
        std::erase_if(rows, [&](const MeasuredCollective& r) { return !r.table.starts_with(begins); });
        if (rows.empty() || begins.empty())
            static_cast<void>(chosen(options, names, "table, or what several begin with,"));
    }
    const DomainTableFit fit = fit_domain_table(rows, cluster.domain, how);
    const std::size_t used = fit.fitted_rows + fit.held_out_rows;
    report.row("links in a node", error_of(rows, cluster.domain), fit.fitted, fit.held_out, used);
    const std::string date = cluster.domain.born.date;
    cluster.domain = fit.constants;
    cluster.domain.spread = fit.held_out.p80;
    cluster.domain.born = {certificate(file, fit.held_out, used), options.text_or("rows", file), date};
}

}  // namespace

OptionGroup table_options() {
    return {
        "From a table",
        {{"from-table", "FILE",
          "fit a cluster's constants to it: products (.csv with gpu, dtype, m, n, k, latency_us) or "
          "collectives in a node (.jsonl with table, collective, ranks, nodes, bytes, time_us)"},
         {"rows", "NAME", "of the table: those of this gpu, or whose table's name begins so (all, where there is one)"},
         {"cluster", "NAME|FILE", "the cluster whose constants the fit begins with and corrects"},
         {"split-seed", "N", "of the half that is fitted to (1)"}}};
}

int calibrate_from_table(const Options& options, Console& console) {
    if (!options.has("cluster")) option_error("cluster", "nothing", "the cluster whose constants the table corrects");
    ClusterSpec cluster = for_option("cluster", [&] { return read_cluster(options.text("cluster")); });
    TableFitOptions how;
    how.seed = static_cast<std::uint64_t>(options.integer_or("split-seed", 1, 0, INT64_MAX));
    Report report;
    if (options.text("from-table").ends_with(".csv"))
        fit_products(options, how, cluster, report);
    else
        fit_links(options, how, cluster, report);
    console.out << report.text();
    if (!options.has("output")) return done;
    write_file("output", options.text("output"), cluster_to_json(cluster).dump() + "\n");
    say_written(console, options.text("output"));
    return done;
}

}  // namespace foretrain::cli
