// The interval of a step: what it must hold whatever the plan, and sums that a person can check.
#include "sim/interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/framework.h"
#include "sim/predict.h"

namespace foretrain {
namespace {

Time ms(double t) { return from_seconds(t * 1e-3); }

// One node of eight, a profile without stated figures of its own beside 14 % of a step.
Prediction by_hand(const StageTime& time, const Parallelism& parallelism = {.data = 8}) {
    Prediction p;
    p.plan.framework = "foretrain";
    p.plan.cluster.devices_per_node = 8;
    p.plan.parallelism = parallelism;
    Calibration& c = p.plan.cluster.device.calibration;
    const BirthCertificate here{.source = "a table", .device = "this"};
    c.gemm = {{.dtype = DType::bf16, .spread = 0.05, .born = here}};
    c.attention = {.kernel = "flash2", .spread = 0.2, .born = {.source = "carried over from that (why): a table"}};
    c.memory_bound = {.spread = 0.1, .born = {.source = "a judgement", .device = "none"}};
    p.plan.cluster.domain.spread = 0.08;
    p.plan.cluster.domain.born = here;
    p.plan.cluster.network.constants.born = here;
    p.step = time.step;
    p.times = {time};
    return p;
}

const PartInterval& part(const StepInterval& i, UncertainPart which) {
    static const PartInterval none;
    for (const PartInterval& p : i.parts)
        if (p.part == which) return p;
    return none;
}

TEST(Interval, PartsAddInSquares) {
    // 600 ms of GEMM at 5 %, 100 of attention at 20 %, 100 of others and 100 of the optimizer at 10 %, 100 of
    // gradients at 8 %: 30, 20, 20 and 8 ms, and 14 % of the whole second.
    const StageTime t{.step = ms(1000),
                      .forward = ms(300),
                      .backward = ms(500),
                      .optimizer = ms(100),
                      .data_exposed = ms(100),
                      .gemm = ms(550),
                      .attention = ms(100),
                      .head = ms(50)};
    const StepInterval i = step_interval(by_hand(t));
    const double half = std::sqrt(30 * 30 + 20 * 20 + 20 * 20 + 8 * 8 + 140 * 140);
    EXPECT_EQ(i.low, ms(1000 - half));
    EXPECT_EQ(i.high, ms(1000 + half));
    EXPECT_EQ(i.parts.front().part, UncertainPart::software) << "the widest comes first";
    EXPECT_EQ(i.parts[1].part, UncertainPart::gemm);
    EXPECT_EQ(part(i, UncertainPart::memory_bound).half_width, ms(20)) << "one set of constants errs as one";
    EXPECT_EQ(i.resting(Basis::measured), ms(700));
    EXPECT_EQ(i.resting(Basis::carried_over), ms(100));
    EXPECT_EQ(i.resting(Basis::assumed), ms(200)) << "a judgement, measured on no device";
    EXPECT_EQ(i.resting(Basis::fitted), Time{});
}

TEST(Interval, TheBubbleGrowsWithThePasses) {
    const StageTime t{.step = ms(1000),
                      .forward = ms(200),
                      .backward = ms(200),
                      .tensor_exposed = ms(100),
                      .pipeline_exposed = ms(500),
                      .gemm = ms(300),
                      .attention = ms(100),
                      .bubble = ms(500)};
    const StepInterval i = step_interval(by_hand(t, {.tensor = 4, .pipeline = 2}));
    EXPECT_EQ(part(i, UncertainPart::gemm).time, ms(600));
    EXPECT_EQ(part(i, UncertainPart::attention).time, ms(200));
    EXPECT_EQ(part(i, UncertainPart::links_inside).time, ms(200));
}

TEST(Interval, RecomputeIsWhatItRunsAgain) {
    StageTime t{.step = ms(1000), .forward = ms(300), .backward = ms(500), .recompute = ms(200), .gemm = ms(600)};
    t.attention = ms(200);
    Parallelism p{.data = 8, .recompute = {Recompute::Kind::selective, 0}};
    EXPECT_EQ(part(step_interval(by_hand(t, p)), UncertainPart::attention).time, ms(400));
    p.recompute = {Recompute::Kind::full, 0};
    EXPECT_EQ(part(step_interval(by_hand(t, p)), UncertainPart::attention).time, ms(250));
}

TEST(Interval, WhatLeavesTheNodeIsTheNetworks) {
    const StageTime t{.step = ms(1000), .forward = ms(900), .data_exposed = ms(100), .gemm = ms(900)};
    Prediction p = by_hand(t, {.tensor = 8, .data = 2});
    p.plan.cluster.nodes = 2;
    const StepInterval i = step_interval(p);
    const PartInterval& network = part(i, UncertainPart::links_between);
    EXPECT_EQ(network.time, ms(100));
    EXPECT_FALSE(network.stated);
    EXPECT_EQ(network.half_width, ms(15)) << "15 % where a measurement states no spread";
    EXPECT_EQ(part(i, UncertainPart::links_inside).time, Time{});
    p.plan.cluster.network.constants.born = {};
    EXPECT_EQ(part(step_interval(p), UncertainPart::links_between).half_width, ms(25)) << "and 25 % of no source";
}

// A profile says whether runs were seen that its spread is of.
TEST(Interval, AnAssumedSpreadOfAProfileIsNotStated) {
    const StageTime t{.step = ms(1000), .forward = ms(900), .overhead = ms(100), .gemm = ms(900)};
    for (const auto& [framework, stated] :
         {std::pair{"megatron-lm", false}, std::pair{"megatron-lm@2022", true}, std::pair{"deepspeed", false},
          std::pair{"fsdp@composer", true}, std::pair{"fsdp@torchtitan", false},
          std::pair{"fsdp@torchtitan-compiled", false}}) {
        Prediction p = by_hand(t);
        p.plan.framework = framework;
        const StepInterval i = step_interval(p);
        const PartInterval& software = part(i, UncertainPart::software);
        EXPECT_EQ(software.stated, stated) << framework;
        EXPECT_EQ(software.spread, framework_named(framework).step_spread) << framework;
        EXPECT_EQ(software.basis, Basis::fitted) << "what the host and stalls take was fitted to runs all the same";
    }
}

TEST(Interval, HoldsTheStepAndSumsToIt) {
    for (const char* cluster : {"dgx-a100", "dgx-h100", "mi300x-8x"})
        for (const char* framework : {"foretrain", "megatron-lm", "megatron-lm@2022"})
            for (const std::int64_t pipeline : {1, 2, 4})
                for (const auto kind : {Recompute::Kind::none, Recompute::Kind::full}) {
                    Plan plan;
                    plan.model = read_model("llama-3-8b");
                    plan.cluster = read_cluster(cluster);
                    scale_to_nodes(plan.cluster, 2);
                    plan.framework = framework;
                    plan.training = {.global_batch_size = 32, .sequence_length = 4096};
                    plan.parallelism = {.tensor = 2, .pipeline = pipeline, .data = 8 / pipeline};
                    plan.parallelism.recompute = {kind, 0};
                    const Prediction p = estimate(plan);
                    ASSERT_FALSE(p.times.empty()) << text(p.rejections.front());
                    const StepInterval& i = p.interval;
                    EXPECT_LT(i.low, p.step);
                    EXPECT_GT(i.high, p.step);
                    EXPECT_LE(Time{}, i.low);
                    Time sum, parts;
                    for (const Time& rest : i.rests) sum += rest;
                    for (const PartInterval& one : i.parts) parts += one.time;
                    EXPECT_EQ(sum, p.step);
                    EXPECT_EQ(parts, p.step);
                    Prediction wider = p;
                    for (GemmConstants& g : wider.plan.cluster.device.calibration.gemm) g.spread += 0.1;
                    EXPECT_GT(step_interval(wider).high, i.high) << "less certain constants, a wider interval";
                    EXPECT_LT(step_interval(wider).low, i.low);
                }
}

TEST(Interval, OfNothingIsNothing) {
    EXPECT_TRUE(step_interval({}).parts.empty());
    EXPECT_EQ(step_interval({}).high, Time{});
}

}  // namespace
}  // namespace foretrain
