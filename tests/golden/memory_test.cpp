// Memory that a person can check with paper: every byte of a small GPT, named, against the closed form.
//
// The model: s = 128 tokens, b = 2 samples, so T = s b = 256 tokens a microbatch; h = 1024, a = 16 heads,
// MLP of 4 h, V = 512, bf16, LayerNorm, GELU, biases, learned positions, an untied head, no dropout.
//
// Saved between forward and backward, bytes a token and layer, beside the usual account of 34 s b h
// (+ 5 a s^2 b where attention is not fused) for a layer with dropout (arXiv:2205.05198, section 4.1):
//
//                                       usual   here   why it differs
//   x         input of the first norm   2 h     2 h
//   norm1     input of qkv              2 h     2 h
//   qkv       queries, keys, values     6 h     6 h
//   softmax   and its dropout, a s^2    5 a s   4 a    fused attention keeps one fp32 sum a head and token (lse)
//   context   input of the projection   2 h     2 h
//             mask of a dropout           h     0      no dropout
//   y         input of the second norm  2 h     2 h
//   norm2     input of fc1              2 h     2 h
//   fc1       input of the GELU         8 h     8 h
//   act       input of fc2              8 h     8 h
//             mask of a dropout           h     0      no dropout
//                                      34 h    32 h + 4 a
//
// What tensor parallelism splits by t: qkv, lse, context, fc1, act (24 h + 4 a); what it leaves whole: x,
// norm1, y, norm2 (8 h; the usual 10 h without the masks). Sequence parallelism splits those too.
#include <gtest/gtest.h>

#include <map>

#include "plan/check.h"
#include "plan/program/skeleton.h"
#include "sim/cost.h"
#include "sim/estimate.h"

