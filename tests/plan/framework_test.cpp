#include "plan/framework.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model_file.h"
#include "plan/framework_file.h"

namespace foretrain {
namespace {

TEST(Framework, ProfilesAreNamedAndSourced) {
    EXPECT_EQ(framework_names(), (std::vector<std::string>{"foretrain", "deepspeed", "fsdp", "internevo",
                                                           "megatron-deepspeed", "megatron-fsdp", "megatron-lm"}));
    for (const std::string& name : framework_names()) {
        const std::vector<std::string> versions = framework_versions(name);
        ASSERT_FALSE(versions.empty());
        for (const std::string& version : versions) {
            const Framework& f = framework_named(name + "@" + version);
            EXPECT_EQ(f.name, name);
            EXPECT_EQ(f.version, version);
            EXPECT_FALSE(f.sources.empty());
            EXPECT_EQ(f.runnable, name == "foretrain");
            EXPECT_EQ(f.costs == SoftwareCosts{}, f.runnable) << "our engine alone costs nothing besides";
            EXPECT_GT(f.step_spread, 0) << "no profile is certain: " << name << "@" << version;
        }
        std::string newest;
        for (const std::string& version : versions)
            if (!framework_named(name + "@" + version).by_name_only) newest = version;
        EXPECT_EQ(find_framework(name), find_framework(name + "@" + newest)) << "the newest is meant";
    }
    EXPECT_TRUE(framework_versions("x").empty());
    EXPECT_TRUE(framework_named("foretrain").runnable);
    EXPECT_FALSE(framework_named("megatron-lm").runnable);
    EXPECT_EQ(find_framework("x"), nullptr);
    try {
        framework_named("megatron-ml");
        ADD_FAILURE() << "not refused";
    } catch (const UserError& e) {
        EXPECT_EQ(e.text().suggestion, "megatron-lm");
    }
    try {
        framework_named("megatron-lm@2012");
        ADD_FAILURE() << "not refused";
    } catch (const UserError& e) {
        EXPECT_EQ(e.text().found, "\"megatron-lm@2012\"");
        EXPECT_EQ(e.text().suggestion, "megatron-lm@2022");
    }
    EXPECT_EQ(unknown_framework("torchtitan").suggestion, "fsdp@torchtitan");
    EXPECT_EQ(frameworks_with_zero(3, false, false), (std::vector<std::string>{"megatron-fsdp", "fsdp", "deepspeed"}));
    EXPECT_EQ(frameworks_with_zero(3, false, true), (std::vector<std::string>{"megatron-fsdp", "fsdp"}));
    EXPECT_EQ(find_framework("megatron-lm@"), nullptr);
    EXPECT_EQ(find_framework("@2021"), nullptr);
}

std::vector<Framework> read(std::string_view versions) {
    const std::string text =
        R"({"format": "foretrain.framework/1", "name": "x", "versions": [)" + std::string(versions) + "]}";
    std::vector<Framework> out;
    read_frameworks({"x", text}, out);
    return out;
}

TEST(FrameworkFile, AVersionLikeAnotherSaysWhatDiffers) {
    const auto versions = read(R"({"version": "1", "interleaves": true, "vocab_multiple": 8,
        "costs": {"host": {"forward_operations": 5, "operation_us": {"1": 20, "1500": 10}}, "stall": {"step_us": 7},
                  "messages": {"each_us": 90, "interleaved": 300}},
        "sources": {"interleaves": "a", "vocab_multiple": "b", "host": "c", "stall": "d", "messages": "f"}},
        {"version": "2", "like": "1", "vocab_multiple": 9, "costs": {"host": {"forward_operations": 6}},
         "sources": {"vocab_multiple": "e"}})");
    ASSERT_EQ(versions.size(), 2u);
    EXPECT_EQ(versions[1].name, "x");
    EXPECT_TRUE(versions[1].interleaves);
    EXPECT_EQ(versions[1].vocab_multiple, 9);
    EXPECT_EQ(versions[1].costs.host.forward_operations, 6);
    EXPECT_EQ(versions[1].costs.host.operation_us, versions[0].costs.host.operation_us);
    EXPECT_EQ(versions[1].costs.stall.step_us, 7);
    EXPECT_EQ(versions[1].costs.messages, (MessageCosts{90, 300}));
    EXPECT_EQ(versions[1].sources.at("vocab_multiple"), "e");
    EXPECT_EQ(versions[1].sources.at("host"), "c");
}

// Figures by the type that products compute in stay where a later version does not name them.
TEST(FrameworkFile, ProductsHaveFiguresByType) {
    const auto versions = read(R"({"version": "1", "half_gradient": "bf16", "quantised_weights": {"fp8": {"1": 2}},
        "costs": {"gemm": {"bf16": {"1": 1, "1500": 1.3}, "fp8": {"1": 0.7}},
                  "overlap": {"tensor_in_pieces": {"forward": 430, "backward": 210}}},
        "sources": {"half_gradient": "a", "quantised_weights": "b", "gemm": "c", "overlap": "d"}},
        {"version": "2", "like": "1", "by_name_only": true, "costs": {"gemm": {"fp8": {"1": 0.8}}}})");
    ASSERT_EQ(versions.size(), 2u);
    const SoftwareCosts& c = versions[1].costs;
    EXPECT_EQ(c.gemm_takes(DType::bf16, 989), 1);
    EXPECT_EQ(c.gemm_takes(DType::fp16, 2250), 1.3) << "half-precision types share what stands for either";
    EXPECT_EQ(c.gemm_takes(DType::fp8, 989), 0.8);
    EXPECT_EQ(c.gemm_takes(DType::mxfp8, 2250), 1) << "as measured";
    EXPECT_EQ(c.overlap.tensor_in_pieces, (TensorShares{430, 210}));
    EXPECT_FALSE(versions[0].by_name_only);
    EXPECT_TRUE(versions[1].by_name_only);
    EXPECT_EQ(versions[1].half_gradient, DType::bf16);
    EXPECT_EQ(versions[1].quantised_weights.at(DType::fp8), (Steps{{1, 2}}));
}

