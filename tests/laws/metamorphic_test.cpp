// Metamorphic laws: what must hold between two predictions, whatever the numbers are.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "models/model_file.h"
#include "models/parameters.h"
#include "plan/check.h"
#include "plan/framework.h"
#include "plan/program/access.h"
#include "plan/program/lower.h"
#include "plan/program/verify.h"
#include "sim/predict.h"
#include "sim/simulator.h"
#include "tests/laws/support/plans.h"

namespace foretrain::test {
namespace {

Plan with_twice_the_bandwidth(Plan plan) {
    DomainConstants& d = plan.cluster.domain;
    d.ring_gbps *= 2;
    d.nvls_gbps *= 2;
    d.pairwise_gbps *= 2;
    plan.cluster.network.nic.bytes_per_second *= 2;
    plan.cluster.device.memory_bandwidth.bytes_per_second *= 2;
    return plan;
}

TEST(Metamorphic, TwiceTheBandwidthIsNeverSlower) {
    std::mt19937 random(4);
    int faster = 0;
    for (int n = 0; n < 100; ++n) {
        const Plan plan = random_plan(random);
        const Time before = estimate(plan).step;
        const Time after = estimate(with_twice_the_bandwidth(plan)).step;
        ASSERT_LE(after, before) << describe(plan.parallelism);
        faster += after < before ? 1 : 0;
    }
    EXPECT_EQ(faster, 100);
}

TEST(Metamorphic, MoreWorkTakesLonger) {
    std::mt19937 random(5);
    for (int n = 0; n < 50; ++n) {
        Plan plan = random_plan(random);
        const Time before = estimate(plan).step;
        plan.training.global_batch_size *= 2;
        EXPECT_GT(estimate(plan).step, before);
        plan.parallelism.recompute = {Recompute::Kind::full, 0};
        const Prediction full = estimate(plan);
        plan.parallelism.recompute = {};
        const Prediction none = estimate(plan);
        EXPECT_GE(none.memory[0].activations, full.memory[0].activations);
        EXPECT_LE(none.hardware_flops, full.hardware_flops);
        EXPECT_EQ(none.model_flops, full.model_flops);
    }
}

// The same program with what the framework adds taken so many times.
Program with_added(Program program, std::int64_t launches, std::int64_t stalls) {
    for (StageProgram& stage : program.stages)
        for (Instruction& i : stage.instructions) {
            if (i.kind == InstructionKind::launch) i.count *= launches;
            if (i.kind == InstructionKind::stall && i.like == InstructionKind::kernel) i.count *= stalls;
        }
    return program;
}

// The program without launches and stalls: each is but a mark where it stood.
Program without_added(Program program) {
    for (StageProgram& stage : program.stages)
        for (Instruction& i : stage.instructions)
            if (is_added(i.kind) && i.like == InstructionKind::kernel) i.kind = InstructionKind::record;
    return program;
}

TEST(Metamorphic, ASlowerHostIsNeverFasterAndNoneCostsNothing) {
    std::mt19937 random(8);
    int slower = 0, tried = 0;
    for (const std::string& framework : every_framework())
        for (int n = 0; n < 12; ++n) {
            Plan plan = random_plan(random);
            plan.framework = framework;
            if (!check(plan).empty()) continue;
            SCOPED_TRACE(framework + " " + describe(plan.parallelism));
            const CostModel cost(plan);
            const Program program = lower(make_skeleton(plan));
            const auto step = [&](const Program& p) { return step_time(simulate(p, cost)); };
            const Time once = step(program);
            ASSERT_LE(once, step(with_added(program, 2, 1)));
            ASSERT_LE(once, step(with_added(program, 1, 2)));
            ASSERT_EQ(step(with_added(program, 0, 0)), step(without_added(program)));
            ASSERT_LE(step(without_added(program)), once);
            slower += once < step(with_added(program, 2, 1)) ? 1 : 0;
            ++tried;
        }
    EXPECT_GT(tried, 20);
    EXPECT_GT(slower, 5) << "of " << tried << " plans none waits for the host";
}

// Our own engine's program holds nothing that the engine does not execute.
TEST(Metamorphic, OurOwnProgramsHaveNothingAdded) {
    std::mt19937 random(9);
    int added = 0;
    for (int n = 0; n < 100; ++n) {
        Plan plan = random_plan(random);
        const bool own = framework_named(plan.framework).runnable;
        std::int64_t count = 0;
        for (const StageProgram& stage : lower(make_skeleton(plan)).stages)
            for (const Instruction& i : stage.instructions)
                count += is_added(i.kind) || i.stream == Stream::host || i.share != Instruction::whole ? 1 : 0;
        EXPECT_EQ(count == 0, own) << plan.framework;
        added += own ? 0 : 1;
    }
    EXPECT_GT(added, 10);
}

// The parts of a step are what it takes, of every stage, and none is less than nothing.
TEST(Metamorphic, PartsSumToTheStep) {
    std::mt19937 random(10);
    Time hosts, overhead;
    for (int n = 0; n < 200; ++n) {
        const Plan plan = random_plan(random);
        for (const StageTime& t : estimate(plan).times) {
            const std::array parts{t.forward,        t.backward,        t.recompute,       t.optimizer,
                                   t.tensor_exposed, t.context_exposed, t.expert_exposed,  t.data_exposed,
                                   t.host_exposed,   t.overhead,        t.pipeline_exposed};
            Time sum;
            for (const Time part : parts) {
                sum += part;
                ASSERT_GE(part, Time{}) << plan.framework << " " << describe(plan.parallelism);
            }
            ASSERT_EQ(sum, t.step);
            hosts += t.host_exposed;
            overhead += t.overhead;
        }
    }
    EXPECT_GT(hosts, Time{});
    EXPECT_GT(overhead, Time{});
}

// Tied weights count once over all stages; every tensor rank holds the replicated tensors whole.
TEST(Metamorphic, StageParametersSumToTheModels) {
    std::mt19937 random(6);
    for (int n = 0; n < 100; ++n) {
        const Plan plan = random_plan(random);
        const Program program = lower(make_skeleton(plan));
        const std::int64_t vocabulary = make_context(plan).vocabulary;
        std::int64_t total = 0;
        for (const StageProgram& stage : program.stages)
            for (const Parameter& p : stage.parameters) {
                const bool copy = plan.model.tied_embeddings && p.name == "embedding.weight" &&
                                  stage.units[static_cast<std::size_t>(p.unit)].name == "head";
                if (!copy) total += p.outer * p.sharded * p.inner;
            }
        const std::int64_t tables = plan.model.tied_embeddings ? 1 : 2;
        const std::int64_t a_row = tables * plan.model.hidden_size + (plan.model.head_bias ? 1 : 0);
        const std::int64_t padding = (vocabulary - plan.model.vocab_size) * a_row;
        EXPECT_EQ(total - padding, parameter_count(plan.model)) << describe(plan.parallelism);
    }
}

// Model states by hand (mechanics of Megatron-LM's distributed optimizer): 18 bytes a parameter
// in bf16 with fp32 gradients, 6 + 12/d with the optimizer state sharded over d data ranks.
TEST(Metamorphic, ModelStatesAreEighteenOrSixPlusTwelveOverD) {
    for (const int zero : {0, 1}) {
        Parallelism p;
        p.data = 4;
        p.zero_stage = zero;
        Plan plan = small_plan(small_llama(), p);
        plan.model.hidden_size = 512;
        plan.model.head_dim = 64;
        plan.model.ffn_hidden_size = 1024;
        plan.training.precision = DType::bf16;
        const StageMemory m = estimate(plan).memory[0];
        const double states = static_cast<double>((m.weights + m.gradients + m.optimizer).value);
        const double expected = zero == 0 ? 18.0 : 6 + 12.0 / 4;
        EXPECT_NEAR(states / static_cast<double>(parameter_count(plan.model)), expected, 0.01);
    }
}

// Messages that hold up computing cost what they take, and change neither bytes nor memory. Without a pipeline
// there are none.
TEST(Metamorphic, MessagesThatHoldUpComputingAreNeverFaster) {
    std::mt19937 random(8);
    int slower = 0;
    for (int n = 0; n < 150; ++n) {
        Plan plan = random_plan(random);
        if (plan.parallelism.virtual_pipeline > 1) continue;
        plan.parallelism.overlap.pipeline = true;
        const Prediction beside = estimate(plan);
        plan.parallelism.overlap.pipeline = false;
        const Prediction held = estimate(plan);
        ASSERT_GE(held.step, beside.step) << describe(plan.parallelism);
        ASSERT_EQ(held.peak_bytes(), beside.peak_bytes());
        ASSERT_EQ(held.wire, beside.wire);
        if (plan.parallelism.pipeline == 1) {
            ASSERT_EQ(held.step, beside.step) << describe(plan.parallelism);
        }
        slower += held.step > beside.step ? 1 : 0;
    }
    EXPECT_GT(slower, 20);
}

// Where the network is slow, shards that stay inside a node are gathered faster, and cost memory instead; a
// shard size of all the replicas is as good as none.
TEST(Metamorphic, SmallerShardsTradeMemoryForTheNetwork) {
    const auto of = [](std::int64_t shard) {
        Parallelism p;
        p.data = 64;
        p.zero_stage = 3;
        p.zero_shard_size = shard;
        Plan plan = small_plan(small_llama(), p, 8 * 64);
        plan.cluster.network.nics_per_node = 1;
        plan.model.hidden_size = 2048;
        plan.model.head_dim = 256;
        plan.model.ffn_hidden_size = 4096;
        plan.training.precision = DType::bf16;
        return estimate(plan);
    };
    const Prediction all = of(0), same = of(64), node = of(8);
    EXPECT_EQ(all.step, same.step);
    EXPECT_EQ(all.memory[0].total(), same.memory[0].total());
    EXPECT_LT(node.step, all.step);
    EXPECT_GT(node.memory[0].total(), all.memory[0].total());
    EXPECT_EQ(node.memory[0].activations, all.memory[0].activations);
}

// What goes to host memory is missed on the device, to the byte where nothing is rounded, and takes its time on the
// link; a faster link takes less of it.
TEST(Metamorphic, OffloadTradesTheDevicesMemoryForTheHosts) {
    const auto of = [](const char* framework, const Recompute& recompute, bool optimizer, double link) {
        Parallelism p;
        p.data = 8;
        p.zero_stage = 1;
        p.recompute = recompute;
        p.optimizer_on_host = optimizer;
        ModelSpec model = small_llama();
        model.hidden_size = model.ffn_hidden_size = model.vocab_size = 2048;  // no tensor's share is rounded up
        model.head_dim = 256;
        Plan plan = small_plan(model, p, 8);
        plan.framework = framework;
        plan.cluster.device.host_link.bytes_per_second = link;
        plan.training.precision = DType::bf16;
        plan.training.sequence_length = 4096;
        plan.model.layers = 6;
        EXPECT_TRUE(check(plan).empty());
        return estimate(plan);
    };
    const Recompute none{}, two{Recompute::Kind::offload, 2}, four{Recompute::Kind::offload, 4};
    const Prediction kept = of("megatron-lm", none, false, 2e9), away = of("megatron-lm", two, false, 2e9),
                     more = of("megatron-lm", four, false, 2e9), fast = of("megatron-lm", four, false, 400e9);
    EXPECT_EQ(kept.host.offloaded, Bytes{});
    EXPECT_EQ((kept.memory[0].activations - away.memory[0].activations) * 8, away.host.offloaded);
    EXPECT_EQ(away.host.offloaded * 2, more.host.offloaded);
    EXPECT_LT(kept.step, away.step);
    EXPECT_LT(away.step, more.step);
    EXPECT_LT(fast.step, more.step);

    const Prediction on_device = of("deepspeed", none, false, 26e9), on_host = of("deepspeed", none, true, 26e9);
    EXPECT_GT(on_device.memory[0].optimizer, Bytes{});
    EXPECT_EQ(on_host.memory[0].optimizer, Bytes{});
    EXPECT_EQ(on_host.host.offloaded, on_device.memory[0].optimizer * 8 * 18 / 12) << "with gradients and weights";
    EXPECT_LT(on_device.step, on_host.step);
}

// Operator by operator a layer keeps more than its input, and computes less again.
TEST(Metamorphic, RecomputeByOperatorsIsBetweenFullAndNone) {
    const auto of = [](Recompute::Kind kind) {
        Parallelism p;
        p.recompute = {kind, 0};
        Plan plan = small_plan(small_llama(), p, 2);
        plan.framework = "fsdp@torchtitan";
        plan.training.precision = DType::bf16;
        plan.training.sequence_length = 4096;
        plan.model.hidden_size = 512;
        plan.model.head_dim = 64;
        plan.model.ffn_hidden_size = 1024;
        EXPECT_TRUE(check(plan).empty());
        return estimate(plan);
    };
    const Prediction none = of(Recompute::Kind::none), full = of(Recompute::Kind::full),
                     between = of(Recompute::Kind::operators);
    EXPECT_LT(full.memory[0].activations, between.memory[0].activations);
    EXPECT_LT(between.memory[0].activations, none.memory[0].activations);
    EXPECT_LT(none.step, between.step);
    EXPECT_LT(between.step, full.step);
}

// A rank of a context group has its share of everything that grows with tokens, and nothing but parameters
// and their state in full. The FLOPs of all ranks stay those of the model.
TEST(Metamorphic, ContextRanksShareActivationsAndWork) {
    const auto of = [](std::int64_t context, ContextMethod method) {
        Parallelism p;
        p.context = context;
        p.context_method = method;
        Plan plan = small_plan(small_llama(), p, 2);
        plan.training.sequence_length = 1 << 14;
        plan.training.precision = DType::bf16;
        plan.model.hidden_size = 512;
        plan.model.head_dim = 64;
        plan.model.ffn_hidden_size = 1024;
        return estimate(plan);
    };
    const Prediction one = of(1, ContextMethod::ring);
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all}) {
        const Prediction four = of(4, method);
        EXPECT_EQ(four.memory[0].activations, one.memory[0].activations / 4);
        EXPECT_EQ(four.memory[0].weights, one.memory[0].weights);
        EXPECT_EQ(four.hardware_flops, one.hardware_flops);
        EXPECT_EQ(four.model_flops, one.model_flops);
        EXPECT_LT(four.step, one.step);
        EXPECT_GT(four.step, one.step / 4);
        EXPECT_GT(four.times[0].context_exposed, Time{});
    }
    // Long blocks of a ring hide their exchange but for the last hop; an exchange of heads is never hidden.
    EXPECT_LT(of(4, ContextMethod::ring).times[0].context_exposed,
              of(4, ContextMethod::all_to_all).times[0].context_exposed);
}

