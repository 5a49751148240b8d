// The cost model against measured tables, which live outside the repository (FORETRAIN_REFERENCE).
#include "tests/sim/support/reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hardware/cluster_file.h"
#include "hardware/table_fit.h"
#include "sim/cost.h"

namespace foretrain {
namespace {

using support::reference_file;

struct MeasuredDevice {
    const char *rows, *cluster;
};
constexpr MeasuredDevice devices[] = {{"A100-SXM-80", "dgx-a100"},
                                      {"H100-SXM", "dgx-h100"},
                                      {"H200", "dgx-h200"},
                                      {"B200", "dgx-b200"},
                                      {"GB200", "gb200-nvl72"}};

Processor processor_of(const DeviceSpec& d, DType type) {
    return {d.peak.at(type).per_second * 1e-6, d.memory_bandwidth.bytes_per_second * 1e-6, d.multiprocessors};
}

// Constants fitted to half of a device's table, and the preset's, which were fitted to another half.
TEST(Reference, ProductsThatWereNotFittedTo) {
    const auto path = reference_file("gemm_grid.csv");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with gemm_grid.csv: GEMM errors NOT checked";
    const auto table = read_gemm_table(*path);
    for (const auto& [name, cluster] : devices) {
        const DeviceSpec device = read_cluster(cluster).device;
        for (const GemmConstants& own : device.calibration.gemm) {
            const std::vector<MeasuredGemm> rows = rows_of(table, name, own.dtype);
            if (rows.empty()) continue;
            const Processor processor = processor_of(device, own.dtype);
            const GemmTableFit fit = fit_gemm_table(rows, own, processor, {.seed = 7, .rounds = 600});
            const FitError preset = error_of(rows, own, processor);
            RecordProperty(fmt::format("{}_{}", cluster, name_of(own.dtype)),
                           fmt::format("held out {:.3f}/{:.3f}, preset {:.3f}/{:.3f}", fit.held_out.median,
                                       fit.held_out.p90, preset.median, preset.p90));
            EXPECT_LE(fit.held_out.median, 0.05) << name << ' ' << name_of(own.dtype);
            EXPECT_LE(fit.held_out.p90, 0.13) << name << ' ' << name_of(own.dtype);
            EXPECT_LE(preset.median, 0.052) << name << ' ' << name_of(own.dtype);
            EXPECT_LE(preset.p90, 0.135) << name << ' ' << name_of(own.dtype);
        }
    }
}

std::vector<MeasuredCollective> tables(const std::vector<MeasuredCollective>& rows, const std::string& begins) {
    std::vector<MeasuredCollective> out;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(out),
                 [&](const MeasuredCollective& r) { return r.table.starts_with(begins); });
    EXPECT_FALSE(out.empty()) << begins;
    return out;
}

TEST(Reference, CollectivesInANode) {
    const auto path = reference_file("collectives.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with collectives.jsonl: errors NOT checked";
    const auto rows = read_collective_table(*path);
    for (const auto& [table, cluster] : {std::pair{"aic-a100", "dgx-a100"},
                                         {"aic-h100", "dgx-h100"},
                                         {"aic-h200", "dgx-h200"},
                                         {"aic-b200", "dgx-b200"},
                                         {"aic-gb200", "gb200-nvl72"},
                                         {"aic-gb300", "gb300-nvl72"}}) {
        const FitError e = error_of(tables(rows, table), read_cluster(cluster).domain);
        RecordProperty(cluster, fmt::format("{:.3f}/{:.3f}", e.median, e.p90));
        EXPECT_LE(e.median, 0.05) << table;
        EXPECT_LE(e.p90, 0.15) << table;
    }
}

// 4 to 1024 nodes, two digitised plots.
TEST(Reference, AllReducesAcrossNodes) {
    const auto path = reference_file("collectives.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with collectives.jsonl: errors NOT checked";
    const auto rows = read_collective_table(*path);
    ClusterSpec cluster = read_cluster("dgx-h100");
    std::vector<double> predicted, measured;
    for (const char* plot : {"gtc24-nvlstree-h100", "arxiv2411.13055-h100"})
        for (const MeasuredCollective& r : tables(rows, plot)) {
            if (r.kind != Collective::all_reduce || r.bytes <= 4 * MiB) continue;
            scale_to_nodes(cluster, r.nodes);
            const CostModel cost(cluster, {.data = r.ranks});
            predicted.push_back(microseconds(cost.collective(InstructionKind::all_reduce, Axis::data, Bytes{r.bytes})));
            measured.push_back(r.us);
        }
    const FitError e = error_of(predicted, measured);
    RecordProperty("all_reduce", fmt::format("{:.3f}/{:.3f}", e.median, e.p90));
    EXPECT_GT(measured.size(), 100U);
    EXPECT_LE(e.median, 0.06);
}

}  // namespace
}  // namespace foretrain
