#include "models/parameters.h"

#include <gtest/gtest.h>

#include <set>

#include "models/model_file.h"

namespace foretrain {
namespace {

TEST(Parameters, UnitsInForwardOrderHoldEveryTensorOnce) {
    for (const char* name : {"gpt-mini", "llama-mini"}) {
        const ModelSpec m = read_model(name);
        const std::vector<UnitRef> units = units_of(m);
        EXPECT_EQ(name_of(units.front()), "embedding");
        EXPECT_EQ(name_of(units.back()), m.tied_embeddings ? "final_norm" : "head");
        std::set<std::string> names;
        for (const UnitRef& u : units)
            for (const ParameterSpec& p : unit_parameters(m, u, m.vocab_size))
                EXPECT_TRUE(names.insert(p.name).second) << p.name;
    }
}

TEST(Parameters, ATiedHeadIsTheEmbedding) {
    const ModelSpec m = read_model("gpt-mini");
    const auto head = unit_parameters(m, {UnitKind::head, 0}, m.vocab_size);
    const auto embedding = unit_parameters(m, {UnitKind::embedding, 0}, m.vocab_size);
    ASSERT_EQ(head.size(), 1u);
    EXPECT_EQ(head[0].name, embedding[0].name);
    EXPECT_EQ(head[0].elements(), embedding[0].elements());
}

TEST(Parameters, ReplicatedTensorsStandLastAndTheOthersSplit) {
    for (const std::string& name : model_preset_names()) {
        const ModelSpec m = read_model(name);
        bool replicated = false;
        std::int64_t local = 0;
        std::int64_t whole = 0;
        for (const std::int64_t layer : {std::int64_t{0}, m.layers - 1})
            for (const UnitKind kind : {UnitKind::layer, UnitKind::experts}) {
                replicated = false;
                for (const ParameterSpec& p : unit_parameters(m, {kind, layer}, m.vocab_size)) {
                    EXPECT_TRUE(p.replicated || !replicated) << name << ' ' << p.name;
                    replicated = replicated || p.replicated;
                    EXPECT_TRUE(p.replicated || p.sharded % m.kv_heads == 0 || p.sharded == m.ffn_hidden_size ||
                                p.sharded == m.moe.ffn_hidden_size || p.sharded == m.moe.shared_ffn)
                        << p.name;
                    local += p.elements(1);
                    whole += p.elements();
                }
            }
        EXPECT_EQ(local, whole);
    }
}

// A layer of each sort: the first is dense.
ModelSpec routed() {
    return {.name = "routed",
            .layers = 3,
            .hidden_size = 64,
            .attention_heads = 4,
            .kv_heads = 2,
            .head_dim = 16,
            .ffn_hidden_size = 96,
            .gated_mlp = true,
            .vocab_size = 100,
            .moe = {.experts = 8, .topk = 2, .ffn_hidden_size = 32, .shared_ffn = 48, .first_dense_layers = 1}};
}

std::int64_t elements_of(const ModelSpec& m, const UnitRef& unit, std::int64_t tensor = 1, std::int64_t expert = 1) {
    std::int64_t total = 0;
    for (const ParameterSpec& p : unit_parameters(m, unit, m.vocab_size)) total += p.elements(tensor, expert);
    return total;
}

TEST(Parameters, ExpertsAreAUnitOfTheirOwn) {
    const ModelSpec m = routed();
    std::vector<std::string> names;
    for (const UnitRef& u : units_of(m)) names.push_back(name_of(u));
    EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layer0", "layer1", "experts1", "layer2", "experts2",
                                               "final_norm", "head"}));
    EXPECT_TRUE(unit_parameters(m, {UnitKind::experts, 0}, 100).empty());
    const std::int64_t attention = 64 * (4 + 2 * 2) * 16 + 64 * 64 + 2 * 64;
    EXPECT_EQ(elements_of(m, {UnitKind::layer, 0}), attention + 3 * 64 * 96);
    EXPECT_EQ(elements_of(m, {UnitKind::layer, 1}), attention + 3 * 64 * 48 + 8 * 64);
    EXPECT_EQ(elements_of(m, {UnitKind::experts, 1}), 8 * 3 * 64 * 32);
    EXPECT_EQ(elements_of(m, {UnitKind::experts, 1}, 1, 4), 2 * 3 * 64 * 32);
    EXPECT_EQ(elements_of(m, {UnitKind::experts, 1}, 2, 4), 3 * 64 * 32);
    EXPECT_EQ(elements_of(m, {UnitKind::layer, 1}, 1, 4), elements_of(m, {UnitKind::layer, 1}));  // all of it, on each
}

TEST(Parameters, ATokenMeetsTopkExperts) {
    const ModelSpec m = routed();
    EXPECT_EQ(parameter_count(m) - active_parameter_count(m), 2 * (8 - 2) * 3 * 64 * 32);
    ModelSpec dense = m;
    dense.moe = {};
    EXPECT_EQ(active_parameter_count(dense), parameter_count(dense));
    ModelSpec every = m;  // layers 2 alone: the second after the first
    every.moe.every = 2;
    EXPECT_EQ(every.expert_layers(), 1);
    EXPECT_TRUE(every.has_experts(2) && !every.has_experts(1));
    EXPECT_EQ(parameter_count(m) - parameter_count(every), 3 * 64 * (8 * 32 + 48 - 96) + 8 * 64);
}

