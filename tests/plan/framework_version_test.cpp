#include "plan/framework_version.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

std::string chosen(const RunSoftware& software) {
    const VersionChoice choice = choose_version(software);
    EXPECT_EQ(choice.reference.empty(), !choice.reason.empty());
    EXPECT_EQ(choice.reference.empty(), !choice.why.empty());
    return choice.reference.empty() ? "none: " + choice.reason : choice.reference;
}

TEST(FrameworkVersion, FollowsFromAReleaseOrDate) {
    const auto megatron = [](const std::string& release) {
        return chosen({.name = "megatron-lm", .release = release});
    };
    EXPECT_EQ(megatron("2021"), "megatron-lm@2021");
    EXPECT_EQ(megatron("2022-04"), "megatron-lm@2021");
    EXPECT_EQ(megatron("2021.06"), "megatron-lm@2021");
    EXPECT_EQ(megatron("1999"), "megatron-lm@2021") << "a year, and no release 1999";
    EXPECT_EQ(megatron("2022-05-10"), "megatron-lm@2022");
    EXPECT_EQ(megatron("2022"), "megatron-lm@2022") << "the year holds the end of one and the begin of the next";
    EXPECT_EQ(megatron("2025"), "megatron-lm@2024");
    EXPECT_EQ(megatron("23.04"), "megatron-lm@2022") << "a container by year and month";
    EXPECT_EQ(megatron("26.02.01"), "megatron-lm@2024");
    EXPECT_EQ(megatron("0.4"), "megatron-lm@2024");
    EXPECT_EQ(megatron("core_v0.12.0rc3"), "megatron-lm@2024");
    EXPECT_EQ(megatron("0.3.1"), "none: framework release");
    EXPECT_EQ(megatron("main"), "none: framework release");
    const auto deepspeed = [](const std::string& release) { return chosen({.name = "deepspeed", .release = release}); };
    EXPECT_EQ(deepspeed("0.5.10"), "deepspeed@2021");
    EXPECT_EQ(deepspeed("0.6.0"), "none: framework release");
    EXPECT_EQ(deepspeed("0.19.2"), "deepspeed@2025");
    EXPECT_EQ(deepspeed("2021-03"), "deepspeed@2021");
}

TEST(FrameworkVersion, FollowsFromWords) {
    const auto of = [](const char* name, const char* detail) { return chosen({.name = name, .detail = detail}); };
    EXPECT_EQ(of("fsdp", "MosaicML Composer/llm-foundry (PyTorch FSDP)"), "fsdp@composer");
    EXPECT_EQ(of("megatron-deepspeed", "Megatron-DeepSpeed (bigscience)"), "megatron-deepspeed@2022-bigscience");
    EXPECT_EQ(of("megatron-deepspeed", "Megatron-DeepSpeed (Microsoft)"), "megatron-deepspeed@2022");
    EXPECT_EQ(of("megatron-lm", "Megatron-LM 23e00ed + TE 2.11"), "megatron-lm@2024");
    const auto container = [](const char* release) {
        return chosen({.name = "megatron-lm", .release = release, .detail = "Megatron-Bridge/NeMo Container"});
    };
    EXPECT_EQ(container("26.02.01"), "megatron-lm@2025-bridge");
    EXPECT_EQ(container("24.07"), "megatron-lm@2024") << "before the recipes";
    EXPECT_TRUE(choose_version({.name = "megatron-lm", .detail = "SUITE 2.11"}).assumed) << "no word of its own";
    EXPECT_FALSE(choose_version({.name = "megatron-lm", .detail = "with te 2.11"}).assumed);
}

TEST(FrameworkVersion, AgreesWithWhatTheRunDid) {
    const auto titan = [](bool compiled) {
        return chosen({.name = "fsdp", .release = "0.1.0", .detail = "torchtitan", .compiled = compiled});
    };
    EXPECT_EQ(titan(true), "fsdp@torchtitan-compiled");
    EXPECT_EQ(titan(false), "fsdp@torchtitan");
    EXPECT_EQ(chosen({.name = "megatron-lm", .compiled = true}), "none: compiled");
    EXPECT_EQ(chosen({.name = "megatron-lm", .flash_attention = false}), "megatron-lm@2022") << "the newest without";
    EXPECT_EQ(chosen({.name = "megatron-lm", .release = "2021", .flash_attention = true}), "none: attention");
    EXPECT_EQ(chosen({.name = "foretrain", .flash_attention = true}), "foretrain@0.1");
}

TEST(FrameworkVersion, TheNewestIsAssumedWhereNothingTells) {
    const VersionChoice choice = choose_version({.name = "megatron-lm"});
    EXPECT_EQ(choice.reference, "megatron-lm@2024");
    EXPECT_TRUE(choice.assumed);
    EXPECT_FALSE(choose_version({.name = "internevo"}).assumed) << "there is only one";
}

}  // namespace
}  // namespace foretrain
