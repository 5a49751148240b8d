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
        for (const ParameterSpec& p : unit_parameters(m, {UnitKind::layer, 0}, m.vocab_size)) {
            EXPECT_TRUE(p.replicated || !replicated) << name << ' ' << p.name;
            replicated = replicated || p.replicated;
            EXPECT_TRUE(p.replicated || p.sharded % m.kv_heads == 0 || p.sharded == m.ffn_hidden_size) << p.name;
            local += p.elements(1);
            whole += p.elements();
        }
        EXPECT_EQ(local, whole);
    }
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
