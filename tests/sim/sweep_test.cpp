// A sweep's answer against brute force: every enumerated plan predicted by itself, one after the
// other, and the best and the front picked from the list.
#include "sim/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/check.h"
#include "sim/predict.h"

namespace foretrain::test {
namespace {

Plan base(const char* model, std::int64_t devices, std::int64_t batch, std::int64_t sequence, const char* framework) {
    Plan plan;
    plan.model = read_model(model);
    plan.cluster = read_cluster("dgx-a100");
    scale_to_devices(plan.cluster, devices);
    plan.framework = framework;
    plan.training.global_batch_size = batch;
    plan.training.sequence_length = sequence;
    return plan;
}

struct Known {
    Plan plan;
    Time step;
    Bytes peak;
};

TEST(Sweep, OfWhatDoesNotFitTheNearestIsTheExample) {
    const Plan from = base("gpt2", 8, 64, 1024, "megatron-lm");
    const SweepResult none = sweep(from, {.max_memory = Bytes{MiB}});
    EXPECT_EQ(none.base.model, from.model);
    ASSERT_EQ(none.feasible, 0);
    Bytes least{INT64_MAX};
    std::string nearest;
    for (const Plan& plan : enumerate(from, {}))
        if (const Prediction p = estimate(plan); !p.memory.empty() && p.peak_bytes() < least) {
            least = p.peak_bytes();
            nearest = describe(plan.parallelism);
        }
    EXPECT_EQ(none.fell.at("out_of_memory").example, nearest);
}

std::vector<Known> brute_force(const Plan& from, const SweepSpace& space) {
    std::vector<Known> out;
    for (const Plan& plan : enumerate(from, space)) {
        const Prediction p = estimate(plan);
        if (p.feasible()) out.push_back({plan, p.step, p.peak_bytes()});
    }
    std::stable_sort(out.begin(), out.end(), [](const Known& a, const Known& b) { return a.step < b.step; });
    return out;
}

void expect_brute_force(const Plan& from, const SweepOptions& options) {
    const SweepResult result = sweep(from, options);
    const std::vector<Known> all = brute_force(from, options.space);
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(result.feasible, static_cast<std::int64_t>(all.size()));
    ASSERT_EQ(result.best.size(), std::min(all.size(), static_cast<std::size_t>(options.top)));
    for (std::size_t n = 0; n < result.best.size(); ++n) {
        EXPECT_EQ(result.best[n].step, all[n].step) << n;
        EXPECT_EQ(describe(result.best[n].plan.parallelism), describe(all[n].plan.parallelism)) << n;
    }
    std::vector<std::string> front, found;
    Bytes least{INT64_MAX};
    for (const Known& k : all)
        if (k.peak < least) {
            least = k.peak;
            front.push_back(describe(k.plan.parallelism));
        }
    for (const Prediction& p : result.pareto) found.push_back(describe(p.plan.parallelism));
    EXPECT_EQ(found, front);
}

TEST(Sweep, EqualsBruteForce) {
    expect_brute_force(base("gpt2", 8, 32, 1024, "foretrain"), {.top = 5});
    expect_brute_force(base("llama-3.1-8b", 16, 32, 4096, "megatron-lm"), {.top = 3});
    SweepSpace gpipe;
    gpipe.schedule = {Schedule::gpipe, Schedule::one_f_one_b};
    gpipe.pipeline = {2, 4};
    expect_brute_force(base("gpt2-medium", 8, 16, 512, "foretrain"), {.space = gpipe, .top = 1});
}

// Also which ranks share out experts, and an expert's matrices; with latent attention besides.
TEST(Sweep, EqualsBruteForceOverExperts) {
    SweepSpace space;
    space.micro_batch_size = {1, 2};
    space.recompute = {{}, {Recompute::Kind::full, 0}};
    for (const char* model : {"mixtral-8x7b", "deepseek-v2-lite"}) {
        Plan from = base(model, 8, 16, 1024, "megatron-lm");
        from.model.layers = 8;
        expect_brute_force(from, {.space = space, .top = 4});
        std::set<std::int64_t> experts;
        for (const Known& k : brute_force(from, space)) experts.insert(k.plan.parallelism.expert);
        EXPECT_GT(experts.size(), 2u) << model;
    }
}

TEST(Sweep, ShardSizesAreAnAxisOfStagesThatShard) {
    const Plan from = base("gpt2", 8, 32, 1024, "foretrain");
    SweepSpace space;
    space.tensor = {1, 2};
    space.zero_shard_size = {0, 2, 4};
    expect_brute_force(from, {.space = space, .top = 5});
    std::set<std::string> found;
    for (const Plan& plan : enumerate(from, space)) {
        if (plan.parallelism.tensor == 2 && plan.parallelism.pipeline == 1)
            found.insert(describe_zero(plan.parallelism));
        if (plan.parallelism.zero_shard_size > 0) {
            EXPECT_EQ(plan.parallelism.data % plan.parallelism.zero_shard_size, 0);
        }
    }
    EXPECT_EQ(found, (std::set<std::string>{"0", "1", "1/2", "1/4", "2", "2/2", "2/4", "3", "3/2", "3/4"}));
    for (const Plan& plan : enumerate(from, {})) EXPECT_EQ(plan.parallelism.zero_shard_size, 0);

    space.zero_shard_size = {3};
    space.zero_stage = {1};
    EXPECT_TRUE(enumerate(from, space).empty());
    EXPECT_EQ(why_nothing(from, space).field, "parallelism.zero_shard_size");
    EXPECT_EQ(why_nothing(from, space).allowed, "0");
}

// Seven more spaces, each with something of its own.
TEST(Sweep, EqualsBruteForceInEveryKindOfSpace) {
    expect_brute_force(base("gpt2", 6, 12, 1024, "megatron-lm"), {.space = {.every_micro_batch = true}, .top = 7});
    expect_brute_force(base("llama-3.1-8b", 16, 64, 4096, "megatron-lm"),
                       {.space = {.tensor = {2, 4}, .micro_batch_size = {1, 2}, .every_block = true}, .top = 2});
    expect_brute_force(base("llama-3.1-8b", 32, 32, 1 << 15, "megatron-lm"), {.top = 4});  // context ranks
    expect_brute_force(base("gpt2-xl", 16, 64, 1024, "megatron-lm"), {.space = {.pipeline = {4, 8}}, .top = 10});
    SweepSpace whole;
    whole.sequence_parallel = true;
    whole.zero_stage = {2, 3};
    expect_brute_force(base("gpt2-large", 8, 8, 1024, "foretrain"), {.space = whole, .top = 3});
    SweepSpace in_groups;
    in_groups.recompute = {{Recompute::Kind::segment, 2}, {Recompute::Kind::every, 3}, {Recompute::Kind::block, 2}};
    expect_brute_force(base("gpt2", 8, 16, 1024, "foretrain"), {.space = in_groups, .top = 6});
    Plan counted = base("llama-3.1-8b", 16, 32, 4096, "megatron-lm");
    counted.model.layers = 30;
    counted.parallelism.embedding_and_head_as_layers = true;
    expect_brute_force(counted, {.top = 5});
}

TEST(Sweep, SkipsWhatBoundsExcludeAndNothingElse) {
    const Plan from = base("gpt2", 8, 32, 1024, "foretrain");
    const SweepResult pruned = sweep(from, {.top = 1});
    const SweepResult all = sweep(from, {.top = 1, .exhaustive = true});
    EXPECT_LT(pruned.estimated, all.estimated);
    EXPECT_EQ(all.estimated, all.feasible);
    EXPECT_EQ(pruned.best[0].step, all.best[0].step);
}

TEST(Sweep, IsTheSameForAnyNumberOfThreads) {
    const Plan from = base("gpt2-large", 8, 32, 1024, "foretrain");
    const SweepResult one = sweep(from, {.top = 4, .threads = 1});
    for (int threads : {2, 8}) {
        const SweepResult many = sweep(from, {.top = 4, .threads = threads});
        EXPECT_EQ(many.estimated, one.estimated);
        ASSERT_EQ(many.best.size(), one.best.size());
        for (std::size_t n = 0; n < one.best.size(); ++n)
            EXPECT_EQ(describe(many.best[n].plan.parallelism), describe(one.best[n].plan.parallelism));
        ASSERT_EQ(many.pareto.size(), one.pareto.size());
    }
}

TEST(Sweep, CountsWhyPlansFell) {
    Plan from = base("llama-3.1-70b", 8, 8, 8192, "megatron-lm");
    const SweepResult result = sweep(from, {});
    EXPECT_EQ(result.feasible, 0);
    EXPECT_TRUE(result.best.empty());
    ASSERT_TRUE(result.fell.contains("out_of_memory"));
    EXPECT_EQ(result.fell.at("out_of_memory").count, result.enumerated);
    EXPECT_NE(result.fell.at("out_of_memory").text.find("GiB"), std::string::npos);
}

// Each plan once for each reason.
TEST(Sweep, CountsAPlanOnceForAReason) {
    const SweepResult result = sweep(base("gpt2", 1, std::int64_t{1} << 40, 1024, "megatron-lm"), {});
    ASSERT_FALSE(result.fell.empty());
    for (const auto& [reason, fell] : result.fell) EXPECT_LE(fell.count, result.enumerated) << reason;
}

// A sequence that takes one rank longer than a Time is for leaves the plans that share it.
TEST(Sweep, WhatCannotBeCostedLeavesTheRest) {
    Plan from = base("gpt2", 64, 64, 1 << 25, "megatron-lm");
    from.cluster = read_cluster("dgx-h100");
    scale_to_devices(from.cluster, 64);
    from.model.layers = 1;
    from.model.hidden_size = 128;
    from.model.attention_heads = from.model.kv_heads = 2;
    from.model.ffn_hidden_size = 512;
    from.model.positions = Positions::rope;
    from.model.gated_mlp = true;
    from.model.vocab_size = 1000;
    const SweepResult result = sweep(from, {});
    ASSERT_TRUE(result.fell.contains("cannot_be_costed"));
    EXPECT_NE(result.fell.at("cannot_be_costed").text.find("more than 1000 s"), std::string::npos);
    EXPECT_GT(result.feasible, 0);
}

TEST(Sweep, MaxMemoryIsObeyed) {
    const Plan from = base("gpt2", 8, 32, 1024, "foretrain");
    const Bytes limit{6 * GiB};
    const SweepResult result = sweep(from, {.max_memory = limit});
    ASSERT_FALSE(result.best.empty());
    for (const Prediction& p : result.best) {
        EXPECT_LE(p.peak_bytes(), limit);
        EXPECT_EQ(p.plan.cluster.device.memory, from.cluster.device.memory);  // the device is what it is
    }
}

TEST(Sweep, LongSequencesAreSpreadOverContextRanks) {
    const auto contexts = [](const Plan& from, const SweepSpace& space) {
        std::set<std::int64_t> found;
        for (const Plan& plan : enumerate(from, space)) {
            EXPECT_EQ(plan.world(), from.cluster.devices());
            found.insert(plan.parallelism.context);
        }
        return found;
    };
    using Set = std::set<std::int64_t>;
    Plan from = base("llama-3.1-8b", 32, 32, 8192, "megatron-lm");
    EXPECT_EQ(contexts(from, {}), Set{1});
    EXPECT_EQ(contexts(from, {.context = {1, 2, 3}}), (Set{1, 2}));  // three divide nothing here
    from.training.sequence_length = 1 << 15;
    EXPECT_EQ(contexts(from, {}), (Set{1, 2, 4, 8, 16}));
    // Eight key-value heads over tensor and context ranks.
    from.parallelism.context_method = ContextMethod::all_to_all;
    EXPECT_EQ(contexts(from, {.tensor = {2}}), (Set{1, 2, 4}));
    EXPECT_EQ(contexts(from, {.tensor = {2}, .context_method = {ContextMethod::ring}}), (Set{1, 2, 4, 8, 16}));
    for (const Plan& plan : enumerate(from, {.tensor = {2, 4}})) EXPECT_EQ(check(plan).size(), 0U);

    from = base("gpt2", 8, 8, 1024, "foretrain");
    const std::vector<ContextMethod> both{ContextMethod::ring, ContextMethod::all_to_all};
    expect_brute_force(from, {.space = {.context = {1, 2, 4}, .context_method = both}, .top = 5});
}

TEST(Sweep, SequenceParallelismIsTheFrameworksUnlessAskedFor) {
    const Plan from = base("gpt2-medium", 8, 8, 1024, "megatron-lm");
    SweepSpace space;
    space.tensor = {2};
    for (const Plan& plan : enumerate(from, space)) EXPECT_TRUE(plan.parallelism.sequence_parallel);
    space.sequence_parallel = false;
    for (const Plan& plan : enumerate(from, space)) EXPECT_FALSE(plan.parallelism.sequence_parallel);
}

TEST(Sweep, ATooLongProgramKeepsItsEstimate) {
    Plan long_step = base("gpt-mini", 1, 8192, 2, "foretrain");
    long_step.model.layers = 400;
    SweepOptions options{.top = 1};
    options.space.micro_batch_size = {1};
    options.space.recompute = {{}};
    const SweepResult result = sweep(long_step, options);
    ASSERT_EQ(result.best.size(), 1u);
    EXPECT_TRUE(result.best.front().feasible());
    const Prediction simulated = simulate(result.best.front().plan);
    ASSERT_EQ(simulated.rejections.size(), 1u);
    EXPECT_EQ(simulated.rejections.front().reason, "program_too_long");
    EXPECT_TRUE(simulated.times.empty());
}

TEST(Enumerate, SaysWhyThereIsNothing) {
    const Plan plan = base("gpt2", 8, 8, 1024, "megatron-lm");
    const auto why = [](const Plan& from, const SweepSpace& space) {
        EXPECT_TRUE(enumerate(from, space).empty());
        return text(why_nothing(from, space));
    };
    SweepSpace tensor, together, micro_batch;
    tensor.tensor = {5, 8};
    EXPECT_EQ(why(plan, tensor),
              "parallelism.tensor = 5, 8: leaves no plan for this model, batch and 8 devices (allowed: 1, 2, 4)");
    micro_batch.micro_batch_size = {3};
    EXPECT_TRUE(why(plan, micro_batch).starts_with("parallelism.micro_batch_size = 3: "));
    EXPECT_EQ(why(plan, {.zero_stage = {2, 3}}),
              "parallelism.zero_stage = 2, 3: leaves no plan for megatron-lm on 8 devices; fsdp, deepspeed have 2 "
              "(allowed: 0, 1; try --framework fsdp)");
    together.tensor = {3};
    together.data = {3};
    EXPECT_TRUE(why(plan, together).starts_with("parallelism = the values of the axes: together leave no plan"));
    Plan small = base("gpt2", 8, 3, 1024, "megatron-lm");  // 1, 2, 4 x 1, 2, 4 model ranks: 8, 4, 2, 1 data ranks
    small.model.layers = 1;
    EXPECT_EQ(
        why(small, {}),
        "training.global_batch_size = 3: must be a multiple of the data ranks that this model leaves on 8 devices "
        "(allowed: multiples of 2, 4, 8; try 2)");
    EXPECT_EQ(sweep(small, {}).nothing, text(why_nothing(small, {})));
}

TEST(Enumerate, CountsTuplesThatDivide) {
    // 4 devices, 12 layers, 12 heads: (tensor, pipeline) in {1,2,4} x {1,2,4} with a product of at
    // most 4: (1,1) (1,2) (1,4) (2,1) (2,2) (4,1), with 4, 2, 1, 2, 1, 1 data ranks. Batch 4: a data
    // rank has 1, 2, 4, 2, 4, 4 samples, so 1, 2, 3, 2, 3, 3 micro-batch sizes. ZeRO 0 to 3 where
    // data > 1: 4, 4, 1, 4, 1, 1. Recompute fixed to one.
    // Interleaved besides: stages of 6 layers cut into 2, 3 or 6 chunks, of 3 layers into 3, where the
    // microbatches are a multiple of the stages: (1,2) with 2 microbatches; (1,4) with 4; (2,2) with 4
    // and with 2.
    SweepSpace space;
    space.recompute = {{}};
    EXPECT_EQ(
        enumerate(base("gpt2", 4, 4, 1024, "foretrain"), space).size(),
        std::size_t{1 * 4 + 2 * 4 + 3 * 1 + 2 * 4 + 3 * 1 + 3 * 1} + std::size_t{3 * 1 * 4 + 1 * 1 * 1 + 3 * 2 * 1});
    space.virtual_pipeline = {1};
    EXPECT_EQ(enumerate(base("gpt2", 4, 4, 1024, "foretrain"), space).size(), 29u);
    space.virtual_pipeline = {2, 5};
    for (const Plan& plan : enumerate(base("gpt2", 4, 4, 1024, "foretrain"), space))
        EXPECT_EQ(plan.parallelism.virtual_pipeline, 2);
    space = {.recompute = {{}}};  // GPipe is not interleaved unless asked for
    space.schedule = {Schedule::gpipe};
    EXPECT_EQ(enumerate(base("gpt2", 4, 4, 1024, "foretrain"), space).size(), 29u);
}

// The same space counted by trying every number on every axis and asking whether the plan checks.
TEST(Enumerate, CountsWhatAllCombinationsThatCheckAre) {
    for (const char* framework : {"foretrain", "megatron-lm"}) {
        const Plan from = base("gpt2", 8, 12, 1024, framework);
        const std::int64_t devices = from.cluster.devices(), layers = from.model.layers;
        std::size_t count = 0;
        Plan plan = from;
        Parallelism& p = plan.parallelism;
        for (p.tensor = 1; p.tensor <= devices; ++p.tensor)
            for (p.pipeline = 1; p.pipeline <= devices; ++p.pipeline)
                for (p.data = 1; p.data <= devices; ++p.data) {
                    if (p.tensor * p.pipeline * p.data != devices) continue;
                    p.sequence_parallel = p.tensor > 1 && plan.framework == "megatron-lm";
                    for (p.virtual_pipeline = 1; p.virtual_pipeline <= layers; ++p.virtual_pipeline)
                        for (p.zero_stage = 0; p.zero_stage <= (p.data > 1 ? 3 : 0); ++p.zero_stage)
                            for (p.micro_batch_size = 1; p.micro_batch_size <= 12; ++p.micro_batch_size) {
                                p.recompute = {};
                                count += check(plan).empty() ? 1 : 0;
                                for (std::int64_t n = 1; n < layers / p.pipeline / p.virtual_pipeline; ++n) {
                                    p.recompute = {Recompute::Kind::block, n};
                                    count += check(plan).empty() ? 1 : 0;
                                }
                            }
                }
        SweepSpace space;
        space.recompute = {{}};
        space.every_block = true;
        space.every_micro_batch = true;
        EXPECT_EQ(enumerate(from, space).size(), count) << framework;
        EXPECT_GT(count, 300U);
    }
}

// Experts besides: every pair of expert ranks and ranks of an expert's matrices, by rules written out here.
TEST(Enumerate, CountsHowExpertsAreSharedOut) {
    Plan from = base("mixtral-8x7b", 16, 32, 4096, "megatron-lm");
    from.model.moe.experts = 12;
    const SweepSpace space{.virtual_pipeline = {1}, .micro_batch_size = {1}, .zero_stage = {0}, .recompute = {{}}};
    std::set<std::string> expected, found;
    const std::int64_t devices = from.cluster.devices();
    for (std::int64_t tensor : {1, 2, 4, 8})
        for (std::int64_t pipeline : {1, 2, 4, 8, 16})
            for (std::int64_t expert = 1; expert <= 12; ++expert)
                for (std::int64_t expert_tensor = 1; expert_tensor <= 16; ++expert_tensor) {
                    if (devices % (tensor * pipeline) != 0 || 12 % expert != 0) continue;
                    if (expert_tensor != 1 && expert_tensor != tensor) continue;
                    if (devices / pipeline % (expert * expert_tensor) != 0) continue;
                    expected.insert(std::to_string(tensor) + "," + std::to_string(pipeline) + "," +
                                    std::to_string(expert) + "," + std::to_string(expert_tensor));
                }
    const PlanSpace all = enumerate(from, space);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Parallelism p = all.parallelism(i);
        found.insert(std::to_string(p.tensor) + "," + std::to_string(p.pipeline) + "," + std::to_string(p.expert) +
                     "," + std::to_string(p.expert_tensor));
        EXPECT_EQ(p, all.plan(i).parallelism);
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(all.size(), expected.size()) << "each once";
    SweepSpace four = space;
    four.expert = {4};
    four.expert_tensor = {1};
    for (const Plan& plan : enumerate(from, four)) {
        EXPECT_EQ(plan.parallelism.expert, 4);
        EXPECT_EQ(plan.parallelism.expert_tensor, 1);
    }
}

TEST(Enumerate, OfADenseModelThereAreNoExpertRanks) {
    const Plan from = base("gpt2", 8, 8, 1024, "megatron-lm");
    for (const Plan& plan : enumerate(from, {})) EXPECT_EQ(plan.parallelism.expert, 1);
    SweepSpace two;
    two.expert = {2, 4};
    EXPECT_TRUE(enumerate(from, two).empty());
    EXPECT_EQ(text(why_nothing(from, two)),
              "parallelism.expert = 2, 4: leaves no plan for this model, batch and 8 devices (allowed: 1)");
}

}  // namespace
}  // namespace foretrain::test
