// The law of the ladder: bound <= estimate, and estimate == simulate to the picosecond, over random
// plans. The estimate folds bodies as max-plus maps, the simulation walks every kernel on an event
// queue: two ways to the same number.
//
// And the law of memory, as far as it needs no run: closed form == what lowering lays out, and the
// live peak that the simulation counts == the one in closed form <= what is allocated.
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/verify.h"
#include "sim/estimate.h"
#include "sim/plan_costs.h"
#include "sim/predict.h"
#include "sim/simulator.h"
#include "tests/laws/support/plans.h"

namespace foretrain::test {
namespace {

constexpr int plans = 2000;

TEST(Ladder, BoundEstimateAndSimulationAgree) {
    std::mt19937 random(1);
    double tightest = 0, loosest = 1, least_use = 1;
    int interleaved = 0, hosted = 0, in_part = 0, routed = 0, latent = 0, exchanged = 0;
    for (int n = 0; n < plans; ++n) {
        const Plan plan = random_plan(random);
        SCOPED_TRACE(describe(plan.parallelism) + " " + plan.model.name + " plan " + std::to_string(n));
        const Skeleton skeleton = make_skeleton(plan);
        const CostModel cost(plan);
        const Skeleton brief = make_skeleton(plan, Depth::brief);
        Estimator estimator(brief, cost);
        const Estimate estimate = estimator.estimate();
        const Program program = lower(skeleton);
        const Trace trace = simulate(program, cost);
        ASSERT_EQ(step_time(trace), estimate.step);
        PlanCosts costs(plan);
        costs.set(plan.parallelism);
        const Time bound = costs.bound();
        ASSERT_LE(bound, estimate.step);
        ASSERT_GT(bound, Time{0});
        const std::vector<StageMemory> memory = estimator.memory();
        const std::vector<WireCount> wire = estimator.wire();
        for (std::size_t s = 0; s < program.stages.size(); ++s) {
            const StageTime& t = estimate.times[s];
            ASSERT_EQ(trace.ranks[s].steps[0].duration, t.step) << "stage " << s;
            ASSERT_EQ(t.forward + t.backward + t.recompute + t.optimizer + t.tensor_exposed + t.context_exposed +
                          t.expert_exposed + t.data_exposed + t.host_exposed + t.overhead + t.pipeline_exposed,
                      t.step);
            ASSERT_GE(t.pipeline_exposed, Time{0});
            ASSERT_GE(t.context_exposed, Time{0});
            ASSERT_GE(t.host_exposed, Time{0});
            hosted += t.host_exposed > Time{0} ? 1 : 0;
            if (plan.parallelism.context == 1) {
                ASSERT_EQ(t.context_exposed, Time{0});
            }
            ASSERT_GE(t.data_exposed, Time{0});
            // Gradients that are sums over tokens or heads of all tensor ranks are reduced on that stream too.
            const bool over_heads = plan.model.query_key_norm == QueryKeyNorm::shared;
            if (skeleton.context.replicas() == 1 && plan.parallelism.expert_replicas() == 1 &&
                !plan.parallelism.sequence_parallel && !over_heads) {
                ASSERT_EQ(t.data_exposed, Time{0});
            }
            ASSERT_EQ(memory[s].allocated(), program.stages[s].arena()) << "stage " << s;
            ASSERT_EQ(memory[s].live_peak, trace.ranks[s].live_peak) << "stage " << s;
            ASSERT_LE(memory[s].live_peak, memory[s].allocated());
            ASSERT_EQ(wire[s], trace.ranks[s].wire) << "stage " << s;
            least_use = std::min(least_use, gibibytes(memory[s].live_peak) / gibibytes(memory[s].allocated()));
        }
        routed += plan.model.has_experts() ? 1 : 0;
        latent += plan.model.is_latent() ? 1 : 0;
        exchanged += plan.parallelism.expert > 1 ? 1 : 0;
        interleaved += plan.parallelism.virtual_pipeline > 1 ? 1 : 0;
        in_part += skeleton.context.shard_groups() > 1 ? 1 : 0;
        const double ratio = seconds(bound) / seconds(estimate.step);
        tightest = std::max(tightest, ratio);
        loosest = std::min(loosest, ratio);
    }
    EXPECT_GT(interleaved, plans / 20);
    EXPECT_GT(hosted, plans / 20);
    EXPECT_GT(in_part, plans / 20);
    EXPECT_GT(routed, plans / 20);
    EXPECT_GT(latent, plans / 20);
    EXPECT_GT(exchanged, plans / 50);
    std::printf("bound / estimate: %.3f to %.3f; least live peak / allocated: %.3f\n", loosest, tightest, least_use);
}

// Schedules long enough to have a steady part, chunks interleaved or not, with every kind of overlap.
TEST(Ladder, HoldsForLongSchedules) {
    // Without a host, with one that waits for messages, and with one that runs ahead.
    const std::array frameworks{"foretrain", "megatron-lm@2022", "fsdp@torchtitan"};
    for (const auto& [pipeline, chunks, microbatches] :
         {std::tuple{2, 1, 100}, {2, 2, 100}, {2, 6, 64}, {3, 2, 90}, {4, 3, 96}, {4, 1, 67}, {6, 2, 60}})
        for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7, 8})
            for (const bool overlap : {true, false}) {
                const int zero = std::array{0, 1, 3}[static_cast<std::size_t>(variant % 3)];
                Parallelism p;
                p.pipeline = pipeline;
                p.virtual_pipeline = chunks;
                p.data = 2;
                p.zero_stage = zero;
                p.overlap = {overlap, overlap, overlap || chunks > 1};
                Plan plan = small_plan(small_gpt(), p, 2 * microbatches);
                plan.model.layers = 12;
                plan.framework = frameworks[static_cast<std::size_t>(variant / 3)];
                const Skeleton skeleton = make_skeleton(plan);
                const CostModel cost(plan);
                EXPECT_EQ(step_time(simulate(lower(skeleton), cost)), Estimator(skeleton, cost).estimate().step)
                    << describe(p) << ", " << microbatches << " microbatches";
            }
}

