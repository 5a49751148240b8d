#include "plan/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/framework.h"

namespace foretrain {
namespace {

// Llama 3 8B on 16 H100: tp 4, pp 2, dp 2. It checks.
Plan make_sound() {
    Plan p;
    p.model = read_model("llama-3-8b");
    p.cluster = read_cluster("dgx-h100");
    p.cluster.nodes = 2;
    p.framework = "megatron-lm";
    p.training.global_batch_size = 32;
    p.training.sequence_length = 4096;
    p.parallelism.tensor = 4;
    p.parallelism.pipeline = 2;
    p.parallelism.data = 2;
    p.parallelism.sequence_parallel = true;
    return p;
}

Plan sound() {
    static const Plan plan = make_sound();
    return plan;
}

Plan changed(const std::function<void(Plan&)>& change) {
    Plan p = sound();
    change(p);
    return p;
}

std::vector<std::string> reasons(const std::vector<Rejection>& rejections) {
    std::vector<std::string> out;
    for (const Rejection& r : rejections) out.push_back(r.reason);
    return out;
}

using Reasons = std::vector<std::string>;

TEST(Check, AcceptsASoundPlan) {
    EXPECT_EQ(reasons(check(sound())), Reasons{});
    for (const std::string& name : model_preset_names()) {
        Plan p = sound();
        p.model = read_model(name);
        p.training.sequence_length = 256;
        p.parallelism.tensor = 1;
        p.parallelism.sequence_parallel = false;
        p.parallelism.pipeline = p.model.layers % 2 == 0 ? 2 : 1;
        p.parallelism.data = 16 / p.parallelism.pipeline;
        EXPECT_EQ(reasons(check(p)), Reasons{}) << name;
    }
}

TEST(Check, NamesEveryBrokenRule) {
    const std::vector<std::pair<std::string, std::function<void(Plan&)>>> cases{
        {"world_equals_devices", [](Plan& p) { p.cluster.nodes = 4; }},
        {"devices_divisible",
         [](Plan& p) {
             p.cluster.nodes = 3;
             p.parallelism.pipeline = 16;
         }},
        {"tensor_divides_heads", [](Plan& p) { p.model.attention_heads = 34; }},
        {"tensor_divides_kv_heads", [](Plan& p) { p.model.kv_heads = 2; }},
        {"tensor_divides_ffn", [](Plan& p) { p.model.ffn_hidden_size = 1001; }},
        {"pipeline_divides_layers", [](Plan& p) { p.model.layers = 33; }},
        {"stage_layers_per_stage",
         [](Plan& p) {
             p.parallelism.stage_layers = {8, 8, 16};
         }},
        {"stage_layers_sum",
         [](Plan& p) {
             p.parallelism.stage_layers = {16, 15};
         }},
        {"stage_layers_sum",
         [](Plan& p) {
             p.parallelism.stage_layers = {16, 17};
         }},
        {"stage_layers_sum",
         [](Plan& p) {
             p.parallelism.stage_layers = {16, std::numeric_limits<std::int64_t>::max()};
         }},
        {"stage_layers_positive",
         [](Plan& p) {
             p.parallelism.stage_layers = {32, 0};
         }},
        {"stage_layers_positive",
         [](Plan& p) {
             p.parallelism.stage_layers = {32, -1};
         }},
        {"batch_divides", [](Plan& p) { p.training.global_batch_size = 31; }},
        {"batch_divides", [](Plan& p) { p.parallelism.micro_batch_size = 32; }},
        {"tensor_divides_sequence", [](Plan& p) { p.training.sequence_length = 4094; }},
        {"sequence_exceeds_positions",
         [](Plan& p) {
             p.model.positions = Positions::learned;
             p.model.max_positions = 1024;
         }},
        {"recompute_layers",
         [](Plan& p) {
             p.parallelism.recompute = {Recompute::Kind::block, 17};
         }},
        {"recompute_layers",
         [](Plan& p) {
             p.parallelism.recompute = {Recompute::Kind::segment, 0};
         }},
        {"framework_zero_stage", [](Plan& p) { p.parallelism.zero_stage = 2; }},
        {"framework_zero_stage", [](Plan& p) { p.parallelism.zero_stage = -1; }},
        {"framework_schedule", [](Plan& p) { p.parallelism.schedule = Schedule::gpipe; }},
        {"framework_pipeline",
         [](Plan& p) {
             p.framework = "fsdp@composer";
             p.parallelism.tensor = 1;
             p.parallelism.sequence_parallel = false;
             p.parallelism.data = 8;
         }},
        {"framework_tensor",
         [](Plan& p) {
             p.framework = "fsdp@composer";
             p.parallelism.pipeline = 1;
             p.parallelism.data = 4;
         }},
        {"step_too_long",
         [](Plan& p) {
             p.framework = "megatron-deepspeed@2022-bigscience";
             p.model.layers = 1 << 16;
             p.model.hidden_size = p.model.ffn_hidden_size = 8;
             p.model.attention_heads = p.model.kv_heads = 4;
             p.model.head_dim = 2;
             p.training.global_batch_size = 1 << 17;
         }},
        {"framework_recompute",
         [](Plan& p) {
             p.parallelism.recompute = {Recompute::Kind::every, 2};
         }},
        {"offload_of_plain_layers",
         [](Plan& p) {
             p.framework = "megatron-lm";
             p.parallelism.virtual_pipeline = 2;
             p.parallelism.recompute = {Recompute::Kind::offload, 1};
         }},
        {"framework_unknown", [](Plan& p) { p.framework = "megatron"; }},
        {"precision_not_calibrated", [](Plan& p) { p.cluster.device.calibration.gemm.clear(); }},
        {"precision_not_calibrated", [](Plan& p) { p.cluster.device.peak.clear(); }},
        {"precision_not_calibrated", [](Plan& p) { p.cluster.device.calibration.attention = {}; }},
        {"microbatch_too_large", [](Plan& p) { p.training.sequence_length = std::int64_t{1} << 37; }},
        {"step_too_long", [](Plan& p) { p.training.sequence_length = std::int64_t{1} << 30; }},
        {"too_many_microbatches",
         [](Plan& p) {
             p.training.sequence_length = 4;
             p.training.global_batch_size = std::int64_t{1} << 23;
         }},
        {"too_many_microbatches",  // for each stage, they would do
         [](Plan& p) {
             p.training.sequence_length = 4;
             p.training.global_batch_size = (std::int64_t{1} << 18) + 2;
         }},
    };
    for (const auto& [reason, change] : cases) {
        const std::vector<Rejection> r = check(changed(change));
        EXPECT_EQ(reasons(r), Reasons{reason}) << reason;
        for (const Rejection& no : r) EXPECT_FALSE(no.field.empty() || no.found.empty() || no.rule.empty()) << reason;
    }
    EXPECT_EQ(reasons(check(changed([](Plan& p) { p.training.precision = DType::fp64; }))),
              (Reasons{"framework_precision", "precision_not_calibrated"}));
}

Plan spread_over_context(std::int64_t context, std::int64_t tensor, std::int64_t sequence) {
    return changed([&](Plan& p) {
        p.parallelism = {};
        p.parallelism.tensor = tensor;
        p.parallelism.sequence_parallel = tensor > 1;
        p.parallelism.context = context;
        p.parallelism.data = p.cluster.devices() / context / tensor;
        p.training.sequence_length = sequence;
    });
}

// A sequence is cut into two chunks a context rank, and what a rank holds over the tensor ranks: context
// times lcm(2, tensor), neither lcm(2 context, tensor) nor 2 context tensor. (github:NVIDIA-NeMo/RL, PR 3563)
// Neither all devices nor all software multiply in 8 or 4 bits, and no engine of ours does.
TEST(Check, QuantisedProductsNeedDeviceAndSoftware) {
    const auto in = [](DType type, const char* cluster, const char* framework) {
        return changed([&](Plan& p) {
            p.training.products = type;
            p.framework = framework;
            p.cluster = read_cluster(cluster);
            p.cluster.nodes = 16 / p.cluster.devices_per_node;
            p.parallelism.zero_stage = framework_named(framework).default_zero_stage;
        });
    };
    EXPECT_EQ(reasons(check(in(DType::fp8, "dgx-h100", "megatron-lm"))), Reasons{});
    EXPECT_EQ(reasons(check(in(DType::fp8, "dgx-h100", "fsdp@torchtitan"))), Reasons{});
    EXPECT_EQ(reasons(check(in(DType::nvfp4, "dgx-b200", "megatron-lm@2025-bridge"))), Reasons{});
    EXPECT_EQ(reasons(check(in(DType::fp8, "dgx-a100", "megatron-lm"))), Reasons{"precision_not_calibrated"});
    EXPECT_EQ(reasons(check(in(DType::mxfp8, "dgx-h100", "megatron-lm"))), Reasons{"precision_not_calibrated"});
    EXPECT_EQ(reasons(check(in(DType::fp8, "dgx-h100", "megatron-lm@2022"))), Reasons{"framework_precision"});
    EXPECT_EQ(reasons(check(in(DType::mxfp8, "dgx-b200", "fsdp@torchtitan"))), Reasons{"framework_precision"});
    const std::vector<Rejection> no = check(in(DType::fp8, "dgx-a100", "megatron-lm"));
    ASSERT_EQ(no.size(), 1u);
    EXPECT_EQ(no[0].found, "fp8");
    EXPECT_EQ(no[0].allowed, "bf16, fp16, fp32");
    const Reasons runnable = reasons(check_runnable(in(DType::fp8, "dgx-h100", "foretrain")));
    EXPECT_EQ(std::count(runnable.begin(), runnable.end(), "precision_not_runnable"), 1);
}

TEST(Check, TensorOverlapIsTheSoftwares) {
    const auto by = [](const char* framework) {
        return reasons(check(changed([&](Plan& p) {
            p.framework = framework;
            p.parallelism.overlap.tensor = true;
            p.parallelism.zero_stage = framework_named(framework).default_zero_stage;
        })));
    };
    EXPECT_EQ(by("megatron-lm"), Reasons{});
    EXPECT_EQ(by("fsdp@torchtitan-compiled"), Reasons{});
    EXPECT_EQ(by("megatron-lm@2022"), Reasons{"framework_tensor_overlap"});
}

TEST(Check, ContextAndTensorDivideTheSequence) {
    EXPECT_EQ(reasons(check(spread_over_context(2, 4, 24))), Reasons{});
    const std::vector<Rejection> r = check(spread_over_context(2, 4, 20));
    ASSERT_EQ(reasons(r), Reasons{"context_divides_sequence"});
    EXPECT_EQ(text(r[0]),
              "training.sequence_length = 20: must be a multiple of 8 = context 2 x lcm(2, tensor 4) "
              "(sequence_parallel) (allowed: 16, 24, ...; try 16)");
    EXPECT_EQ(reasons(check(spread_over_context(8, 1, 24))), Reasons{"context_divides_sequence"});
    EXPECT_EQ(check(spread_over_context(8, 1, 24)).at(0).suggestion, "16");
    EXPECT_EQ(check(spread_over_context(8, 1, 12)).at(0).suggestion, "16");
    EXPECT_EQ(reasons(check(spread_over_context(8, 1, 32))), Reasons{});
    Plan whole = spread_over_context(2, 4, 20);  // each tensor rank holds all tokens
    whole.parallelism.sequence_parallel = false;
    EXPECT_EQ(reasons(check(whole)), Reasons{});
}

TEST(Check, ContextRanksTakeDevicesHeadsAndWholeSequences) {
    Plan p = spread_over_context(3, 1, 24);
    p.parallelism.data = 4;
    EXPECT_EQ(reasons(check(p)), Reasons{"context_divides_devices"});
    p = spread_over_context(2, 1, 24);
    p.parallelism.data *= 2;
    EXPECT_EQ(reasons(check(p)), Reasons{"world_equals_devices"});
    EXPECT_NE(check(p)[0].found.find("context 2"), std::string::npos) << check(p)[0].found;

    p = spread_over_context(8, 2, 32);
    p.model.kv_heads = 8;
    EXPECT_EQ(reasons(check(p)), Reasons{});  // a ring does not care for heads
    p.parallelism.context_method = ContextMethod::all_to_all;
    ASSERT_EQ(reasons(check(p)), Reasons{"context_divides_kv_heads"});
    EXPECT_EQ(text(check(p)[0]),
              "parallelism.context = 8: must divide kv_heads / tensor (all-to-all) = 4 (allowed: 1, 2, 4; try 4)");
    p.model.kv_heads = p.model.attention_heads = 8;
    EXPECT_EQ(reasons(check(p)), Reasons{"context_divides_heads"});

    p = spread_over_context(2, 1, 24);
    p.model.sliding_window.size = 8;
    ASSERT_EQ(reasons(check(p)), Reasons{"ring_sees_whole_sequences"});
    EXPECT_EQ(check(p)[0].suggestion, "all-to-all");
    p.parallelism.context_method = ContextMethod::all_to_all;
    EXPECT_EQ(reasons(check(p)), Reasons{});
}

TEST(Check, ShardsAreEqualPartsOfTheReplicas) {
    const auto with = [](int zero, std::int64_t shard, const char* framework = "foretrain", std::int64_t context = 1) {
        Plan p = spread_over_context(context, 1, 64);
        p.framework = framework;
        p.parallelism.zero_stage = zero;
        p.parallelism.zero_shard_size = shard;
        return check(p);
    };
    for (const int zero : {1, 2, 3})
        for (const std::int64_t shard : {0, 2, 4, 8, 16}) EXPECT_EQ(reasons(with(zero, shard)), Reasons{});
    EXPECT_EQ(reasons(with(1, 16, "foretrain", 2)), Reasons{});  // over context ranks too
    EXPECT_EQ(reasons(with(1, 4, "megatron-lm")), Reasons{});
    EXPECT_EQ(reasons(with(0, 4)), Reasons{"shard_needs_zero"});
    EXPECT_EQ(reasons(with(1, -4)), Reasons{"size_out_of_range"});
    const std::vector<Rejection> one = with(2, 1);
    ASSERT_EQ(reasons(one), Reasons{"shard_of_one"});
    EXPECT_EQ(one[0].suggestion, "zero_stage 0, with zero_shard_size left out");
    const std::vector<Rejection> six = with(3, 6);
    ASSERT_EQ(reasons(six), Reasons{"shard_divides_replicas"});
    EXPECT_EQ(
        text(six[0]),
        "parallelism.zero_shard_size = 6: must divide the replicas, data = 16 (allowed: 2, 4, 8, 16; try 4 or 8)");
    const std::vector<Rejection> both = with(3, 32, "foretrain", 4);
    ASSERT_EQ(reasons(both), Reasons{"shard_divides_replicas"});
    EXPECT_EQ(text(both[0]),
              "parallelism.zero_shard_size = 32: must divide the replicas, context 4 x data 4 = 16 (allowed: 2, 4, 8, "
              "16; try 16)");
    const std::vector<Rejection> two = with(2, 4, "megatron-lm");  // told once
    EXPECT_EQ(reasons(two), Reasons{"framework_zero_stage"});
}

TEST(Check, InterleavedMessagesDoNotHoldUpComputing) {
    const auto with = [](std::int64_t chunks) {
        return check(changed([&](Plan& p) {
            p.parallelism.virtual_pipeline = chunks;
            p.parallelism.overlap.pipeline = false;
        }));
    };
    EXPECT_EQ(reasons(with(1)), Reasons{});
    const std::vector<Rejection> r = with(2);
    ASSERT_EQ(reasons(r), Reasons{"interleaving_overlaps_messages"});
    EXPECT_EQ(r[0].field, "parallelism.overlap.pipeline");
    EXPECT_EQ(r[0].found, "false with virtual_pipeline 2");
}

TEST(Check, AloneAReplicaSharesWithNobody) {
    Plan p = spread_over_context(1, 16, 64);
    p.parallelism.zero_stage = 1;
    p.parallelism.zero_shard_size = 2;
    p.framework = "foretrain";
    p.model.attention_heads = p.model.kv_heads = p.model.ffn_hidden_size = 16;
    const std::vector<Rejection> r = check(p);
    ASSERT_EQ(reasons(r), Reasons{"shard_divides_replicas"});
    EXPECT_EQ(r[0].allowed, "");
    EXPECT_EQ(r[0].suggestion, "zero_shard_size left out");
}

TEST(Check, SequenceParallelNeedsTensor) {
    const Plan p = changed([](Plan& x) {
        x.parallelism.tensor = 1;
        x.parallelism.data = 8;
    });
    EXPECT_EQ(reasons(check(p)), Reasons{"sequence_parallel_needs_tensor"});
}

TEST(Check, UnevenStagesMayRecomputeAsFarAsTheLargest) {
    EXPECT_EQ(reasons(check(changed([](Plan& p) {
                  p.parallelism.stage_layers = {20, 12};
                  p.parallelism.recompute = {Recompute::Kind::block, 20};
              }))),
              Reasons{});
}

TEST(Check, SaysItWithNumbers) {
    const std::vector<Rejection> r = check(changed([](Plan& p) {
        p.parallelism.tensor = 3;
        p.parallelism.sequence_parallel = false;
        p.model.kv_heads = 3;
        p.model.ffn_hidden_size = 3;
        p.parallelism.data = 8;
        p.cluster.nodes = 6;
    }));
    ASSERT_EQ(reasons(r), Reasons{"tensor_divides_heads"});
    EXPECT_EQ(text(r[0]),
              "parallelism.tensor = 3: must divide attention_heads = 32 (allowed: 1, 2, 4, 8, 16, 32; try 1)")
        << "what heads, ffn and devices all take";
    const std::vector<Rejection> world = check(changed([](Plan& p) { p.cluster.nodes = 4; }));
    EXPECT_EQ(world.at(0).suggestion, "data 4");
    const std::vector<Rejection> batch = check(changed([](Plan& p) { p.training.global_batch_size = 33; }));
    EXPECT_EQ(batch.at(0).suggestion, "32 or 34");
}

TEST(Check, ABatchIsMicroBatchTimesDataTimesAccumulation) {
    const auto batch = [](std::int64_t global, std::int64_t micro) {
        const std::vector<Rejection> r = check(changed([&](Plan& p) {
            p.training.global_batch_size = global;
            p.parallelism.micro_batch_size = micro;
        }));
        return r.empty() ? std::string("valid") : text(r.front());
    };
    EXPECT_EQ(batch(48, 8), "valid") << "three microbatches on two data ranks";
    EXPECT_EQ(batch(33, 1),
              "training.global_batch_size = 33: must be micro_batch_size 1 x data 2 x a whole number of "
              "microbatches (allowed: multiples of 2; try 32 or 34)");
    EXPECT_EQ(batch(48, 7),
              "training.global_batch_size = 48: must be micro_batch_size 7 x data 2 x a whole number of "
              "microbatches (allowed: multiples of 14; try 42 or 56, or micro_batch_size 6 or 8)");
    EXPECT_EQ(batch(1, 1),
              "training.global_batch_size = 1: must be micro_batch_size 1 x data 2 x a whole number of "
              "microbatches (allowed: multiples of 2; try 2)");
}

TEST(Check, SaysWhichRanksTheDevicesTake) {
    Plan p = sound();
    p.cluster.nodes = 1;
    p.parallelism = {};
    p.parallelism.tensor = 3;
    std::vector<Rejection> r = check(p);
    ASSERT_GE(r.size(), 2u);
    EXPECT_EQ(text(r[0]),
              "parallelism.tensor x parallelism.pipeline = 3: must divide the cluster's 8 devices (try tensor 2)");
    p.parallelism.tensor = 2;
    p.parallelism.pipeline = 3;
    EXPECT_EQ(check(p).at(0).suggestion, "pipeline 2");
    p.parallelism.pipeline = 8;
    EXPECT_EQ(check(p).at(0).suggestion, "tensor 1");

    p.cluster.nodes = 3;  // 24 devices, which 32 heads do not divide
    p.parallelism = {};
    p.parallelism.tensor = 16;
    p.model.kv_heads = p.model.attention_heads;
    EXPECT_EQ(reasons(check(p)), Reasons{"devices_divisible"});
    EXPECT_EQ(check(p).at(0).suggestion, "tensor 8");
}

TEST(Check, AsManyKeyValueHeadsAsHeadsAreOneCause) {
    const Plan p = changed([](Plan& x) {
        x.cluster.nodes = 3;
        x.parallelism = {};
        x.parallelism.tensor = 3;
        x.parallelism.data = 8;
        x.model.kv_heads = x.model.attention_heads;
        x.model.ffn_hidden_size = 3 * 4096;
    });
    EXPECT_EQ(reasons(check(p)), Reasons{"tensor_divides_heads"});
    EXPECT_EQ(check(p).at(0).suggestion, "2 or 4");
}

TEST(Check, RefusesAnyFieldOfAnySizeWithoutOverflow) {
    const std::vector<std::function<std::int64_t&(Plan&)>> fields{
        [](Plan& p) -> std::int64_t& { return p.parallelism.tensor; },
        [](Plan& p) -> std::int64_t& { return p.parallelism.pipeline; },
        [](Plan& p) -> std::int64_t& { return p.parallelism.virtual_pipeline; },
        [](Plan& p) -> std::int64_t& { return p.parallelism.data; },
        [](Plan& p) -> std::int64_t& { return p.parallelism.micro_batch_size; },
        [](Plan& p) -> std::int64_t& { return p.training.global_batch_size; },
        [](Plan& p) -> std::int64_t& { return p.training.sequence_length; },
        [](Plan& p) -> std::int64_t& { return p.cluster.nodes; },
        [](Plan& p) -> std::int64_t& { return p.model.layers; },
        [](Plan& p) -> std::int64_t& { return p.model.hidden_size; },
        [](Plan& p) -> std::int64_t& { return p.model.attention_heads; },
        [](Plan& p) -> std::int64_t& { return p.model.head_dim; },
        [](Plan& p) -> std::int64_t& { return p.model.ffn_hidden_size; },
        [](Plan& p) -> std::int64_t& { return p.model.vocab_size; },
    };
    for (std::int64_t x :
         {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
          std::numeric_limits<std::int64_t>::max(), std::int64_t{1'000'000'000'000'000'000}, std::int64_t{1} << 40})
        for (std::size_t i = 0; i < fields.size(); ++i)
            for (std::size_t j = 0; j < fields.size(); ++j) {
                Plan p = sound();
                fields[i](p) = x;
                fields[j](p) = x;
                const std::vector<Rejection> r = check(p);
                EXPECT_FALSE(r.empty()) << i << ' ' << j << ' ' << x;
                for (const Rejection& no : r) EXPECT_FALSE(text(no).empty());
                check_runnable(p);
                p.parallelism.first_stage_layers = p.parallelism.last_stage_layers = x;
                EXPECT_FALSE(check(p).empty()) << i << ' ' << j << ' ' << x;
                p.parallelism.recompute = {Recompute::Kind::block, 1};
                EXPECT_FALSE(check(p).empty()) << i << ' ' << j << ' ' << x;
            }
}

TEST(Check, RunsOnlyItsOwnEngineInFullPrecisionOnOneMachine) {
    Plan p = sound();
    EXPECT_EQ(reasons(check_runnable(p)), (Reasons{"framework_not_runnable", "precision_not_runnable"}));
    p.framework = "foretrain";
    p.training.precision = DType::fp64;
    EXPECT_EQ(reasons(check_runnable(p)), Reasons{});
    p.parallelism.data = 9;
    EXPECT_EQ(reasons(check_runnable(p)), Reasons{"too_many_ranks"});
}

TEST(Check, RunsNoModelThatItsKernelsDoNotHave) {
    Plan p = sound();
    p.framework = "foretrain";
    p.training.precision = DType::fp32;
    const Plan runnable = p;
    const auto field = [&](auto&& change) {
        p = sound();
        change(p.model);
        EXPECT_EQ(reasons(check(p)), Reasons{});  // predicted all the same
        p = runnable;
        change(p.model);
        const std::vector<Rejection> no = check_runnable(p);
        return no.size() == 1 && no[0].reason == "model_not_runnable" ? no[0].field : "";
    };
    EXPECT_EQ(field([](ModelSpec& m) { m.positions = Positions::alibi; }), "model.positions");
    EXPECT_EQ(field([&](ModelSpec& m) { m.sliding_window.size = p.training.sequence_length - 1; }),
              "model.sliding_window");
    EXPECT_EQ(field([](ModelSpec& m) { m.elementwise_scaling = true; }), "model.elementwise_scaling");
    EXPECT_EQ(field([&](ModelSpec& m) { m.sliding_window.size = p.training.sequence_length; }), "");
    EXPECT_EQ(field([](ModelSpec& m) { m.block = Block::parallel; }), "");
}

// Tens of nanoseconds; the bound leaves room for a busy machine and for sanitizers.
TEST(Check, IsCheapForAPlanThatChecks) {
    const Plan p = sound();
    std::size_t rejected = 0;
    constexpr int times = 100000;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) rejected += check(p).size();
    const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
    EXPECT_EQ(rejected, 0u);
    EXPECT_LT(each, 1e-4);
    RecordProperty("nanoseconds", static_cast<int>(each * 1e9));
}

}  // namespace
}  // namespace foretrain
