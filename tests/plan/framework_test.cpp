#include "plan/framework.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model_file.h"

namespace foretrain {
namespace {

TEST(Framework, ProfilesAreNamedAndSourced) {
    EXPECT_EQ(framework_names(), (std::vector<std::string>{"foretrain", "megatron-lm"}));
    for (const std::string& name : framework_names()) {
        const Framework& f = framework_named(name);
        EXPECT_EQ(f.name, name);
        EXPECT_FALSE(f.sources.empty());
        EXPECT_FALSE(f.version.empty());
        EXPECT_EQ(find_framework(name), &f);
    }
    EXPECT_TRUE(framework_named("foretrain").runnable);
    EXPECT_FALSE(framework_named("megatron-lm").runnable);
    EXPECT_EQ(find_framework("x"), nullptr);
    try {
        framework_named("megatron-ml");
        ADD_FAILURE() << "not refused";
    } catch (const UserError& e) {
        EXPECT_EQ(e.text().suggestion, "megatron-lm");
    }
}

// 18 bytes a parameter in 16-bit training with an fp32 gradient: 2 + 4 + 4 (master) + 8 (Adam).
TEST(Framework, StateOf16BitTrainingIsFp32WithAMaster) {
    for (DType t : {DType::bf16, DType::fp16}) {
        const StateTypes s = state_types(t);
        EXPECT_EQ(size_of(s.weight) + size_of(s.gradient) + (s.master ? 4 : 0) + 2 * size_of(s.optimizer), 18);
    }
    for (DType t : {DType::fp32, DType::fp64}) {
        const StateTypes s = state_types(t);
        EXPECT_FALSE(s.master);
        EXPECT_EQ(size_of(s.weight) + size_of(s.gradient) + 2 * size_of(s.optimizer), 4 * size_of(t));
    }
}

TEST(Framework, PadsTheVocabulary) {
    const ModelSpec gpt2 = read_model("gpt2");
    const Framework& megatron = framework_named("megatron-lm");
    EXPECT_EQ(padded_vocabulary(gpt2, megatron, 1), 50304);  // as Megatron-LM prints it
    EXPECT_EQ(padded_vocabulary(gpt2, megatron, 8), 51200);
    const Framework& own = framework_named("foretrain");
    EXPECT_EQ(padded_vocabulary(gpt2, own, 1), 50257);
    EXPECT_EQ(padded_vocabulary(gpt2, own, 4), 50260);
}

}  // namespace
}  // namespace foretrain