// Groups of replicas inside nodes and across them, in every stage of sharding.
TEST(Ladder, HoldsForShardsOfEverySize) {
    for (const int zero : {1, 2, 3})
        for (const std::int64_t shard : {2, 4, 8, 16})
            for (const std::int64_t microbatches : {1, 4}) {
                Parallelism p;
                p.tensor = 2;
                p.data = 16;
                p.zero_stage = zero;
                p.zero_shard_size = shard;
                const Plan plan = small_plan(small_llama(), p, 16 * microbatches);
                const Skeleton skeleton = make_skeleton(plan);
                const CostModel cost(plan);
                EXPECT_EQ(step_time(simulate(lower(skeleton), cost)), Estimator(skeleton, cost).estimate().step)
                    << describe(p);
            }
}

// What a sweep asks for, with its parts shared between plans, is what a plan alone is predicted to take.
TEST(Ladder, SharedPartsSayTheSame) {
    std::mt19937 random(3);
    int compared = 0, in_part = 0, others = 0, exchanged = 0;
    for (int n = 0; n < 250; ++n) {
        const Plan base = random_plan(random);
        PlanCosts costs(base);
        for (int change = 0; change < 12; ++change) {
            Plan plan = base;
            Parallelism& p = plan.parallelism;
            if (change > 0) p.zero_stage = static_cast<int>(random() % 4);
            if (change > 0) p.zero_shard_size = random() % 2 == 0 ? 0 : 2 << random() % 3;
            if (p.zero_stage == 0) p.zero_shard_size = 0;
            if (change > 0 && random() % 2 == 0) p.micro_batch_size = 1 + static_cast<std::int64_t>(random() % 3);
            if (change > 0 && random() % 2 == 0)
                p.recompute = {Recompute::Kind::block, 1 + static_cast<std::int64_t>(random() % 12)};
            if (change > 0 && random() % 3 == 0) p.recompute = {};
            if (change > 0 && random() % 3 == 0 && p.data % 2 == 0) p.data /= 2, p.context *= 2;
            if (change > 0 && random() % 3 == 0 && p.virtual_pipeline > 1 && p.stage_layers.empty())
                p.virtual_pipeline = 1;
            if (change > 0 && random() % 4 == 0 && p.stage_layers.empty() && p.first_stage_layers == 0 &&
                p.last_stage_layers == 0)
                p.data *= p.pipeline, p.pipeline = p.virtual_pipeline = 1;
            // What a sweep also varies.
            if (change > 0 && random() % 3 == 0 && p.data % 2 == 0) p.data /= 2, p.tensor *= 2;
            if (change > 0 && random() % 3 == 0) p.sequence_parallel = p.tensor > 1 && !p.sequence_parallel;
            if (change > 0 && plan.model.has_experts()) {
                p.expert = std::int64_t{1} << random() % 3;
                p.expert_tensor = random() % 2 == 0 ? p.tensor : 1;
                p.sequence_parallel = p.tensor > 1;
            }
            if (change > 0 && random() % 3 == 0)
                p.schedule = p.schedule == Schedule::gpipe ? Schedule::one_f_one_b : Schedule::gpipe;
            if (change > 0 && random() % 3 == 0)
                p.context_method =
                    p.context_method == ContextMethod::ring ? ContextMethod::all_to_all : ContextMethod::ring;
            if (!check(plan).empty()) continue;
            SCOPED_TRACE(describe(p) + " " + plan.model.name + " plan " + std::to_string(n));
            const Prediction alone = estimate(plan);
            costs.set(p);
            ASSERT_EQ(costs.peak_bytes(), alone.peak_bytes());
            ASSERT_LE(costs.least_bytes(), alone.peak_bytes());
            ASSERT_EQ(costs.step(), alone.step);
            ASSERT_LE(costs.bound(), alone.step);
            ++compared;
            exchanged += p.expert != base.parallelism.expert ? 1 : 0;
            for (const bool other :
                 {p.tensor != base.parallelism.tensor, p.sequence_parallel != base.parallelism.sequence_parallel,
                  p.schedule != base.parallelism.schedule,
                  p.context > 1 && p.context_method != base.parallelism.context_method})
                others += other ? 1 : 0;
            in_part += p.zero_shard_size > 0 && p.zero_shard_size < p.context * p.data ? 1 : 0;
        }
    }
    EXPECT_GT(compared, 500);
    EXPECT_GT(in_part, 50);
    EXPECT_GT(others, 400);
    EXPECT_GT(exchanged, 50);
}