TEST(Parameters, ExpertsHaveTheBiasesOfMlpsAndSharedOnesNone) {
    const auto added = [](auto&& change) {
        ModelSpec m = routed();
        change(m);
        return parameter_count(m) - parameter_count(routed());
    };
    EXPECT_EQ(added([](ModelSpec& m) { m.mlp_bias = true; }), (2 * 96 + 64) + 2 * 8 * (2 * 32 + 64));
    EXPECT_EQ(added([](ModelSpec& m) { m.moe.router_bias = true; }), 2 * 8);
    EXPECT_EQ(added([](ModelSpec& m) { m.moe.shared_gate = true; }), 2 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.attention_sinks = true; }), 3 * 4);
    ModelSpec biased = routed();
    biased.mlp_bias = true;
    for (const ParameterSpec& p : unit_parameters(biased, {UnitKind::experts, 1}, 100)) {
        EXPECT_EQ(p.replicated, p.name.ends_with("fc2.bias")) << p.name;  // added once to the sum of all ranks' parts
        EXPECT_EQ(p.experts, 8);
    }
}

// DeepSeek-V2's own sizes, in units of its hidden size and latents.
TEST(Parameters, LatentAttentionByHand) {
    ModelSpec m = routed();
    m.attention_heads = m.kv_heads = 4;
    m.mla = {.kv_lora = 24, .q_lora = 40, .qk_nope = 16, .qk_rope = 8, .v_dim = 12};
    m.head_dim = m.mla.qk_size();
    const auto attention = [](const ModelSpec& of) {
        return elements_of(of, {UnitKind::layer, 0}) - 3 * 64 * 96 - 2 * 64;  // less MLP and norms of the layer
    };
    const std::int64_t keys = 64 * (24 + 8) + 24 + 24 * 4 * (16 + 12), output = 64 * 4 * 12;
    EXPECT_EQ(attention(m), (64 * 40 + 40 + 40 * 4 * 24) + keys + output);
    std::int64_t halved = 40 * 4 * 24 + 24 * 4 * (16 + 12) + output + 3 * 64 * 96;
    EXPECT_EQ(elements_of(m, {UnitKind::layer, 0}) - elements_of(m, {UnitKind::layer, 0}, 2), halved / 2);
    m.mla.q_lora = 0;
    EXPECT_EQ(attention(m), 64 * 4 * 24 + keys + output);
}

// Each field by what it adds to a model without it: 2 layers, hidden 64, 4 heads of 16 over 2, ffn 96.
TEST(Parameters, CountWhatFewModelsHave) {
    ModelSpec plain{.name = "plain",
                    .layers = 2,
                    .hidden_size = 64,
                    .attention_heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .ffn_hidden_size = 96,
                    .gated_mlp = true,
                    .vocab_size = 100,
                    .positions = Positions::rope,
                    .max_positions = 128,
                    .norm = Norm::layernorm};
    const auto added = [&](auto&& change) {
        ModelSpec m = plain;
        change(m);
        return parameter_count(m) - parameter_count(plain);
    };
    EXPECT_EQ(added([](ModelSpec& m) { m.attention_bias = true; }), 2 * (4 + 2 * 2) * 16);
    EXPECT_EQ(added([](ModelSpec& m) { m.projection_bias = true; }), 2 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.mlp_bias = true; }), 2 * (2 * 96 + 64));
    EXPECT_EQ(added([](ModelSpec& m) { m.bias = true; }), 2 * (8 * 16 + 64 + 2 * 96 + 64));
    EXPECT_EQ(added([](ModelSpec& m) { m.head_bias = true; }), 100);
    EXPECT_EQ(added([](ModelSpec& m) { m.norm_bias = false; }), -(2 * 2 + 1) * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.norm = Norm::rmsnorm; }), -(2 * 2 + 1) * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.block = Block::parallel; }), 0);
    EXPECT_EQ(added([](ModelSpec& m) { m.block = Block::parallel_shared_norm; }), -2 * 2 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.query_key_norm = QueryKeyNorm::shared; }), 2 * 2 * 16);
    EXPECT_EQ(added([](ModelSpec& m) { m.query_key_norm = QueryKeyNorm::per_head; }), 2 * (4 + 2) * 16);
    EXPECT_EQ(added([](ModelSpec& m) { m.post_norms = true; }), 2 * 2 * 2 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.embedding_norm = true; }), 2 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.rotary_dim = 8, m.sliding_window = {32, 2}; }), 0);
    EXPECT_EQ(added([](ModelSpec& m) { m.positions = Positions::learned, m.position_offset = 2; }), 130 * 64);
    EXPECT_EQ(added([](ModelSpec& m) { m.positions = Positions::alibi; }), 0);
}

}  // namespace
}  // namespace foretrain
