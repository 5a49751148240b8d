// The moment of the peak, and the parts of a step that tell what it goes to.
#include "sim/live_peak.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "sim/predict.h"

namespace foretrain::test {
namespace {

Plan gpt2(std::int64_t pipeline, std::int64_t tensor, std::int64_t devices = 8) {
    Plan plan;
    plan.model = read_model("gpt2");
    plan.cluster = read_cluster("dgx-a100");
    scale_to_devices(plan.cluster, devices);
    plan.framework = "foretrain";
    plan.training.global_batch_size = 64;
    plan.training.sequence_length = 1024;
    plan.parallelism.pipeline = pipeline;
    plan.parallelism.tensor = tensor;
    plan.parallelism.data = devices / pipeline / tensor;
    return plan;
}

PeakMoment moment(const Skeleton& skeleton, std::size_t stage) {
    const Flight flight = flight_of(skeleton.stages[stage].order, skeleton.stages[stage].chunks.size());
    const std::vector<Holding> holdings = holdings_of(skeleton, stage);
    const auto holding = [&](std::size_t c) -> const Holding& { return holdings[c]; };
    return moment_of(skeleton, stage, holdings, live_peak(flight, holdings.size(), holding));
}

TEST(LivePeak, OfOneStageIsInTheHeadOfOneMicrobatch) {
    const Prediction p = estimate(gpt2(1, 1));
    ASSERT_EQ(p.peaks.size(), 1u);
    // GPT-2's logits are larger than what a layer needs beside all that is kept: once they are there, the
    // backward pass only gives back.
    EXPECT_EQ(p.peaks[0].pass, "forward");
    EXPECT_EQ(p.peaks[0].section, "head");
    EXPECT_EQ(p.peaks[0].microbatch, 0);
    EXPECT_EQ(p.peaks[0].in_flight, 1);
}

TEST(LivePeak, OfAStageHoldsAsManyMicrobatchesAsStagesFollow) {
    const Prediction p = estimate(gpt2(4, 1));
    ASSERT_EQ(p.peaks.size(), 4u);
    for (std::int64_t s = 0; s < 4; ++s) EXPECT_EQ(p.peaks[static_cast<std::size_t>(s)].in_flight, 4 - s) << s;
    EXPECT_EQ(p.peaks[0].section.rfind("layer", 0), 0u) << "no logits there: " << p.peaks[0].section;
    // The last stage has its logits after the forward pass, and begins to send their gradient on top.
    EXPECT_EQ(p.peaks[3].pass, "message");
    EXPECT_EQ(text(p.peaks[3]), "message of microbatch 0, between passes; 1 in flight");
}

// Interleaved, the first stage of p begins (p - 1) 2 + (v - 1) p + 1 passes before its first backward one.
TEST(LivePeak, CountsTheChunksInFlight) {
    Plan plan = gpt2(4, 1);
    plan.parallelism.virtual_pipeline = 3;
    const Prediction p = estimate(plan);
    ASSERT_FALSE(p.peaks.empty());
    EXPECT_EQ(p.peaks[0].in_flight, 3 * 2 + 2 * 4 + 1);
    EXPECT_EQ(p.peaks[0].section.rfind("layer", 0), 0u) << p.peaks[0].section;
}

// A brief stage has few of its layers written out, and must name the layer of the full one.
TEST(LivePeak, IsInTheSameLayerOfABriefStage) {
    using Kind = Recompute::Kind;
    for (const std::int64_t pipeline : {1, 2})
        for (const Recompute& recompute :
             {Recompute{}, Recompute{Kind::selective, 0}, Recompute{Kind::full, 0}, Recompute{Kind::block, 6},
              Recompute{Kind::segment, 3}, Recompute{Kind::every, 2}})
            for (const int zero : {0, 3}) {
                Plan plan = gpt2(pipeline, 1);
                plan.model.layers = 48;
                plan.model.vocab_size = 1000;  // so that the layers matter
                plan.parallelism.recompute = recompute;
                plan.parallelism.zero_stage = zero;
                const Skeleton full = make_skeleton(plan), brief = make_skeleton(plan, Depth::brief);
                for (std::size_t s = 0; s < full.stages.size(); ++s) {
                    EXPECT_EQ(text(moment(brief, s)), text(moment(full, s)))
                        << describe(plan.parallelism) << " stage " << s;
                    EXPECT_FALSE(moment(full, s).section.empty()) << describe(plan.parallelism) << " stage " << s;
                }
            }
}

TEST(Breakdown, KernelsOfBothPassesAreTheirKinds) {
    for (const Prediction& p : {estimate(gpt2(1, 1)), estimate(gpt2(2, 2)), estimate(gpt2(4, 2))})
        for (std::size_t s = 0; s < p.times.size(); ++s) {
            const StageTime& t = p.times[s];
            EXPECT_GT(t.gemm, Time{});
            EXPECT_GT(t.attention, Time{});
            EXPECT_GT(t.other_kernels(), Time{});
            EXPECT_EQ(t.head > Time{}, s + 1 == p.times.size()) << "the head is on the last stage";
        }
}

TEST(Breakdown, BubbleIsWhatFreeMessagesLeave) {
    EXPECT_EQ(estimate(gpt2(1, 1)).times[0].bubble, Time{});
    const Prediction p = estimate(gpt2(4, 1));
    for (const StageTime& t : p.times) {
        EXPECT_GE(t.bubble, Time{});
        EXPECT_GE(t.messages(), Time{});
    }
    const StageTime& first = p.times[0];
    EXPECT_GT(first.messages(), Time{});
    // 1F1B, 32 microbatches: the first stage waits at least for the three others' passes of one microbatch.
    Time others;
    for (std::size_t s = 1; s < 4; ++s) others += (p.times[s].forward + p.times[s].backward) / 32;
    EXPECT_GE(first.bubble, others);
    // Faster links leave the bubble and take from the messages.
    Plan faster = gpt2(4, 1);
    faster.cluster.domain.pairwise_gbps *= 1e3;
    faster.cluster.domain.pairwise_a_us = faster.cluster.domain.pairwise_p_us = 0;
    const StageTime quick = estimate(faster).times[0];
    EXPECT_LT(quick.messages(), first.messages());
    EXPECT_EQ(quick.bubble, first.bubble);
}

}  // namespace
}  // namespace foretrain::test
