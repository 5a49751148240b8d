#include "hardware/kernel_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hardware/cluster_file.h"
#include "hardware/device_file.h"

namespace foretrain {
namespace {

// 4 multiprocessors, 1 FLOP/ps and 1 byte/ps in all. A 128 x 128 tile has intensity 64, which the
// constant 64 halves once and the efficiency 1/2 once more: 62,500 FLOP/us on each multiprocessor.
const Processor four{.flops = 1e6, .bandwidth = 1e6, .multiprocessors = 4};
GemmConstants by_hand() {
    return {.efficiency = 0.5,
            .intensity = 64,
            .tile_overhead_us = 1,
            .wave_quantisation = 0.5,
            .p = 1e6,
            .launch_us = 0,
            .tiles = {{128, 128}},
            .splits = {1},
            .born = {}};
}
double us(const GemmShape& shape, const GemmConstants& constants) { return gemm_us(shape, prepare(constants, four)); }

TEST(PNorm, LiesBetweenMaximumAndSum) {
    EXPECT_DOUBLE_EQ(p_norm(3, 4, 1), 7);
    EXPECT_NEAR(p_norm(3, 4, 2), 5, 1e-12);
    EXPECT_NEAR(p_norm(3, 4, 1e4), 4, 1e-12);
    EXPECT_DOUBLE_EQ(p_norm(0, 4, 3), 4);
    EXPECT_NEAR(p_norm(1e300, 1e300, 4), 1e300 * std::pow(2, 0.25), 1e288);
}

TEST(Gemm, FourTilesAreOneWave) {
    // 2 128 128 1000 / 62500 = 524.288, and 1 of overhead
    EXPECT_NEAR(us({.m = 256, .n = 256, .k = 1000}, by_hand()), 525.288, 1e-9);
}

TEST(Gemm, APartialWaveCostsByQuantisation) {
    // five tiles: x = 1.25, waves = 1.25 + 0.5 * 0.75 = 1.625
    EXPECT_NEAR(us({.m = 640, .n = 128, .k = 1000}, by_hand()), 1.625 * 525.288, 1e-9);
}

TEST(Gemm, SplittingKFillsTheDevice) {
    GemmConstants c = by_hand();
    c.splits = {1, 2};
    c.split_cost = 1;
    // two tiles split in two: one wave of 262.144 + 1, and 8 bytes * 2 * 256 * 128 of partial sums
    EXPECT_NEAR(us({.m = 256, .n = 128, .k = 1000}, c), 263.144 + 0.524288, 1e-9);
}

TEST(Gemm, LaunchEpilogueAndSustainedComeOnTop) {
    GemmConstants c = by_hand();
    c.launch_us = 3;
    c.epilogue = 0.5;
    c.sustained = 0.1;
    // the output is 256 * 256 * 2 = 131,072 bytes: 0.131072 us
    EXPECT_NEAR(us({.m = 256, .n = 256, .k = 1000}, c), 1.1 * (525.288 + 0.065536 + 3), 1e-9);
}

TEST(Gemm, AddingIntoSinglePrecisionPaysHalfOfTheExtraTraffic) {
    const GemmShape plain{.m = 256, .n = 256, .k = 1000};
    GemmShape sum = plain;
    sum.output_bytes = 4;
    sum.accumulate = true;
    // 4 read + 4 written - 2 already counted = 6 bytes an element, half of them exposed, at 0.85
    EXPECT_NEAR(us(sum, by_hand()) - us(plain, by_hand()), 0.5 * 6 * 65536 / 0.85e6, 1e-9);
}

TEST(Gemm, ASkinnyOneIsBoundByMemory) {
    // 1 x 1000 x 1000: (1001 * 1000 * 2 + 2 * 1000) bytes at 0.9 bytes/ps = 2.2267 us, against tiles of
    // 1 x 1000 elements that compute for 0.5 us.
    GemmConstants c = by_hand();
    c.tiles = {{1, 1}};
    c.efficiency = 1;
    c.intensity = 0;
    c.tile_overhead_us = 0;
    EXPECT_NEAR(us({.m = 1, .n = 1000, .k = 1000}, c), 2004000 / 0.9e6, 1e-6);
}

TEST(Gemm, OneMultiprocessorWithUnitTilesIsARoofline) {
    const Processor cpu{.flops = 1e5, .bandwidth = 1e4, .multiprocessors = 1};
    const GemmConstants c{.p = 1e6, .tiles = {{1, 1}}, .splits = {1}, .born = {}};
    // 2 * 100^3 / 1e5 = 20 us; memory (200 * 100 + 100 * 100) * 4 / 9000 = 13.3 us
    EXPECT_NEAR(gemm_us({.m = 100, .n = 100, .k = 100, .input_bytes = 4, .output_bytes = 4}, prepare(c, cpu)), 20,
                1e-9);
}

// Inputs that are quantised on the way in: m k of them at 2 times the time that a byte takes, and half as many bytes
// of operands, while an output that is added to counts as one of what they were before.
TEST(Gemm, QuantisesItsInputs) {
    GemmConstants c{.launch_us = 0, .tiles = {{1, 1}}, .splits = {1}, .born = {}};
    const GemmShape shape{.m = 64, .n = 64, .k = 4096, .input_bytes = 1};
    const double without = gemm_us(shape, prepare(c, four));
    c.quantisation = 2;
    EXPECT_NEAR(gemm_us(shape, prepare(c, four)) - without, 2 * 64 * 4096 / four.bandwidth, 1e-12);
    GemmShape groups = shape;
    groups.groups = 3;
    PreparedGemm free = prepare(c, four), paid = free;
    free.quantisation = 0;
    EXPECT_NEAR(gemm_us(groups, paid) - gemm_us(groups, free), 3 * 2 * 64 * 4096 / four.bandwidth, 1e-12)
        << "each group its own";
    GemmShape sum = shape, stored = shape;
    sum.accumulate = stored.accumulate = true;
    sum.output_bytes = stored.output_bytes = 4;
    stored.stored_bytes = 1;
    EXPECT_NEAR(gemm_us(stored, prepare(c, four)) - gemm_us(sum, prepare(c, four)),
                0.5 * 64 * 64 / four.bandwidth / 0.85, 0.2 * 64 * 64 / four.bandwidth);
}

struct Fp8Product {
    const char* device;
    std::int64_t m, n, k;
    double by_hand_us, measured_us;
};

// Each quantises its input, as the tables of github:ai-dynamo/aiconfigurator@095f58a51c4c were measured; by hand from
// the form and the constants, without `sustained`. What was measured ran in short bursts, which throttle less.
TEST(Gemm, InFp8AsMeasured) {
    for (const Fp8Product& p : {Fp8Product{"h100-sxm-80gb", 4096, 4096, 4096, 145.437, 150.74},
                                Fp8Product{"h100-sxm-80gb", 4096, 8192, 8192, 457.995, 446.6},
                                Fp8Product{"h200-sxm-141gb", 4096, 8192, 8192, 447.390, 461.25},
                                Fp8Product{"b200-sxm-180gb", 4096, 8192, 8192, 229.246, 225.86},
                                Fp8Product{"b200-sxm-180gb", 1024, 4096, 4096, 32.602, 32.09},
                                Fp8Product{"gb200-186gb", 4096, 4096, 4096, 78.344, 77.05},
                                Fp8Product{"gb200-186gb", 4096, 8192, 8192, 223.774, 232.52},
                                Fp8Product{"l40s-48gb", 4096, 4096, 4096, 383.747, 366.11}}) {
        const DeviceSpec d = device_from_json(Json(p.device));
        GemmConstants c = *d.calibration.gemm_for(DType::fp8);
        c.sustained = 0;
        const Processor processor{d.peak.at(DType::fp8).per_second * 1e-6, d.memory_bandwidth.bytes_per_second * 1e-6,
                                  d.multiprocessors};
        const double us = gemm_us({.m = p.m, .n = p.n, .k = p.k, .input_bytes = 1}, prepare(c, processor));
        EXPECT_NEAR(us / p.by_hand_us, 1, 0.001) << p.device << ' ' << p.m;
        EXPECT_NEAR(us / p.measured_us, 1, 0.06) << p.device << ' ' << p.m;
    }
}

TEST(Attention, IsWorkOverRateOnALargeDevice) {
    // 4 * 8 * 1024 * (1024 + 128)/2 * 64 = 1.208e9 FLOPs at 5e5 FLOP/us; the longest block:
    // 4 * 128 * 64 * 1024 / 1.25e5; p = 1 adds them
    const AttentionPass pass{.efficiency = {{64, 0.5}, {128, 0.25}}, .tile_overhead_us = 0, .p = 1, .launch_us = 3};
    const AttentionShape shape{.batch = 2, .sequence = 1024, .heads = 4, .head_dim = 64};
    EXPECT_NEAR(attention_us(shape, pass, four), 1207959552 / 5e5 + 33554432 / 1.25e5 + 3, 1e-9);
    AttentionShape back = shape;
    back.backward = true;
    EXPECT_NEAR(attention_us(back, pass, four), 2.5 * (1207959552 / 5e5 + 33554432 / 1.25e5) + 3, 1e-9);
}

TEST(Attention, AWindowLimitsTheKeys) {
    // A window of 256 in 1024: 256 (1 - 256/2048) + 64 = 288 keys on average, 256 for the last block.
    const AttentionPass pass{.efficiency = {{64, 0.5}}, .tile_overhead_us = 0, .p = 1, .launch_us = 3};
    AttentionShape shape{.batch = 2, .sequence = 1024, .heads = 4, .head_dim = 64, .window = 256};
    EXPECT_NEAR(attention_us(shape, pass, four), 4.0 * 8 * 1024 * 288 * 64 / 5e5 + 4.0 * 128 * 64 * 256 / 1.25e5 + 3,
                1e-9);
    const AttentionShape whole{.batch = 2, .sequence = 1024, .heads = 4, .head_dim = 64};
    shape.window = 1024;
    EXPECT_EQ(attention_us(shape, pass, four), attention_us(whole, pass, four));
}

TEST(Attention, WithoutAMaskEveryQuerySeesAllKeys) {
    const AttentionPass pass{.efficiency = {{64, 0.5}}, .tile_overhead_us = 0, .p = 1, .launch_us = 3};
    const AttentionShape shape{.batch = 2, .sequence = 1024, .heads = 4, .head_dim = 64, .keys = 512};
    EXPECT_NEAR(attention_us(shape, pass, four), 4.0 * 8 * 1024 * 512 * 64 / 5e5 + 4.0 * 128 * 64 * 512 / 1.25e5 + 3,
                1e-9);
}

TEST(Attention, TakesTheEfficiencyOfTheNextLargerHead) {
    const AttentionPass pass{.efficiency = {{64, 0.5}, {128, 0.25}}, .tile_overhead_us = 0, .p = 1, .launch_us = 0};
    const auto at = [&](std::int64_t d) {
        return attention_us({.batch = 1, .sequence = 256, .heads = 1, .head_dim = d}, pass, four) /
               static_cast<double>(d);
    };
    EXPECT_NEAR(at(32), at(64), 1e-12);
    EXPECT_NEAR(at(80), 2 * at(64), 1e-12);
    EXPECT_NEAR(at(256), at(128), 1e-12);
}

TEST(Attention, OverheadIsPaidForEachTileOnAMultiprocessor) {
    // 2 * 4 * 8 tiles on 4 multiprocessors: 16 rounds; one tile still pays once
    AttentionPass pass{.efficiency = {{64, 0.5}}, .tile_overhead_us = 0, .p = 1, .launch_us = 0};
    const AttentionShape many{.batch = 2, .sequence = 1024, .heads = 4, .head_dim = 64};
    const AttentionShape one{.batch = 1, .sequence = 128, .heads = 1, .head_dim = 64};
    const double without = attention_us(many, pass, four), without_one = attention_us(one, pass, four);
    pass.tile_overhead_us = 2;
    EXPECT_NEAR(attention_us(many, pass, four) - without, 32, 1e-9);
    EXPECT_NEAR(attention_us(one, pass, four) - without_one, 2, 1e-9);
}

TEST(MemoryBound, IsLaunchAndTraffic) { EXPECT_DOUBLE_EQ(memory_bound_us(8000000, 3, 0.8, four), 3 + 10); }

// Twice the rates are never slower, and a larger GEMM is never faster (the wave rule rises with x as
// long as wave_quantisation is at most 1).
TEST(Gemm, IsMonotone) {
    for (const char* name : {"dgx-a100", "dgx-h100"}) {
        const ClusterSpec cluster = read_cluster(name);
        const GemmConstants& c = *cluster.device.calibration.gemm_for(DType::bf16);
        const double flops = cluster.device.peak.at(DType::bf16).per_second * 1e-6;
        const double bandwidth = cluster.device.memory_bandwidth.bytes_per_second * 1e-6;
        const std::int64_t sms = cluster.device.multiprocessors;
        const PreparedGemm base = prepare(c, {flops, bandwidth, sms});
        const PreparedGemm faster = prepare(c, {2 * flops, bandwidth, sms});
        const PreparedGemm wider = prepare(c, {flops, 2 * bandwidth, sms});
        for (std::int64_t m = 1; m <= 20000; m = m * 5 / 4 + 7)
            for (std::int64_t n = 16; n <= 20000; n *= 3)
                for (std::int64_t k = 32; k <= 20000; k *= 4) {
                    const double t = gemm_us({m, n, k}, base);
                    EXPECT_LE(gemm_us({m, n, k}, faster), t);
                    EXPECT_LE(gemm_us({m, n, k}, wider), t);
                    EXPECT_GE(gemm_us({m + m / 7 + 1, n, k}, base), t);
                    EXPECT_GE(gemm_us({m, n + 5, k}, base), t);
                    EXPECT_GE(gemm_us({m, n, k + 5}, base), t);
                }
    }
}

}  // namespace
}  // namespace foretrain
