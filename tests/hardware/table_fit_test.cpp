#include "hardware/table_fit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/counter_random.h"
#include "base/error.h"
#include "hardware/cluster_file.h"

namespace foretrain {
namespace {

const Processor h100{.flops = 989e6, .bandwidth = 3.35e6, .multiprocessors = 132};

// A table of a device whose constants are known, with noise of one percent.
std::vector<MeasuredGemm> table_of(const GemmConstants& truth) {
    const CounterRandom random = CounterRandom::keyed(1, 2);
    const PreparedGemm prepared = prepare(truth, h100);
    std::vector<MeasuredGemm> rows;
    std::uint64_t n = 0;
    for (const std::int64_t m : {256, 1024, 2048, 4096, 8192})
        for (const std::int64_t width : {512, 1024, 4096, 6144, 12288})
            for (const std::int64_t k : {512, 2048, 4096, 8192}) {
                const double noise = 1 + 0.02 * (random.uniform(n++) - 0.5);
                rows.push_back({"gpu", DType::bf16, m, width, k, gemm_burst_us({m, width, k}, prepared) * noise});
            }
    return rows;
}

TEST(TableFit, FindsTheDeviceBehindATableOfProducts) {
    GemmConstants truth{.efficiency = 0.9, .intensity = 20, .tile_overhead_us = 1, .launch_us = 3, .throttle = 0.1};
    const GemmConstants start{
        .efficiency = 0.6, .intensity = 5, .tile_overhead_us = 0.5, .launch_us = 5, .throttle = 0};
    const std::vector<MeasuredGemm> rows = table_of(truth);
    EXPECT_GT(error_of(rows, start, h100).median, 0.1);
    const GemmTableFit fit = fit_gemm_table(rows, start, h100, {.seed = 3});
    EXPECT_LT(fit.held_out.median, 0.02);
    EXPECT_LT(fit.held_out.p90, 0.06);
    EXPECT_EQ(fit.fitted_rows + fit.held_out_rows, rows.size());
    EXPECT_NEAR(static_cast<double>(fit.fitted_rows), 50, 15);
}

TEST(TableFit, TheHalfThatIsFittedFollowsFromTheSeed) {
    const std::vector<MeasuredGemm> rows = table_of({});
    const TableFitOptions quick{.seed = 3, .rounds = 20};
    const GemmTableFit one = fit_gemm_table(rows, {}, h100, quick);
    EXPECT_EQ(one.constants, fit_gemm_table(rows, {}, h100, quick).constants);
    EXPECT_NE(one.fitted_rows, fit_gemm_table(rows, {}, h100, {.seed = 4, .rounds = 20}).fitted_rows);
}

TEST(TableFit, FindsTheLinksBehindATableOfCollectives) {
    const DomainConstants truth = read_cluster("dgx-h100").domain;
    DomainConstants start = truth;
    start.ring_gbps /= 2, start.nvls_gbps *= 1.5, start.a_us *= 2;
    std::vector<MeasuredCollective> rows;
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather})
        for (const std::int64_t ranks : {2, 4, 8})
            for (std::int64_t bytes = 64 << 10; bytes <= std::int64_t{1} << 30; bytes *= 2)
                rows.push_back({"t", kind, ranks, 1, bytes, domain_collective_us(kind, bytes, ranks, truth)});
    EXPECT_GT(error_of(rows, start).median, 0.2);
    const DomainTableFit fit = fit_domain_table(rows, start, {.seed = 1});
    EXPECT_LT(fit.held_out.median, 0.02);
    EXPECT_EQ(fit.constants.pairwise_gbps, truth.pairwise_gbps);  // the table holds no all-to-all
}

TEST(TableFit, TooFewRowsAreRefused) {
    std::vector<MeasuredGemm> rows = table_of({});
    rows.resize(39);
    EXPECT_THROW(static_cast<void>(fit_gemm_table(rows, {}, h100, {})), UserError);
    EXPECT_THROW(static_cast<void>(fit_domain_table({}, {}, {})), UserError);
}

class Table : public testing::Test {
protected:
    ~Table() override { std::filesystem::remove(path_); }
    std::string file(const std::string& text) {
        std::ofstream(path_) << text;
        return path_;
    }

private:
    std::string path_ =
        (std::filesystem::temp_directory_path() / ("foretrain_table_" + std::to_string(::getpid()))).string();
};

TEST_F(Table, OfProductsIsReadByItsHeader) {
    const auto rows =
        read_gemm_table(file("dtype,gpu,k,m,n,tflops,latency_us\r\nbf16,A,3,1,2,7,4.5\r\nfp8,B,3,1,2,7,1\n\n"));
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].gpu, "A");
    EXPECT_EQ(rows[0].m, 1);
    EXPECT_EQ(rows[0].n, 2);
    EXPECT_EQ(rows[0].k, 3);
    EXPECT_EQ(rows[0].us, 4.5);
    EXPECT_EQ(rows_of(rows, "B", DType::fp8).size(), 1U);
    EXPECT_TRUE(rows_of(rows, "B", DType::bf16).empty());
}

TEST_F(Table, OfProductsNamesTheCellThatIsWrong) {
    const std::string header = "gpu,dtype,m,n,k,latency_us\n";
    for (const auto& [text, field] : {std::pair<std::string, std::string>{"gpu,m\n", "line 1"},
                                      {header + "A,bf16,1,2,3,4\nA,bf16,1,2,3\n", "line 3, columns"},
                                      {header + "A,bf17,1,2,3,4\n", "line 2, dtype"},
                                      {header + "A,bf16,1.5,2,3,4\n", "line 2, m"},
                                      {header + "A,bf16,1,2,3,-4\n", "line 2, latency_us"},
                                      {header + "A,bf16,1,2,3,nan\n", "line 2, latency_us"}}) {
        try {
            static_cast<void>(read_gemm_table(file(text)));
            ADD_FAILURE() << text;
        } catch (const UserError& e) {
            EXPECT_EQ(e.text().field, field) << text;
        }
    }
    EXPECT_THROW(static_cast<void>(read_gemm_table(file(""))), UserError);
    EXPECT_THROW(static_cast<void>(read_gemm_table("/nowhere.csv")), UserError);
}

TEST_F(Table, OfCollectivesLeavesOutWhatHasNoTime) {
    const std::string path = file(
        "{\"collective\":\"all_reduce\",\"ranks\":8,\"nodes\":2,\"bytes\":1024,\"time_us\":12.5,\"note\":\"x\"}\n"
        "{\"collective\":\"sendrecv\",\"ranks\":8,\"bytes\":1024,\"time_us\":12.5}\n"
        "{\"collective\":\"alltoall\",\"ranks\":8,\"bytes\":1024,\"time_us\":null,\"busbw\":3}\n");
    const auto rows = read_collective_table(path);
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].nodes, 2);
    EXPECT_EQ(rows[0].us, 12.5);
}

}  // namespace
}  // namespace foretrain
