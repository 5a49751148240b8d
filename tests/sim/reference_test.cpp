// The cost model against measured tables, which live outside the repository (FORETRAIN_REFERENCE).
#include "tests/sim/support/reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hardware/cluster_file.h"
#include "hardware/collective_time.h"
#include "sim/cost.h"
#include "tests/sim/support/devices.h"

namespace foretrain {
namespace {

using namespace support;

// Median error over the GEMMs of at least 10 GFLOP. The tables are short bursts, so without the
// `sustained` factor; they still throttle by up to a tenth in calls of milliseconds, which is the bias
// that remains.
double gemm_error(const std::vector<MeasuredGemm>& rows, const std::string& gpu, const ClusterSpec& cluster) {
    const CostModel cost(without_sustained(cluster), {});
    std::vector<double> errors;
    for (const MeasuredGemm& r : rows) {
        if (r.gpu != gpu || r.dtype != "bf16" || 2 * r.m * r.n * r.k < 10'000'000'000) continue;
        const GemmArgs args{.m = r.m, .n = r.n, .k = r.k, .type = DType::bf16, .output = DType::bf16};
        errors.push_back(std::fabs(microseconds(cost.kernel(args)) / r.us - 1));
    }
    EXPECT_GT(errors.size(), 1000U);
    return median(errors);
}

TEST(Reference, Gemms) {
    const auto path = reference_file("gemm_grid.csv");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with gemm_grid.csv: GEMM errors NOT checked";
    const auto rows = read_gemms(*path);
    const double a100 = gemm_error(rows, "A100-SXM-80", a100_cluster(1));
    const double h100 = gemm_error(rows, "H100-SXM", h100_cluster(1));
    RecordProperty("a100_median_error", std::to_string(a100));
    RecordProperty("h100_median_error", std::to_string(h100));
    EXPECT_LE(a100, 0.06);
    EXPECT_LE(h100, 0.06);
    // The presets whose constants were fitted to these tables, L40S with a throttle of its own.
    for (const auto& [gpu, preset] : {std::pair{"A100-SXM-80", "dgx-a100"},
                                      {"H100-SXM", "dgx-h100"},
                                      {"H200", "dgx-h200"},
                                      {"B200", "dgx-b200"},
                                      {"GB200", "gb200-nvl72"}})
        EXPECT_LE(gemm_error(rows, gpu, read_cluster(preset)), 0.08) << gpu;
    EXPECT_LE(gemm_error(rows, "L40S", read_cluster("pcie-8x-l40s")), 0.2);
}

Collective kind(const std::string& name) {
    if (name == "all_reduce") return Collective::all_reduce;
    return name == "all_gather" ? Collective::all_gather : Collective::reduce_scatter;
}

double collective_error(const std::vector<MeasuredCollective>& rows, const std::string& table, const ClusterSpec& c) {
    std::vector<double> errors;
    for (const MeasuredCollective& r : rows) {
        if (r.table.rfind(table, 0) != 0 || r.collective == "alltoall" || r.bytes <= MiB) continue;
        errors.push_back(std::fabs(domain_collective_us(kind(r.collective), r.bytes, r.ranks, c.domain) / r.us - 1));
    }
    EXPECT_GT(errors.size(), 50U);
    return median(errors);
}

double network_error(const std::vector<MeasuredCollective>& rows, const std::string& table, const ClusterSpec& c) {
    std::vector<double> errors;
    for (const MeasuredCollective& r : rows) {
        if (r.table.rfind(table, 0) != 0 || r.collective != "all_reduce" || r.bytes <= 4 * MiB) continue;
        const CostModel cost(c, {.data = r.ranks});
        const Time t = cost.collective(InstructionKind::all_reduce, Axis::data, Bytes{r.bytes});
        errors.push_back(std::fabs(microseconds(t) / r.us - 1));
    }
    EXPECT_GT(errors.size(), 20U);
    return median(errors);
}

TEST(Reference, Collectives) {
    const auto path = reference_file("collectives.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with collectives.jsonl: errors NOT checked";
    const auto rows = read_collectives(*path);
    EXPECT_LE(collective_error(rows, "aic-a100", a100_cluster(1)), 0.08);
    EXPECT_LE(collective_error(rows, "aic-h100", h100_cluster(1)), 0.08);
    for (const auto& [table, preset] : {std::pair{"aic-a100", "dgx-a100"},
                                        {"aic-h200", "dgx-h200"},
                                        {"aic-b200", "dgx-b200"},
                                        {"aic-gb200", "gb200-nvl72"}})
        EXPECT_LE(collective_error(rows, table, read_cluster(preset)), 0.08) << table;
    // 4 to 1024 nodes, two digitised plots
    EXPECT_LE(network_error(rows, "gtc24-nvlstree-h100", h100_cluster(1024)), 0.08);
    EXPECT_LE(network_error(rows, "arxiv2411.13055-h100", h100_cluster(1024)), 0.08);
}

}  // namespace
}  // namespace foretrain