// What the models have beyond GPT and Llama costs what it should: never less where something is added,
// and one collective less each way where branches share it.
TEST(Metamorphic, EveryFeatureOfAModelCosts) {
    Parallelism p;
    p.tensor = 2;
    const Plan plan = small_plan(small_llama(), p);
    const auto with = [&](auto&& change) {
        Plan changed = plan;
        change(changed.model);
        return estimate(changed);
    };
    const auto collectives = [&](auto&& change) {
        Plan changed = plan;
        change(changed.model);
        std::int64_t all_reduces = 0;
        const Program program = lower(make_skeleton(changed));
        for (const Instruction& i : program.stages[0].instructions)
            all_reduces += i.kind == InstructionKind::all_reduce && i.axis == Axis::tensor ? 1 : 0;
        return all_reduces;
    };
    const auto nothing = [](ModelSpec&) {};
    const Prediction before = with(nothing);
    EXPECT_GT(with([](ModelSpec& m) { m.query_key_norm = QueryKeyNorm::per_head; }).step, before.step);
    EXPECT_GT(with([](ModelSpec& m) { m.post_norms = true; }).step, before.step);
    EXPECT_GT(with([](ModelSpec& m) { m.embedding_norm = true; }).step, before.step);
    EXPECT_GT(with([](ModelSpec& m) { m.attention_bias = true; }).step, before.step);
    EXPECT_LT(with([](ModelSpec& m) { m.sliding_window.size = 4; }).step, before.step);
    EXPECT_LT(with([](ModelSpec& m) { m.block = Block::parallel; }).step, before.step);
    EXPECT_GT(with([](ModelSpec& m) { m.post_norms = true; }).memory[0].activations, before.memory[0].activations);
    EXPECT_LT(with([](ModelSpec& m) { m.block = Block::parallel; }).memory[0].activations,
              before.memory[0].activations);
    const std::int64_t sequential = collectives(nothing), microbatches = plan.microbatches(),
                       layers = plan.model.layers;
    // Forward they share one; backward each norm needs its own sum, and one norm one.
    EXPECT_EQ(sequential - collectives([](ModelSpec& m) { m.block = Block::parallel; }), layers * microbatches);
    EXPECT_EQ(sequential - collectives([](ModelSpec& m) { m.block = Block::parallel_shared_norm; }),
              2 * layers * microbatches);
    // The weights that all heads share are summed once a step, layer by layer.
    EXPECT_EQ(collectives([](ModelSpec& m) { m.query_key_norm = QueryKeyNorm::shared; }) - sequential, layers);
}

