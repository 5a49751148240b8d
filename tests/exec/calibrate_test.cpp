// Calibration: constants come back out of the times that they make, and the benches measure what they say.
#include "exec/calibrate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "base/least_squares.h"
#include "exec/calibrate_cases.h"
#include "exec/group_bench.h"
#include "exec/kernel_bench.h"
#include "hardware/cluster_file.h"
#include "kernels/cpu/cpu_kernels.h"

namespace foretrain {
namespace {

TEST(LeastSquares, FindsTheConstants) {
    std::vector<std::vector<double>> rows;
    std::vector<double> times;
    for (double bytes = 1000; bytes < 1e8; bytes *= 3) {
        rows.push_back({1, bytes});
        times.push_back(2.5 + bytes / 8000);
    }
    const std::vector<double> x = fit_nonnegative(rows, times);
    EXPECT_NEAR(x[0], 2.5, 1e-9);
    EXPECT_NEAR(x[1], 1.0 / 8000, 1e-12);
}

TEST(LeastSquares, HoldsAConstantAtZero) {
    const std::vector<double> x = fit_nonnegative({{1, 1}, {1, 2}, {1, 3}}, {0.5, 2, 3.5});  // -1 + 1.5 n
    EXPECT_EQ(x[0], 0);
    EXPECT_GT(x[1], 0.5);
}

TEST(LeastSquares, CountsRelativeErrors) {
    // One constant for 1 and 1000: the relative error puts it near the small one.
    const std::vector<double> x = fit_nonnegative({{1}, {1}}, {1, 1000});
    EXPECT_NEAR(x[0], 1, 0.01);
}

TEST(LeastSquares, TakesALinearFormForItsTable) {
    const std::vector<double> at{1, 10, 100};
    const auto form = [&](std::size_t i, const std::vector<double>& x) { return x[0] + at[i] * x[1]; };
    const std::vector<double> x = fit_linear(form, 2, {form(0, {3, 2}), form(1, {3, 2}), form(2, {3, 2})});
    EXPECT_NEAR(x[0], 3, 1e-9);
    EXPECT_NEAR(x[1], 2, 1e-9);
}

TEST(Minimise, FindsTheBottomOfAValley) {
    const auto rosenbrock = [](const std::vector<double>& x) {
        return std::pow(1 - x[0], 2) + 100 * std::pow(x[1] - x[0] * x[0], 2);
    };
    const std::vector<double> x = minimise(rosenbrock, {-1.2, 1});
    EXPECT_NEAR(x[0], 1, 1e-6);
    EXPECT_NEAR(x[1], 1, 1e-6);
}

// A machine made up from constants, measured without noise.
Measurements imagined() {
    Measurements m;
    m.cores = 4;
    m.memory = Bandwidth::gigabytes(100);
    m.host_memory = Bytes{16 * GiB};
    m.resident = Bytes{10 * MiB};
    for (const DType type : {DType::fp32, DType::fp64}) {
        for (const KernelCase& c : gemm_cases(type)) {
            const auto& g = std::get<GemmArgs>(c.args);
            const double flops = static_cast<double>(2 * g.m * g.n * g.k);
            m.kernels.push_back({c.args, 3 + static_cast<double>(g.m * g.n) * 1e-4 + flops / 50e3});
        }
    }
    for (const KernelCase& c : other_cases(DType::fp32)) {
        const Work w = work(c.args);
        const KernelKind kind = kind_of(c.args);
        if (kind == KernelKind::attention_forward || kind == KernelKind::attention_backward) {
            m.kernels.push_back({c.args, 5 + static_cast<double>(w.flops.value) / 20e3});
        } else {
            const double rate = kind == KernelKind::adamw ? 8e3 : 4e3;
            m.kernels.push_back({c.args, 0.5 + static_cast<double>(w.bytes.value) / rate});
        }
    }
    m.traffic.push_back({Bytes{1000}, 1});
    m.traffic.push_back({Bytes{1000000}, 100});
    for (const std::int64_t bytes : {1 << 10, 1 << 14, 1 << 18, 1 << 22}) {
        const auto s = static_cast<double>(bytes);
        m.collectives.push_back({InstructionKind::all_reduce, 2, Bytes{bytes}, 2 + 2 * 1.5 + 2 * s / 2 / 6e3});
        m.collectives.push_back({InstructionKind::all_gather, 2, Bytes{bytes}, 2 + 1.5 + s / 2 / 6e3});
        m.collectives.push_back({InstructionKind::reduce_scatter, 2, Bytes{bytes}, 2 + 1.5 + s / 2 / 6e3});
        m.collectives.push_back({InstructionKind::send, 2, Bytes{bytes}, 10 + s / 9e3});
    }
    return m;
}

TEST(Fit, GivesBackTheConstantsThatMadeTheTimes) {
    const ClusterSpec c = fit_machine(imagined(), {.command = "test", .cpu = "imaginary", .date = "2026-01-01"});
    EXPECT_EQ(c.devices_per_node, 4);
    EXPECT_EQ(c.default_framework, "foretrain");
    EXPECT_EQ(c.device.memory, Bytes{4 * GiB});
    EXPECT_EQ(c.device.reserved, Bytes{3 * MiB});

    const GemmConstants* g = c.device.calibration.gemm_for(DType::fp32);
    ASSERT_NE(g, nullptr);
    const double rate = g->efficiency * c.device.peak.at(DType::fp32).per_second;
    EXPECT_NEAR(rate / 50e9, 1, 0.02);
    EXPECT_NEAR(g->launch_us, 3, 0.5);
    EXPECT_NEAR(g->tile_overhead_us, 1e-4, 2e-5);
    EXPECT_EQ(g->born.device, "imaginary");
    EXPECT_LT(g->spread, 0.02) << "four of five of the times that it was fitted to";

    for (const MemoryBoundConstants::Override& o : c.device.calibration.memory_bound.overrides) {
        if (o.kind == "cast") continue;
        EXPECT_NEAR(o.launch_us, 0.5, 1e-6) << o.kind;
        EXPECT_NEAR(o.efficiency, o.kind == "adamw" ? 0.08 : 0.04, 1e-6) << o.kind;
    }
    EXPECT_NEAR(c.domain.a_us, 2, 1e-6);
    EXPECT_NEAR(c.domain.s_us, 1.5, 1e-6);
    EXPECT_NEAR(c.domain.ring_gbps, 6, 1e-6);
    EXPECT_NEAR(c.domain.pairwise_a_us, 10, 1e-6);
    EXPECT_NEAR(c.domain.pairwise_gbps, 9, 1e-6);
}

TEST(Fit, WritesAClusterFileThatReadsBack) {
    const ClusterSpec c = fit_machine(imagined(), {.command = "test", .cpu = "imaginary", .date = "2026-01-01"});
    const std::string text = cluster_to_json(c).dump();
    EXPECT_EQ(cluster_to_json(cluster_from_json(Json::parse(text, "machine"))).dump(), text);
}

TEST(Cases, HaveTheOperandsThatTheirKernelsTake) {
    for (const auto& cases : {gemm_cases(DType::fp64), other_cases(DType::fp32)}) {
        for (const KernelCase& c : cases) {
            EXPECT_EQ(static_cast<int>(c.operands.size()), operand_count(c.args)) << to_text(c.args);
            std::int64_t bytes = 0;
            for (const CaseOperand& o : c.operands) bytes += o.bytes();
            // No tensor is smaller than what the kernel touches; one that is updated is touched twice.
            EXPECT_GE(2 * bytes, work(c.args).bytes.value) << to_text(c.args);
        }
    }
}

TEST(KernelBench, MeasuresTheTimeOfACall) {
    KernelTable table{};
    table.accumulate = [](const AccumulateArgs&, const KernelContext&) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
        while (std::chrono::steady_clock::now() < until) {
        }
    };
    KernelBench bench(table, {.cores = 1, .seconds_per_case = 0.005});
    const KernelCase c{AccumulateArgs{.elements = 1024}, {{1024, DType::fp32}, {1024, DType::fp32}}, 0};
    const double us = bench.measure(c);
    EXPECT_GT(us, 50);  // less than 300 only where others take the processor: its own time counts
    EXPECT_LT(us, 400);
}

TEST(GroupBench, LargerMessagesTakeLonger) {
    for (const InstructionKind kind :
         {InstructionKind::all_reduce, InstructionKind::all_gather, InstructionKind::reduce_scatter})
        EXPECT_GT(measure_collective(cpu_kernels(), kind, Bytes{4096}, 0.001), 0);
    EXPECT_GT(measure_message(cpu_kernels(), Bytes{4096}, 0.001), 0);
}

}  // namespace
}  // namespace foretrain