namespace foretrain::test {
namespace {

using Kind = Recompute::Kind;

constexpr std::int64_t s = 128, b = 2, T = s * b, h = 1024, a = 16, V = 512, L = 6;

Plan paper_plan(Parallelism parallelism, const char* framework = "foretrain") {
    Plan plan;
    plan.model = {.name = "paper",
                  .layers = L,
                  .hidden_size = h,
                  .attention_heads = a,
                  .kv_heads = a,
                  .head_dim = h / a,
                  .ffn_hidden_size = 4 * h,
                  .vocab_size = V,
                  .tied_embeddings = false,
                  .positions = Positions::learned,
                  .max_positions = s,
                  .norm = Norm::layernorm,
                  .activation = Activation::gelu,
                  .bias = true};
    plan.framework = framework;
    parallelism.micro_batch_size = b;
    plan.parallelism = parallelism;
    plan.training = {.global_batch_size = 8 * b * parallelism.data, .sequence_length = s};
    DeviceSpec& device = plan.cluster.device;
    device.name = "paper";
    device.memory = Bytes{GiB};
    device.memory_bandwidth = Bandwidth::gigabytes(1000);
    for (const DType type : {DType::bf16, DType::fp32}) {
        device.peak[type] = FlopRate::tera(100);
        device.calibration.gemm.push_back({.dtype = type});
    }
    device.calibration.attention.forward.efficiency = {{64, 0.5}};
    device.calibration.attention.backward.efficiency = {{64, 0.5}};
    plan.cluster.devices_per_node = static_cast<int>(plan.world());
    plan.cluster.domain.ring_gbps = plan.cluster.domain.pairwise_gbps = 100;
    for (const Rejection& r : check(plan)) ADD_FAILURE() << text(r);
    return plan;
}

// Stages 0, 1 and 2 of three, two layers each: first, middle, last.
Skeleton three_stages(Parallelism parallelism, const char* framework = "foretrain") {
    parallelism.pipeline = 3;
    return make_skeleton(paper_plan(parallelism, framework));
}

constexpr std::size_t first = 0, middle = 1, last = 2;
constexpr std::int64_t layers = L / 3;  // of a stage

std::int64_t slot(const Skeleton& skeleton, std::size_t stage) {
    return skeleton.stages[stage].chunks[0].stage->slot_bytes.value;
}

std::map<std::string, std::int64_t> saved_bytes(const Stage& stage) {
    std::map<std::string, std::int64_t> bytes;
    for (const BodyBuffer& buffer : stage.saved) bytes[text(buffer.label, 0)] += buffer.bytes().value;
    return bytes;
}

// Without fp8 parameters that are gathered as such, a copy by rows and one by columns stand beside each of the 12 h^2
// weights of a layer's matrices where products compute in fp8 on Hopper's generation; gradients may be shorter.
TEST(GoldenState, QuantisedCopiesStandBesideTheMatrices) {
    const auto bytes = [](Region region, std::optional<DType> products, const char* framework) {
        Plan plan = paper_plan({.pipeline = 3}, framework);
        plan.training.products = products;
        return make_skeleton(plan).stages[middle].chunks[0].stage->region_bytes[static_cast<std::size_t>(region)].value;
    };
    const std::int64_t without = bytes(Region::weights, std::nullopt, "megatron-lm");
    EXPECT_EQ(bytes(Region::weights, DType::fp8, "megatron-lm") - without, layers * 2 * 12 * h * h);
    EXPECT_EQ(bytes(Region::weights, DType::fp8, "fsdp@torchtitan"), without) << "quantised each time";
    EXPECT_EQ(bytes(Region::gradients, std::nullopt, "megatron-lm"),
              2 * bytes(Region::gradients, std::nullopt, "megatron-lm@2025-bridge"));
}

TEST(GoldenActivations, EveryTensorOfALayerByName) {
    const Skeleton skeleton = three_stages({});
    const std::map<std::string, std::int64_t> saved = saved_bytes(*skeleton.stages[middle].chunks[0].stage);
    const std::map<std::string, std::int64_t> layer1{
        {"layer1.x", 2 * h * T},     {"layer1.norm1", 2 * h * T},   {"layer1.qkv", 6 * h * T},
        {"layer1.lse", 4 * a * T},   {"layer1.context", 2 * h * T}, {"layer1.y", 2 * h * T},
        {"layer1.norm2", 2 * h * T}, {"layer1.fc1", 8 * h * T},     {"layer1.act", 8 * h * T}};
    for (const auto& [name, bytes] : layer1) {
        ASSERT_TRUE(saved.contains(name)) << name;
        EXPECT_EQ(saved.at(name), bytes) << name;
    }
    // Layer 0 of a middle stage has its input in the ring of received messages, and nothing else differs.
    EXPECT_EQ(saved.size(), 2 * layer1.size() - 1);
    EXPECT_FALSE(saved.contains("layer0.x"));
}

TEST(GoldenActivations, ThirtyTwoHAndFourAPerToken) {
    const Skeleton skeleton = three_stages({});
    const std::int64_t layer = (32 * h + 4 * a) * T;
    EXPECT_EQ(layer, 34 * s * b * h - 2 * s * b * h + 4 * a * s * b) << "the usual, less two masks, and the sums";
    EXPECT_EQ(layer, 8'404'992);
    EXPECT_EQ(slot(skeleton, middle), layers * layer - 2 * h * T) << "the first input is in the ring";
    EXPECT_EQ(slot(skeleton, first), layers * layer + 4 * T) << "and the tokens, int32";
    // The last stage: what enters the final norm and the head, the logits, a sum a token, the targets.
    EXPECT_EQ(slot(skeleton, last), layers * layer - 2 * h * T + (2 * h + 2 * h + 2 * V + 4 + 4) * T);
}

TEST(GoldenActivations, TensorParallelismSplitsTwentyFourOfThem) {
    const std::int64_t layer = (8 * h + (24 * h + 4 * a) / 2) * T;
    EXPECT_EQ(slot(three_stages({.tensor = 2}), middle), layers * layer - 2 * h * T);
    const std::int64_t quarter = (8 * h + (24 * h + 4 * a) / 4) * T;
    EXPECT_EQ(slot(three_stages({.tensor = 4}), middle), layers * quarter - 2 * h * T);
}

TEST(GoldenActivations, SequenceParallelismSplitsThemAll) {
    const std::int64_t layer = (32 * h + 4 * a) * T / 4;
    EXPECT_EQ(slot(three_stages({.tensor = 4, .sequence_parallel = true}), middle), layers * layer - 2 * h * T / 4);
}

// Megatron-LM's first versions keep 5 bytes of each of b a s^2 / t scores (softmax and its dropout 2 each, the mask
// 1); selective recompute keeps none of them (arXiv:2205.05198, section 4.1).
TEST(GoldenActivations, UnfusedAttentionKeepsItsScores) {
    const auto added = [](Parallelism parallelism) {
        const Parallelism selective = [&] {
            Parallelism p = parallelism;
            p.recompute = {Kind::selective, 0};
            return p;
        }();
        const std::int64_t context_and_sums = (2 * h + 4 * a) * T / parallelism.tensor;
        return slot(three_stages(parallelism, "megatron-lm@2022"), middle) -
               slot(three_stages(selective, "megatron-lm@2022"), middle) - layers * context_and_sums;
    };
    EXPECT_EQ(added({}), layers * 5 * a * s * s * b);
    EXPECT_EQ(added({.tensor = 2}), layers * 5 * a * s * s * b / 2);
    EXPECT_EQ(slot(three_stages({}, "megatron-lm@2024"), middle),
              slot(three_stages({}), middle) + layers * (2 * h * T + 2 * 8 * T))
        << "fused since; its output in two layouts, and mean and deviation of both norms";
}

// The core of attention is computed again: its sums and its result are not kept. (Where attention is not
// fused this is the term 5 a s^2 b, and the result is kept.)
TEST(GoldenActivations, SelectiveRecomputeKeepsNoContext) {
    EXPECT_EQ(slot(three_stages({.recompute = {Kind::selective, 0}}), middle), layers * 30 * h * T - 2 * h * T);
    EXPECT_EQ(slot(three_stages({.tensor = 2, .sequence_parallel = true, .recompute = {Kind::selective, 0}}), middle),
              (layers * 30 * h * T - 2 * h * T) / 2);
}

TEST(GoldenActivations, FullRecomputeKeepsTheInputsOfLayers) {
    const Recompute full{Kind::full, 0};
    EXPECT_EQ(slot(three_stages({.recompute = full}), middle), (layers - 1) * 2 * h * T);
    EXPECT_EQ(slot(three_stages({.tensor = 2, .recompute = full}), middle), (layers - 1) * 2 * h * T)
        << "whole on every tensor rank";
    EXPECT_EQ(slot(three_stages({.tensor = 2, .sequence_parallel = true, .recompute = full}), middle),
              (layers - 1) * 2 * h * T / 2);
    EXPECT_EQ(slot(three_stages({.recompute = {Kind::block, 1}}), middle), (32 * h + 4 * a) * T)
        << "one layer by its input, which is in the ring; the other in full";
    EXPECT_EQ(slot(three_stages({.recompute = {Kind::segment, 2}}), middle), 0) << "both by the input of the first";
}

// Stage r of p holds min(m, p - r) microbatches (1F1B), all m of them under GPipe; here p = 3, m = 8.
TEST(GoldenActivations, MicrobatchesInFlight) {
    const Skeleton skeleton = three_stages({});
    const Skeleton gpipe = three_stages({.schedule = Schedule::gpipe});
    for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(skeleton.stages[r].chunks[0].slots, 3 - static_cast<std::int64_t>(r));
        EXPECT_EQ(gpipe.stages[r].chunks[0].slots, 8);
        const auto activations = static_cast<std::size_t>(Region::activations);
        EXPECT_EQ(skeleton.stages[r].region_bytes[activations].value,
                  (3 - static_cast<std::int64_t>(r)) * slot(skeleton, r));
    }
}

// Megatron-LM copies the logits to fp32 for the loss and keeps the copy: 4 bytes; the 16-bit logits, and in the
// backward pass their gradient, are 2 bytes beside it: 6 bytes a logit in all. Our engine keeps 2.
std::int64_t logit_bytes(const char* framework, std::int64_t vocabulary, std::int64_t tensor) {
    Plan plan = paper_plan({.tensor = tensor}, framework);
    plan.model.vocab_size = vocabulary;
    const Skeleton skeleton = make_skeleton(plan);
    const auto transients = static_cast<std::size_t>(Region::transients);
    return slot(skeleton, 0) + skeleton.stages[0].region_bytes[transients].value;
}

TEST(GoldenLogits, SixBytesEach) {
    // So many that they are the largest working set of all passes.
    constexpr std::int64_t few = 64 * 1024, more = 8 * 1024;
    // Beside them a 16-bit gradient of the head's weight before it is added.
    EXPECT_EQ(logit_bytes("megatron-lm", few + more, 1) - logit_bytes("megatron-lm", few, 1), (6 * T + 2 * h) * more);
    EXPECT_EQ(logit_bytes("megatron-lm", few + more, 2) - logit_bytes("megatron-lm", few, 2),
              (6 * T + 2 * h) * more / 2);
    EXPECT_EQ(logit_bytes("foretrain", few + more, 1) - logit_bytes("foretrain", few, 1), 2 * T * more);
}

// ---- model states ---------------------------------------------------------------------------

// Sizes are such that every part fills whole places of 256 bytes, also shared out to eight.
// 12 h^2 + 13 h a layer: qkv 3 h^2 + 3 h, projection h^2 + h, fc1 4 h^2 + 4 h, fc2 4 h^2 + h, two norms 4 h.
constexpr std::int64_t N = L * (12 * h * h + 13 * h) + V * h + s * h + 2 * h + V * h;

std::int64_t states(const Plan& plan) {
    const auto regions = make_skeleton(plan).stages[0].region_bytes;
    const auto of = [&](Region r) { return regions[static_cast<std::size_t>(r)].value; };
    constexpr std::int64_t loss = buffer_alignment;  // a double stands among the gradients
    return of(Region::weights) + of(Region::gradients) + of(Region::optimizer) - loss;
}

TEST(GoldenModelStates, ParametersByHand) {
    EXPECT_EQ(N, 76'759'040);
    EXPECT_EQ(parameter_count(paper_plan({}).model), N);
}

// bf16: 2 weight + 4 gradient (fp32) + 4 master + 8 Adam's moments.
TEST(GoldenModelStates, EighteenBytesAParameter) {
    EXPECT_EQ(states(paper_plan({})), 18 * N);
    EXPECT_EQ(states(paper_plan({}, "megatron-lm")), 18 * N);
    EXPECT_EQ(states(paper_plan({.data = 4})), 18 * N) << "data ranks without ZeRO share nothing";
}

// 2 + 4 whole, 12 / d of the optimizer.
TEST(GoldenModelStates, SixAndTwelveByDWithADistributedOptimizer) {
    for (const std::int64_t d : {2, 4, 8}) {
        EXPECT_EQ(states(paper_plan({.data = d, .zero_stage = 1})), 6 * N + 12 * N / d) << d;
        EXPECT_EQ(states(paper_plan({.data = d, .zero_stage = 1}, "megatron-lm")), 6 * N + 12 * N / d) << d;
    }
}

TEST(GoldenModelStates, GradientsAndWeightsAreSharedOutToo) {
    for (const std::int64_t d : {2, 4, 8}) {
        EXPECT_EQ(states(paper_plan({.data = d, .zero_stage = 2})), 2 * N + 16 * N / d) << d;
        EXPECT_EQ(states(paper_plan({.data = d, .zero_stage = 3})), 18 * N / d) << d;
    }
}

// Shared out by d of the replicas, what the others hold is the same again.
TEST(GoldenModelStates, ASubgroupSharesOutAsIfItWereAlone) {
    for (const std::int64_t d : {2, 4}) {
        const auto of = [&](int zero) {
            return states(paper_plan({.data = 8, .zero_stage = zero, .zero_shard_size = d}));
        };
        EXPECT_EQ(of(1), 6 * N + 12 * N / d) << d;
        EXPECT_EQ(of(2), 2 * N + 16 * N / d) << d;
        EXPECT_EQ(of(3), 18 * N / d) << d;
    }
}

// fp32: 4 weight + 4 gradient + 8 moments, no master: 16, or 8 + 8 / d.
TEST(GoldenModelStates, SixteenBytesInFp32) {
    Plan plan = paper_plan({.data = 4});
    plan.training.precision = DType::fp32;
    EXPECT_EQ(states(plan), 16 * N);
    plan.parallelism.zero_stage = 1;
    EXPECT_EQ(states(plan), 8 * N + 8 * N / 4);
}

// ---- recompute ------------------------------------------------------------------------------

double executed(const Plan& plan, Flops BodyCost::*kind) {
    const Skeleton skeleton = make_skeleton(plan);
    return Estimator(skeleton, CostModel(plan)).executed(kind);
}

// Products of a layer: 2 x 12 h^2 operations a token forward, twice that backward. Full recompute is one
// forward pass more of every layer: 4 instead of 3. The head (2 h V) is not computed again. Attention, in full:
// 4 s h forward (two products), 2.5 times that backward (five, the scores again among them).
TEST(GoldenRecompute, FullIsOneMoreForward) {
    constexpr double tokens = 8 * T, layer = 24.0 * h * h, head = 2.0 * h * V, attention = 4.0 * s * h;
    const char* megatron = "megatron-lm";
    const Plan none = paper_plan({}, megatron), full = paper_plan({.recompute = {Kind::full, 0}}, megatron),
               selective = paper_plan({.recompute = {Kind::selective, 0}}, megatron),
               two = paper_plan({.recompute = {Kind::block, 2}}, megatron);
    EXPECT_EQ(executed(none, &BodyCost::gemm_flops), tokens * (3 * L * layer + 3 * head));
    EXPECT_EQ(executed(full, &BodyCost::gemm_flops), tokens * (4 * L * layer + 3 * head));
    EXPECT_EQ(executed(two, &BodyCost::gemm_flops), tokens * ((3 * L + 2) * layer + 3 * head));
    EXPECT_EQ(executed(selective, &BodyCost::gemm_flops), tokens * (3 * L * layer + 3 * head));
    EXPECT_EQ(executed(none, &BodyCost::attention_flops), tokens * L * 3.5 * attention);
    EXPECT_EQ(executed(full, &BodyCost::attention_flops), tokens * L * 4.5 * attention);
    EXPECT_EQ(executed(selective, &BodyCost::attention_flops), tokens * L * 4.5 * attention);
}

// Our own engine leaves out what the backward pass does not read: fc2, a third of the products.
TEST(GoldenRecompute, StopsBeforeTheLastProduct) {
    constexpr double tokens = 8 * T, layer = 24.0 * h * h, head = 2.0 * h * V, fc2 = 8.0 * h * h;
    EXPECT_EQ(executed(paper_plan({.recompute = {Kind::full, 0}}), &BodyCost::gemm_flops),
              tokens * (L * (4 * layer - fc2) + 3 * head));
}

}  // namespace
}  // namespace foretrain::test