// Stages that begin elsewhere in the order of windows are not the same stage.
TEST(Metamorphic, WindowsFollowTheLayersOfTheModel) {
    Parallelism p;
    p.pipeline = 2;
    p.stage_layers = {3, 1};
    Plan plan = small_plan(small_llama(), p);
    plan.model.sliding_window = {4, 2};  // layers 2 and 4 of 4 are full
    const Program program = lower(make_skeleton(plan));
    const auto windows = [&](std::size_t stage) {
        std::vector<std::int64_t> out;
        for (const Instruction& i : program.stages[stage].instructions) {
            if (i.kind != InstructionKind::kernel || i.microbatch != 0) continue;
            const KernelArgs& args = program.stages[stage].kernels[static_cast<std::size_t>(i.kernel)];
            if (const auto* a = std::get_if<AttentionForwardArgs>(&args)) out.push_back(a->window);
        }
        return out;
    };
    EXPECT_EQ(windows(0), (std::vector<std::int64_t>{4, 0, 4}));
    EXPECT_EQ(windows(1), (std::vector<std::int64_t>{0}));
}

// Every preset can be planned, on as many devices as it has key-value heads.
TEST(Metamorphic, EveryPresetIsPredicted) {
    for (const std::string& name : model_preset_names()) {
        Plan plan;
        plan.model = read_model(name);
        plan.framework = "megatron-lm";
        plan.parallelism.tensor = std::gcd(std::gcd(plan.model.kv_heads, plan.model.ffn_hidden_size), 8);
        plan.parallelism.sequence_parallel = plan.model.has_experts() && plan.parallelism.tensor > 1;
        plan.cluster = any_machine(plan.parallelism.tensor);
        plan.training.sequence_length = 128;
        plan.training.global_batch_size = 2;
        EXPECT_EQ(check(plan).size(), 0u) << name;
        EXPECT_GT(estimate(plan).step, Time{0}) << name;
        EXPECT_FALSE(verify(lower(make_skeleton(plan))).has_value()) << name;
    }
}

}  // namespace
}  // namespace foretrain::test