// One way to use a framework is meant by its name, or by what describes a run, and never by the framework's.
TEST(Framework, WhatIsMeantByNameOnlyIsNotTheNewest) {
    EXPECT_EQ(framework_named("megatron-lm").version, "2024");
    const Framework& bridge = framework_named("megatron-lm@2025-bridge");
    EXPECT_TRUE(bridge.by_name_only);
    EXPECT_TRUE(bridge.default_overlap.tensor);
    EXPECT_EQ(state_types({.precision = DType::bf16}, bridge.half_gradient).gradient, DType::bf16);
    EXPECT_EQ(state_types({.precision = DType::fp32}, bridge.half_gradient).gradient, DType::fp32);
}

// A figure without a source is refused, and so is what is out of range or unknown.
TEST(FrameworkFile, RefusesWhatHasNoSourceOrSense) {
    const auto field = [](std::string_view versions) -> std::string {
        try {
            read(versions);
        } catch (const UserError& e) {
            return e.text().field;
        }
        return "";
    };
    EXPECT_EQ(field(R"({"version": "1", "interleaves": true})"), "versions[0].interleaves");
    EXPECT_EQ(field(R"({"version": "1", "costs": {"host": {}}})"), "versions[0].costs.host");
    EXPECT_EQ(field(R"({"version": "1", "like": "0"})"), "versions[0].like");
    EXPECT_EQ(field(R"({"version": "1", "costs": {"overlap": {"tensor_forward": 1001}}, "sources": {"overlap": ""}})"),
              "versions[0].costs.overlap.tensor_forward");
    EXPECT_EQ(field(R"({"version": "1", "costs": {"hosts": {}}})"), "versions[0].costs.hosts");
    EXPECT_EQ(field(R"({"version": "1", "costs": {"messages": {"interleaved": 1001}}, "sources": {"messages": ""}})"),
              "versions[0].costs.messages.interleaved");
    EXPECT_EQ(field(R"({"version": "1", "stands_for": {"details": ["x"]}})"), "versions[0].stands_for");
    EXPECT_EQ(field(R"({"version": "1", "stands_for": {"from_month": "May"}, "sources": {"stands_for": "a"}},)"
                    R"({"version": "2", "like": "1"})"),
              "versions[0].stands_for.from_month");
    EXPECT_EQ(field(R"({"version": "1", "stands_for": {}, "sources": {"stands_for": "a"}},)"
                    R"({"version": "2", "like": "1", "stands_for": {}})"),
              "versions[1].stands_for")
        << "each version's own";
    EXPECT_EQ(field(R"({"version": "1", "costs": {"gemm": {"fp9": {"1": 1}}}, "sources": {"gemm": ""}})"),
              "versions[0].costs.gemm.fp9");
    EXPECT_EQ(field(R"({"version": "1", "half_gradient": "bf16"})"), "versions[0].half_gradient");
    EXPECT_EQ(field(R"({"version": "1"})"), "");
}

// 18 bytes a parameter in 16-bit training with an fp32 gradient: 2 + 4 + 4 (master) + 8 (Adam).
TEST(Framework, StateOf16BitTrainingIsFp32WithAMaster) {
    for (DType t : {DType::bf16, DType::fp16}) {
        const StateTypes s = state_types({.precision = t});
        EXPECT_EQ(size_of(s.weight) + size_of(s.gradient) + (s.master ? 4 : 0) + 2 * size_of(s.optimizer), 18);
    }
    for (DType t : {DType::fp32, DType::fp64}) {
        const StateTypes s = state_types({.precision = t});
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
