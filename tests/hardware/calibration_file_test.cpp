#include "hardware/calibration_file.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

Json parsed(std::string_view text) { return Json::parse(text, "device.json"); }
Calibration calibration(std::string_view text) { return calibration_from_json(parsed(text)); }
Calibration a100() { return device_from_json(Json("a100-sxm-80gb")).calibration; }

TEST(CalibrationFile, CarriesAWholeDeviceOver) {
    const Calibration c = calibration(R"({"like": "a100-sxm-80gb", "spread": 0.4, "reason": "a guess"})");
    GemmConstants g = *a100().gemm_for(DType::bf16);
    g.spread = 0.4;
    g.born.source = "carried over from a100-sxm-80gb (a guess): " + g.born.source;
    EXPECT_EQ(*c.gemm_for(DType::bf16), g);
    EXPECT_EQ(c.attention.forward, a100().attention.forward);
    EXPECT_EQ(c.attention.spread, 0.4);
    EXPECT_EQ(c.memory_bound.efficiency, a100().memory_bound.efficiency);
    EXPECT_EQ(calibration_from_json(parsed(calibration_to_json(c).dump())), c);
}

TEST(CalibrationFile, PartsOverride) {
    const Calibration c = calibration(R"({"like": "a100-sxm-80gb", "spread": 0.1, "reason": "a guess",
        "gemm": [{"dtype": "bf16", "like": "h100-sxm-80gb", "spread": 0.2, "reason": "another", "sustained": 0.5}],
        "memory_bound": {"efficiency": 0.5, "spread": 0.01}})");
    EXPECT_EQ(c.gemm.size(), a100().gemm.size());
    EXPECT_EQ(c.gemm_for(DType::bf16)->sustained, 0.5);
    EXPECT_EQ(c.gemm_for(DType::bf16)->tiles, a100().gemm.front().tiles);
    EXPECT_EQ(c.gemm_for(DType::bf16)->launch_us, device_from_json(Json("h100")).calibration.gemm.front().launch_us);
    EXPECT_EQ(c.gemm_for(DType::fp16)->spread, 0.1);
    EXPECT_EQ(c.memory_bound.efficiency, 0.5);
    EXPECT_EQ(c.memory_bound.spread, 0.01);
}

TEST(CalibrationFile, OneTypeServesForAnother) {
    const Calibration c = calibration(
        R"({"gemm": [{"dtype": "bf16", "efficiency": 0.5}, {"dtype": "fp32", "like": "bf16", "spread": 0.3, "reason": "r"}]})");
    EXPECT_EQ(c.gemm_for(DType::fp32)->efficiency, 0.5);
    EXPECT_EQ(c.gemm_for(DType::fp32)->spread, 0.3);
}

TEST(CalibrationFile, RefusesWhatIsCarriedOverWithoutSpreadOrReason) {
    const auto field = [](const char* text) { return refusal([&] { calibration(text); }).field; };
    EXPECT_NE(refusal([] { calibration(R"({"like": "a100-sxm-80gb", "reason": "r"})"); }).found.find("spread"),
              std::string::npos);
    EXPECT_NE(refusal([] { calibration(R"({"like": "a100-sxm-80gb", "spread": 0.1})"); }).found.find("reason"),
              std::string::npos);
    EXPECT_EQ(field(R"({"like": "a100-sxm-80gb", "spread": 1.5, "reason": "r"})"), "spread");
    EXPECT_EQ(field(R"({"spread": 0.1})"), "spread");
    EXPECT_EQ(field(R"({"gemm": [{"dtype": "fp32", "like": "bf16", "spread": 0.1, "reason": "r"}]})"), "gemm[0].like");
    EXPECT_EQ(field(R"({"gemm": [{"dtype": "bf16", "like": "v100", "spread": 0.1, "reason": "r"}]})"), "gemm[0].like");
    EXPECT_EQ(refusal([] { calibration(R"({"like": "a100-sxm-80g", "spread": 0.1, "reason": "r"})"); }).suggestion,
              "a100-sxm-80gb");
}

}  // namespace
}  // namespace foretrain
