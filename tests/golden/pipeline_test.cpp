// The arithmetic of pipeline schedules, worked out by hand, against what `estimate` and the memory
// layout say (arXiv:2104.04473, section 2.2; the in-flight counts as Megatron-LM's schedules.py has
// them).
//
// The machine is imagined so that a layer's attention takes 1 us forward and 2 us backward and all
// else nothing: F = L / (p v) and B = 2 F for a chunk of a model of L layers, and a step takes
//
//   (m v + p - 1) (F + B)        of which (p - 1) / (m v) of the ideal m v (F + B) is bubble
#include <gtest/gtest.h>

#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "plan/program/verify.h"
#include "sim/estimate.h"
#include "sim/plan_costs.h"
#include "sim/simulator.h"

namespace foretrain::test {
namespace {

ClusterSpec attention_machine(std::int64_t devices) {
    constexpr double endless = 1e15;  // GB/s or TFLOP/s: sizes cost nothing
    ClusterSpec c;
    c.name = "imagined";
    c.nodes = 1;
    c.devices_per_node = static_cast<int>(devices);
    c.device.name = "imagined";
    c.device.peak[DType::bf16] = FlopRate::tera(endless);
    c.device.memory = Bytes{GiB};
    c.device.memory_bandwidth = Bandwidth::gigabytes(endless);
    c.device.calibration.gemm = {{.dtype = DType::bf16, .launch_us = 0, .tiles = {{1, 1}}, .splits = {1}}};
    c.device.calibration.attention.forward = {.efficiency = {{128, 1.0}}, .launch_us = 1};
    c.device.calibration.attention.backward = {.efficiency = {{128, 1.0}}, .launch_us = 2};
    c.device.calibration.memory_bound.launch_us = 0;
    c.domain.ring_gbps = c.domain.pairwise_gbps = endless;
    c.domain.a_us = c.domain.pairwise_a_us = 0;
    c.domain.simple_from = Bytes{GiB};
    return c;
}

Plan pipeline(std::int64_t stages, std::int64_t chunks, std::int64_t microbatches, std::int64_t layers) {
    Plan plan;
    plan.model = {.name = "golden",
                  .layers = layers,
                  .hidden_size = 8,
                  .attention_heads = 2,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .ffn_hidden_size = 16,
                  .vocab_size = 16,
                  .positions = Positions::rope,
                  .norm = Norm::rmsnorm,
                  .activation = Activation::gelu};
    plan.cluster = attention_machine(stages);
    plan.framework = "foretrain";
    plan.training.global_batch_size = microbatches;
    plan.training.sequence_length = 4;
    plan.parallelism.pipeline = stages;
    plan.parallelism.virtual_pipeline = chunks;
    return plan;
}

Time step_of(const Plan& plan) {
    for (const Rejection& no : check(plan)) ADD_FAILURE() << text(no);
    const Skeleton skeleton = make_skeleton(plan);
    const CostModel cost(plan);
    const Time step = Estimator(skeleton, cost).estimate().step;
    EXPECT_EQ(step_time(simulate(lower(skeleton), cost)), step);
    PlanCosts costs(plan);
    costs.set(plan.parallelism);
    EXPECT_EQ(costs.bound(), step) << "of a pipeline without messages the bound is all there is";
    return step;
}

TEST(GoldenPipeline, BubbleIsStagesLessOneOverMicrobatchesTimesChunks) {
    for (std::int64_t p : {2, 3, 4})
        for (std::int64_t v : {1, 2, 3})
            for (std::int64_t rounds : {1, 2, 4}) {
                const std::int64_t m = rounds * p, layers = 6 * p;
                const std::int64_t chunk = 3 * layers / (p * v);  // F + B
                EXPECT_EQ(step_of(pipeline(p, v, m, layers)), from_microseconds(1) * ((m * v + p - 1) * chunk))
                    << "pp " << p << " v " << v << " m " << m;
            }
    // By hand: 4 stages, 8 microbatches, 24 layers. Without chunks 8 + 3 passes of 18 us, a bubble of
    // 3/8; with two chunks a stage 16 + 3 of 9 us, a bubble of 3/16.
    EXPECT_EQ(step_of(pipeline(4, 1, 8, 24)), from_microseconds(198));
    EXPECT_EQ(step_of(pipeline(4, 2, 8, 24)), from_microseconds(171));
}

// Slots of activations on each stage, in passes of a chunk. 4 stages, 16 microbatches.
TEST(GoldenPipeline, ActivationsInFlight) {
    const auto in_flight = [](const Plan& plan) {
        std::vector<std::int64_t> out;
        for (const StageSkeleton& s : make_skeleton(plan).stages)
            out.push_back(flight_of(s.order, s.chunks.size()).fullest);
        return out;
    };
    using Counts = std::vector<std::int64_t>;
    EXPECT_EQ(in_flight(pipeline(4, 1, 16, 24)), (Counts{4, 3, 2, 1}));
    EXPECT_EQ(in_flight(pipeline(4, 2, 16, 24)), (Counts{11, 9, 7, 5}));
    EXPECT_EQ(in_flight(pipeline(4, 3, 16, 24)), (Counts{15, 13, 11, 9}));
    EXPECT_EQ(in_flight(pipeline(4, 2, 4, 24)), (Counts{8, 8, 7, 5})) << "all that there are";
}

// What middle stages hold is exactly that many chunks: their slots are one pool. On stage 1 of 4, 9
// passes of half a stage against 3 of a whole one.
TEST(GoldenPipeline, MiddleStagesHoldNoMoreThanIsInFlight) {
    const Skeleton plain = make_skeleton(pipeline(4, 1, 16, 24)), chunks = make_skeleton(pipeline(4, 2, 16, 24));
    const auto activations = [](const Skeleton& s, std::size_t stage) {
        return s.stages[stage].region_bytes[static_cast<std::size_t>(Region::activations)];
    };
    const Bytes slot = chunks.stages[1].chunks[0].stage->slot_bytes;
    EXPECT_EQ(activations(chunks, 1), slot * 9);
    // The first layer of a chunk reads its input from the message ring instead of its slot.
    const Bytes input = plain.stages[1].chunks[0].input.entry;
    EXPECT_EQ(activations(plain, 1), (slot * 2 + input) * 3);
    // The head's slot is the last chunk's alone: one, though the stage has five passes in flight. The
    // other chunk has five of its own when F4 runs, just before B0.
    EXPECT_EQ(chunks.stages[3].chunks[1].slots, 1);
    EXPECT_EQ(chunks.stages[3].chunks[0].slots, 5);
}

// Messages that take 1 us, beside computing and not. 2 stages of a layer, 4 microbatches. F = 1, B = 2; times in us.
//
//   beside   stage 0  F0 0-1  F1 1-2         B0 6-8  F2 8-9          B1 9-11   F3 11-12  B2 14-16  B3 17-19
//            stage 1          F0 2-3  B0 3-5  F1 5-6  B1 6-8  F2 10-11  B2 11-13  F3 13-14  B3 14-16
//
//   held up  stage 0  F0 0-1  F1 2-3         B0 6-8  F2 8-9          B1 10-12  F3 12-13  B2 14-16  B3 18-20
//            stage 1          F0 2-3  B0 3-5  F1 6-7  B1 7-9  F2 10-11  B2 11-13  F3 14-15  B3 15-17
//
//   F1 of stage 0 waits for its own F0 to be sent 1-2; F1 is received once B0 is through, 5-6, while the
//   gradient of B0 goes back. Nobody misses the microsecond that F1 loses; the step ends with the one of F3.
TEST(GoldenPipeline, MessagesHoldUpTheStagesAtBothEnds) {
    Plan plan = pipeline(2, 1, 4, 2);
    plan.cluster.domain.pairwise_a_us = 1;
    const auto step = [&](bool beside) {
        plan.parallelism.overlap.pipeline = beside;
        EXPECT_EQ(check(plan).size(), 0U);
        const Skeleton skeleton = make_skeleton(plan);
        const CostModel cost(plan);
        const Program program = lower(skeleton);
        EXPECT_EQ(verify(program), std::nullopt);
        const Time simulated = step_time(simulate(program, cost));
        EXPECT_EQ(Estimator(skeleton, cost).estimate().step, simulated);
        return simulated;
    };
    EXPECT_EQ(step(true), from_microseconds(19));
    EXPECT_EQ(step(false), from_microseconds(20));
}

// The plan's skeleton, made as if its framework stood still for messages.
Skeleton standing_still(const Plan& plan, Time each, std::int16_t share) {
    Skeleton s = make_skeleton(plan);
    s.context.added.stall_message = each;
    s.context.added.message_share = share;
    for (StageSkeleton& stage : s.stages)
        for (ChunkSkeleton& chunk : stage.chunks) chunk.stage = build_stage(s.context, chunk.stage->shape);
    return s;
}

// A framework that makes compute stand still for 1 us at each message, which takes no time itself. 2 stages,
// 4 microbatches, a layer a stage: a forward pass takes 1 on stage 0, 2 on stage 1; a backward pass 3 and 2.
//
//   stage 0  F0 0-1  F1 1-2         B0 5-8  F2 8-9          B1 9-12   F3 12-13  B2 13-16   B3 17-20
//   stage 1          F0 1-3  B0 3-5  F1 5-7  B1 7-9  F2 9-11  B2 11-13   F3 13-15  B3 15-17
//
//   20 in place of (4 + 1) 3 = 15. Of stage 0's 20 - 12 the messages cost 5, and 3 are the bubble.
//
// 2 stages of 2 chunks of a layer, 2 microbatches: only F of the first chunk takes 1, only B of the last takes 2.
//
//   stage 0  F0.0 0-1  F0.1 1-2  F1.0 3-5  F1.1 5-7   B1.0 9-12  B1.1 13-16   B0.0 16-19  B0.1 19-22
//   stage 1  F0.0 1-3  F0.1 3-5  F1.0 5-7  B1.0 7-9   F1.1 9-11  B1.1 11-13   B0.0 13-16  B0.1 16-19
//
//   22 in place of (2 2 + 1) 3 = 15.
TEST(GoldenPipeline, StagesStandStillAtMessages) {
    const Time us = from_microseconds(1);
    const auto run = [&](const Plan& plan) {
        const Skeleton skeleton = standing_still(plan, us, 0);
        const CostModel cost(plan);
        const Program program = lower(skeleton);
        EXPECT_EQ(verify(program), std::nullopt);
        Estimator estimator(skeleton, cost);
        const Estimate e = estimator.estimate();
        EXPECT_EQ(step_time(simulate(program, cost)), e.step);
        EXPECT_EQ(estimator.estimate_with_free_messages().step, us * 15);
        return e;
    };
    const Estimate plain = run(pipeline(2, 1, 4, 2));
    EXPECT_EQ(plain.step, us * 20);
    EXPECT_EQ(plain.times[0].pipeline_exposed, us * 8);
    EXPECT_EQ(plain.times[0].overhead, Time{});
    EXPECT_EQ(plain.times[0].data_exposed, Time{});
    EXPECT_EQ(run(pipeline(2, 2, 2, 4)).step, us * 22);
}

// A share of what a message takes: a quarter of 4 us is the 1 us of above, and comes after the message.
TEST(GoldenPipeline, StagesStandStillForAShareOfAMessage) {
    Plan plan = pipeline(2, 2, 2, 4);
    plan.cluster.domain.pairwise_a_us = 4;
    const Skeleton skeleton = standing_still(plan, Time{}, 250);
    const CostModel cost(plan);
    const Program program = lower(skeleton);
    EXPECT_EQ(verify(program), std::nullopt);
    EXPECT_EQ(program_from_text(to_text(program)), program);
    int passes = 0;
    for (const StageProgram& stage : program.stages)
        for (const Instruction& i : stage.instructions)
            if (i.kind == InstructionKind::stall) {
                EXPECT_EQ(cost.instruction(i, stage), from_microseconds(1));
                ++passes;
            }
    EXPECT_EQ(passes, 2 * (3 + 3)) << "of each microbatch all but the first pass forward and the first backward";
    EXPECT_EQ(step_time(simulate(program, cost)), Estimator(skeleton, cost).estimate().step);
}

// The host of Megatron-LM's first versions enqueues a pass from when the device has synchronised on its message.
TEST(GoldenPipeline, AHostThatWaitsForMessagesWaitsForWhatTheyTake) {
    Plan plan = pipeline(2, 2, 2, 4);
    plan.framework = "megatron-lm@2022";
    ASSERT_EQ(check(plan).size(), 0U);
    const Program program = lower(make_skeleton(plan));
    int passes = 0;
    for (const StageProgram& stage : program.stages)
        for (std::size_t n = 0; n < stage.instructions.size(); ++n) {
            const Instruction& i = stage.instructions[n];
            if (i.kind != InstructionKind::launch || i.waits == 0) continue;
            const Instruction& before = stage.instructions[static_cast<std::size_t>(i.wait[0].instruction)];
            if (before.kind == InstructionKind::wait) continue;  // of a pass without a message
            EXPECT_EQ(before.kind, InstructionKind::stall);
            EXPECT_EQ(before.axis, Axis::pipeline);
            EXPECT_EQ(before.like, InstructionKind::ring_shift) << "the last of the two";
            ++passes;
        }
    EXPECT_EQ(passes, 2 * (3 + 3));
}

// It enqueues what stands before and after the layers too, and waits for the device at the beginning of a microbatch.
TEST(GoldenPipeline, AHostThatWaitsForBatchesEnqueuesEachFromWhereTheDeviceIs) {
    Plan plan = pipeline(1, 1, 2, 1);
    plan.framework = "megatron-deepspeed@2022";
    ASSERT_EQ(check(plan).size(), 0U);
    const Program program = lower(make_skeleton(plan));
    const HostCosts& host = framework_named(plan.framework).costs.host;
    const Time operation = from_microseconds(figure_at(host.operation_us, plan.cluster.device.dense_bf16_tera()));
    std::vector<Time> launches;
    std::vector<bool> waiting;
    for (const Instruction& i : program.stages[0].instructions)
        if (i.kind == InstructionKind::launch) launches.push_back(Time{i.count}), waiting.push_back(i.waits > 0);
    ASSERT_EQ(launches.size(), 2U * 6U) << "batch, layer and head of two microbatches, forward and back";
    EXPECT_EQ(launches[0], operation * host.embedding.forward);
    EXPECT_EQ(launches[2], operation * host.head.forward);
    EXPECT_EQ(launches[3], operation * host.head.backward);
    EXPECT_EQ(launches[5], operation * host.embedding.backward);
    for (std::size_t n = 0; n < launches.size(); ++n) EXPECT_EQ(waiting[n], n % 6 == 0) << n;
}

// The optimizer steps chunk by chunk, but once: what it stands still for is shared among them.
TEST(GoldenPipeline, AStepStandsStillOnceHoweverManyChunks) {
    Plan plan = pipeline(2, 1, 4, 8);
    plan.framework = "megatron-lm@2022";
    for (const std::int64_t chunks : {1, 2, 4}) {
        plan.parallelism.virtual_pipeline = chunks;
        ASSERT_EQ(check(plan).size(), 0U);
        const CostModel cost(plan);
        EXPECT_EQ(Estimator(make_skeleton(plan), cost).estimate().times[0].overhead, from_microseconds(5000));
    }
}

// Without overlap no chunk computes while another's gradients are reduced. 2 stages of 2 chunks of one
// layer, 2 microbatches, 2 data ranks, every reduction 3 us. F = 1, B = 2; times in us.
//
//   stage 0  F0.0 0-1  F0.1 1-2  F1.0 2-3  F1.1 3-4   B1.0 6-8  B1.1 9-11   B0.0 20-22  B0.1 22-24
//   stage 1  F0.0 1-2  F0.1 2-3  F1.0 3-4  B1.0 4-6   F1.1 6-7  B1.1 7-9    B0.0 18-20  B0.1 20-22
//
//   stage 1's last chunk (layer, final norm, head) is reduced 9-18: B0.0, whose gradient is there at 8,
//   waits for 9 us of it. Its first chunk's layer 22-25, then the loss 25-28.
//   stage 0's last chunk (a layer) is reduced 11-14, while it waits for B0.0's gradient anyway; its first
//   (embedding, layer) 24-30.
TEST(GoldenPipeline, WithoutOverlapReductionsHoldUpTheNextChunk) {
    Plan plan = pipeline(2, 2, 2, 4);
    plan.cluster = attention_machine(4);
    plan.cluster.domain.a_us = 3;
    plan.training.global_batch_size = 4;
    plan.parallelism.data = 2;
    plan.parallelism.overlap.gradient_reduce = false;
    ASSERT_EQ(check(plan).size(), 0u);
    const Skeleton skeleton = make_skeleton(plan);
    const CostModel cost(plan);
    const Estimate e = Estimator(skeleton, cost).estimate();
    const Program program = lower(skeleton);
    EXPECT_EQ(verify(program), std::nullopt);
    EXPECT_EQ(step_time(simulate(program, cost)), e.step);
    EXPECT_EQ(e.step, from_microseconds(30));
    EXPECT_EQ(e.times[0].data_exposed, from_microseconds(6));
    EXPECT_EQ(e.times[1].data_exposed, from_microseconds(9 + 3 + 3));
    EXPECT_EQ(e.times[1].step, from_microseconds(28));
}

// Messages of all sizes of pipelines meet and nothing deadlocks; a program that takes one chunk's for
// another's is refused.
TEST(GoldenPipeline, InterleavedProgramsVerify) {
    for (std::int64_t p : {2, 3, 4, 5, 8})
        for (std::int64_t v : {2, 3, 7})
            for (std::int64_t rounds : {1, 2, 5}) {
                Plan plan = pipeline(p, v, rounds * p, p * v);
                EXPECT_EQ(verify(unroll(make_skeleton(plan))), std::nullopt) << describe(plan.parallelism);
                plan.parallelism.schedule = Schedule::gpipe;
                EXPECT_EQ(verify(unroll(make_skeleton(plan))), std::nullopt) << describe(plan.parallelism);
            }
    for (const auto& [p, v] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {2, 6}, {3, 4}, {4, 3}}) {
        const Program program = lower(make_skeleton(pipeline(p, v, 2 * p, p * v)));
        EXPECT_EQ(verify(program), std::nullopt) << p << " stages of " << v;
    }
    Program wrong = unroll(make_skeleton(pipeline(2, 2, 4, 4)));
    for (Instruction& i : wrong.stages[1].instructions)
        if (i.kind == InstructionKind::send && i.stream == Stream::send_next) i.chunk = 1;
    const auto found = verify(wrong);
    ASSERT_TRUE(found.has_value());
    EXPECT_NE(found->find("pairs different chunks"), std::string::npos) << *found;
}

}  // namespace
}  // namespace foretrain::test