// Every random plan's program is proven runnable.
TEST(Ladder, EveryProgramVerifies) {
    std::mt19937 random(2);
    for (int n = 0; n < 100; ++n) {
        const Plan plan = random_plan(random);
        const auto wrong = verify(lower(make_skeleton(plan)));
        ASSERT_FALSE(wrong.has_value()) << describe(plan.parallelism) << "\n" << *wrong;
    }
}

// A program that lacks any one kernel no longer agrees: the law can fail. (One stage, and nothing
// overlapped, since a kernel may hide behind a message or a gather.)
TEST(LadderMutation, IsCaught) {
    Parallelism p;
    p.tensor = 2;
    const Plan plan = small_plan(small_gpt(), p);
    const Skeleton skeleton = make_skeleton(plan);
    const CostModel cost(plan);
    const Time step = Estimator(skeleton, cost).estimate().step;
    int caught = 0, tried = 0;
    const Program program = lower(skeleton);
    for (std::size_t i = 0; i < program.stages[0].instructions.size(); ++i) {
        const Instruction& instruction = program.stages[0].instructions[i];
        if (instruction.kind != InstructionKind::kernel || instruction.stream != Stream::compute) continue;
        Program mutated = program;
        mutated.stages[0].instructions[i].kind = InstructionKind::record;
        caught += step_time(simulate(mutated, cost)) != step ? 1 : 0;
        ++tried;
    }
    EXPECT_EQ(caught, tried);
    EXPECT_GT(tried, 100);
}

}  // namespace
}  // namespace foretrain::test
