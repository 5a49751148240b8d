#include "sim/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "plan/framework.h"
#include "tests/sim/support/devices.h"

namespace foretrain {
namespace {

using support::a100_cluster;
using support::h100_cluster;
using support::round_cluster;
using support::without_sustained;

double tera(const CostModel& cost, std::int64_t m, std::int64_t n, std::int64_t k) {
    const GemmArgs args{.m = m, .n = n, .k = k, .type = DType::bf16, .output = DType::bf16};
    return 2.0 * static_cast<double>(m * n * k) / seconds(cost.kernel(args)) / 1e12;
}

struct Linear {
    std::int64_t inputs, outputs;
};

// TFLOP/s of a layer's linear maps over `tokens`: forward, gradient of the input, and of the weight
// added up in fp32.
double layer_tera(const CostModel& cost, std::int64_t tokens, const std::vector<Linear>& maps) {
    Time time;
    double flops = 0;
    for (const auto& [in, out] : maps) {
        const auto half = [&](std::int64_t n, std::int64_t k) {
            return GemmArgs{.m = tokens, .n = n, .k = k, .type = DType::bf16, .output = DType::bf16};
        };
        time += cost.kernel(half(out, in)) + cost.kernel(half(in, out));
        time += cost.kernel(GemmArgs{.m = in, .n = out, .k = tokens, .accumulate = true, .type = DType::bf16});
        flops += 6.0 * static_cast<double>(tokens * in * out);
    }
    return flops / seconds(time) / 1e12;
}

// Azure's AI benchmarking guide measures 229 to 254 TFLOP/s for 4096 to 8192 cubed in fp16 on A100.
TEST(Anchors, SquareGemms) {
    const CostModel a100(without_sustained(a100_cluster(1)), {});
    EXPECT_NEAR(tera(a100, 4096, 4096, 4096), 245, 16);
    EXPECT_NEAR(tera(a100, 8192, 8192, 8192), 265, 13);
}

// What the layers of two models reach in training. Tensor-parallel 8 shards of GPT-3 (hidden 12288,
// 2048 tokens) on A100: 220 TFLOP/s sustained, 232 in a short benchmark that throttles a little, which
// `sustained` = 0 leaves out. Llama-2 70B by 4 on H100: 691 and 758.
TEST(Anchors, LayersOfLargeModels) {
    const std::vector<Linear> gpt3{{12288, 4608}, {1536, 12288}, {12288, 6144}, {6144, 12288}};
    EXPECT_NEAR(layer_tera(CostModel(a100_cluster(1), {}), 2048, gpt3), 220, 3);
    EXPECT_NEAR(layer_tera(CostModel(without_sustained(a100_cluster(1)), {}), 2048, gpt3), 235, 5);
    const std::vector<Linear> llama{{8192, 2560}, {2048, 8192}, {8192, 14336}, {7168, 8192}};
    EXPECT_NEAR(layer_tera(CostModel(h100_cluster(1), {}), 4096, llama), 691, 5);
    EXPECT_NEAR(layer_tera(CostModel(without_sustained(h100_cluster(1)), {}), 4096, llama), 765, 15);
}

// FlashAttention-2, forward and backward, causal, head_dim 128, 16k tokens: its authors' chart shows
// 133 to 189 TFLOP/s on A100 from 1k to 16k.
TEST(Anchors, FlashAttention) {
    const CostModel a100(a100_cluster(1), {});
    for (const auto& [s, measured] : {std::pair{1024, 133.0}, {2048, 155.0}, {4096, 173.0}, {8192, 182.0}}) {
        const std::int64_t b = 16384 / s;
        const Time t = a100.kernel(AttentionForwardArgs{b, s, 16, 16, 128, DType::bf16}) +
                       a100.kernel(AttentionBackwardArgs{b, s, 16, 16, 128, DType::bf16});
        const double flops = 3.5 * 4 * 16384.0 * s * 16 * 128 / 2;
        EXPECT_NEAR(flops / seconds(t) / 1e12 / measured, 1, 0.06) << s;
    }
}

Plan plan_in(const char* framework, ClusterSpec cluster) {
    Plan plan;
    plan.cluster = std::move(cluster);
    plan.parallelism.data = plan.cluster.devices();
    plan.framework = framework;
    return plan;
}

// A plan in fp8 over bf16 tensors: on H100 a product of 4096 x 8192 x 8192 that quantises its inputs takes 458 us by
// hand, 1.12 of it in training, and of that what the software says.
TEST(Cost, ProductsComputeInTheTypeThatTheyQuantiseTo) {
    GemmArgs args{.m = 4096, .n = 8192, .k = 8192, .type = DType::bf16, .output = DType::bf16};
    const CostModel measured(read_cluster("dgx-h100"), {});
    const double half = microseconds(measured.kernel(args));
    args.quantised = DType::fp8;
    const double fp8 = microseconds(measured.kernel(args));
    EXPECT_NEAR(fp8, 458.0 * 1.12, 0.5);
    EXPECT_LT(fp8, half);
    const Framework& megatron = framework_named("megatron-lm");
    const double takes = megatron.costs.gemm_takes(DType::fp8, 989);
    EXPECT_LT(takes, 1);
    EXPECT_NEAR(microseconds(CostModel(plan_in("megatron-lm", read_cluster("dgx-h100"))).kernel(args)), fp8 * takes,
                1e-3);
    args.quantised = DType::nvfp4;
    EXPECT_THROW(static_cast<void>(measured.kernel(args)), UserError);
}

// A share of a collective is rounded once, to the nearest picosecond; a stall like it takes the same.
TEST(Cost, SharesOfCollectives) {
    const CostModel cost(round_cluster(1), {.tensor = 8});
    Instruction i = collective(InstructionKind::all_reduce, Stream::compute, Axis::tensor, DType::fp32, 12345, {0});
    const Time whole = cost.instruction(i, {}, 0);
    for (const int share : {0, 1, 430, 1000, 4348}) {
        i.share = static_cast<std::int16_t>(share);
        const Time part = cost.instruction(i, {}, 0);
        EXPECT_NEAR(static_cast<double>(part.value), static_cast<double>(whole.value) * share / 1000, 0.5) << share;
        Instruction stall = i;
        stall.kind = InstructionKind::stall;
        stall.like = i.kind;
        EXPECT_EQ(cost.instruction(stall, {}, 0), part);
    }
    Instruction launch;
    launch.kind = InstructionKind::launch;
    launch.count = 77;
    EXPECT_EQ(cost.instruction(launch, {}, 0), Time{77});
    launch.kind = InstructionKind::stall;
    EXPECT_EQ(cost.instruction(launch, {}, 0), Time{77});
}

// By hand, on an A100 (312 TFLOP/s, 0.82 of 2039 GB/s): with 8 x 2048^2 scores of heads of 128 the products
// take 4 x 8 x 2048^2 x 128 / 156e12 s = 110.1 us and 11.7 bytes a score 234.8 us, and 3 us to launch.
TEST(Cost, KernelsAreTheFrameworks) {
    const AttentionForwardArgs a{
        .batch = 1, .sequence = 2048, .heads = 8, .kv_heads = 8, .head_dim = 128, .type = DType::bf16};
    const auto in = [&](const char* framework, const ClusterSpec& cluster) {
        return microseconds(CostModel(plan_in(framework, cluster)).kernel(a));
    };
    const double measured = microseconds(CostModel(a100_cluster(1), {}).kernel(a));
    EXPECT_NEAR(in("megatron-lm@2021", a100_cluster(1)), 110.1 + 234.8 + 3, 0.5);
    EXPECT_NEAR(in("foretrain", a100_cluster(1)), measured, 1e-6);
    EXPECT_NEAR(in("megatron-lm@2024", a100_cluster(1)), measured, 1e-6) << "the kernels that were measured";
    EXPECT_NEAR(in("fsdp@composer", a100_cluster(1)) / measured, 1.71, 1e-4);
    const ClusterSpec h100 = read_cluster("dgx-h100");
    EXPECT_NEAR(in("fsdp@composer", h100) / in("foretrain", h100), 3.1, 1e-4);

    // Traffic counts so many times, launches once.
    const ResidualAddArgs add{.rows = 4096, .width = 4096, .type = DType::bf16};
    const double once = microseconds(CostModel(a100_cluster(1), {}).kernel(add)) - 3;
    EXPECT_NEAR(microseconds(CostModel(plan_in("fsdp@torchtitan", a100_cluster(1))).kernel(add)) - 3, 3.8 * once, 1e-3);
}

// Two matrices of scores have no fused softmax: the four bytes of the products stay, the other 7.7 double. A head
// of 108 takes the products four times as long, their arithmetic and their bytes.
TEST(Cost, UnfusedAttentionMindsShapes) {
    const CostModel cost(plan_in("megatron-lm@2021", a100_cluster(1)));
    const auto us = [&](std::int64_t heads, std::int64_t head_dim) {
        return microseconds(cost.kernel(AttentionForwardArgs{.batch = 1,
                                                             .sequence = 2048,
                                                             .heads = heads,
                                                             .kv_heads = heads,
                                                             .head_dim = head_dim,
                                                             .type = DType::bf16})) -
               3;
    };
    const double score_us = 2048 * 2048 / (0.82 * 2.039e6), flops_us = 4 * 2048.0 * 2048 * 128 / 156e6;
    EXPECT_NEAR(us(4, 128), 4 * (flops_us + 11.7 * score_us), 0.5);
    EXPECT_NEAR(us(2, 128), 2 * (flops_us + (4 + 2 * 7.7) * score_us), 0.5);
    EXPECT_NEAR(us(4, 108), 4 * (4 * flops_us * 108 / 128 + (16 + 7.7) * score_us), 0.5);
}

// Everything takes 0.6 % longer for each doubling of the nodes, in the profiles that say so.
TEST(Cost, RanksWaitForTheSlowest) {
    const ResidualAddArgs add{.rows = 4096, .width = 4096, .type = DType::bf16};
    const auto us = [&](const char* framework, std::int64_t nodes) {
        return microseconds(CostModel(plan_in(framework, a100_cluster(nodes))).kernel(add));
    };
    EXPECT_NEAR(us("megatron-lm@2021", 4) / us("megatron-lm@2021", 1), 1.012, 1e-6);
    EXPECT_EQ(us("foretrain", 4), us("foretrain", 1));
}

// Eight tensor ranks hold the same message: each sends an eighth, and the receivers gather it.
TEST(Cost, MessagesAreSplitOverTensorRanks) {
    Plan plan = plan_in("megatron-lm@2021", a100_cluster(2));
    plan.parallelism.data = 1;
    plan.parallelism.tensor = 8;
    plan.parallelism.pipeline = 2;
    const auto time = [&](const char* framework, bool sequence_parallel, Bytes bytes) {
        plan.framework = framework;
        plan.parallelism.sequence_parallel = sequence_parallel;
        return CostModel(plan).message(bytes, 0, 1);
    };
    const Bytes whole{64 << 20};
    const CostModel cost(plan);
    const Time gathered = cost.collective(InstructionKind::all_gather, Axis::tensor, whole);
    EXPECT_EQ(time("megatron-lm@2021", false, whole), time("megatron-lm@2021", true, whole / 8) + gathered);
    EXPECT_LT(time("megatron-lm@2021", false, whole), time("megatron-lm@2021", true, whole));
}

// Everything at 1 GB/s and without latency: a byte takes a nanosecond.
TEST(Cost, MemoryBoundKernelsAreTheirTraffic) {
    ClusterSpec c = round_cluster(1);
    c.device.calibration.memory_bound.overrides = {{"cast", 2, 0.5}};
    const CostModel cost(c, {});
    // residual_add reads two and writes one of 1000 x 4 bytes
    EXPECT_EQ(cost.kernel(ResidualAddArgs{.rows = 10, .width = 100}), Time{12'000'000});
    EXPECT_EQ(cost.kernel(CastArgs{.elements = 1000}), Time{2'000'000 + 16'000'000});
    EXPECT_EQ(cost.memory_traffic(KernelKind::adamw, Bytes{1}), Time{1000});
}

TEST(Cost, InstructionsOfEveryKind) {
    const CostModel cost(round_cluster(2), {.tensor = 4, .data = 4});
    const std::vector<KernelArgs> kernels{ResidualAddArgs{.rows = 10, .width = 100}};
    const auto time = [&](const Instruction& i) { return cost.instruction(i, kernels, 0); };
    using enum InstructionKind;
    EXPECT_EQ(time({.kind = kernel, .kernel = 0}), Time{12'000'000});
    EXPECT_EQ(time({.kind = fill, .count = 1000}), Time{4'000'000});
    EXPECT_EQ(time({.kind = copy, .count = 1000}), Time{8'000'000});
    EXPECT_EQ(time({.kind = load_batch, .type = DType::int32, .count = 2000}), Time{8'000'000});
    for (const InstructionKind free_of_charge : {alloc, InstructionKind::free, record, wait, step_end})
        EXPECT_EQ(time({.kind = free_of_charge}), Time{0});
    // 1000 floats are summed over 4 ranks of a node: 6 steps of 1000 bytes. As the smaller side of a
    // gather they are steps of 4000 bytes.
    EXPECT_EQ(time({.kind = all_reduce, .axis = Axis::tensor, .count = 1000}), Time{6'000'000});
    EXPECT_EQ(time({.kind = all_gather, .axis = Axis::tensor, .count = 1000}), Time{12'000'000});
    EXPECT_EQ(time({.kind = reduce_scatter, .axis = Axis::tensor, .count = 1000}), Time{12'000'000});
    EXPECT_THROW(time({.kind = forward_chunk}), InternalError);
}

TEST(Cost, MessagesCostTheSameOnBothSides) {
    const CostModel cost(round_cluster(2), {.tensor = 8, .pipeline = 2});
    const Instruction send{.kind = InstructionKind::send, .peer = 1, .count = 1000};
    const Instruction recv{.kind = InstructionKind::recv, .peer = 0, .count = 1000};
    EXPECT_EQ(cost.instruction(send, {}, 0), Time{4'000'000});
    EXPECT_EQ(cost.instruction(recv, {}, 1), Time{4'000'000});
}

// 6 tensor ranks on nodes of 8: the group on ranks 6 to 11 spans nodes, and costs more than its
// neighbour on ranks 0 to 5.
TEST(Cost, AGroupCostsItsSlowestInstance) {
    const ClusterSpec c = h100_cluster(3);
    const CostModel straddling(c, {.tensor = 6, .data = 4}), inside(c, {.tensor = 6});
    const auto time = [](const CostModel& m) {
        return m.collective(InstructionKind::all_reduce, Axis::tensor, Bytes{64 * MiB});
    };
    EXPECT_GT(time(straddling), 2 * time(inside));
}

TEST(Cost, WhatWasNotMeasuredIsNamed) {
    const CostModel cost(round_cluster(1), {});
    try {
        cost.kernel(GemmArgs{.m = 1, .n = 1, .k = 1, .type = DType::fp64});
        FAIL();
    } catch (const UserError& e) {
        EXPECT_EQ(e.text().field, "calibration.gemm");
        EXPECT_NE(std::string(e.what()).find("fp64"), std::string::npos);
    }
    ClusterSpec lonely = round_cluster(2);
    lonely.network = {};
    EXPECT_THROW(CostModel(lonely, {.data = 16}), UserError);
    EXPECT_NO_THROW(CostModel(lonely, {.data = 8}));
}

TEST(Cost, HalfPrecisionsShareTheirMeasurement) {
    const CostModel cost(a100_cluster(1), {});
    GemmArgs args{.m = 512, .n = 512, .k = 512, .type = DType::bf16, .output = DType::bf16};
    const Time brain = cost.kernel(args);
    args.type = args.output = DType::fp16;
    EXPECT_EQ(cost.kernel(args), brain);
}

}  // namespace
}  // namespace foretrain
