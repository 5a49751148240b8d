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

}  // namespace
}  // namespace foretrain
