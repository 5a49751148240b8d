#include "sim/constant_path.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

TEST(ConstantPath, SaysWhoseAndWhere) {
    const ConstantPath p = constant_path(Json("h100-sxm-80gb.calibration.gemm.bf16.efficiency"));
    EXPECT_EQ(p.owner, "h100-sxm-80gb");
    EXPECT_EQ(p.room, FigureRoom::calibration);
    EXPECT_EQ(p.inside, (Place{"gemm", "bf16", "efficiency"}));
    EXPECT_EQ(text_of(p), "h100-sxm-80gb.calibration.gemm.bf16.efficiency");
    EXPECT_EQ(constant_path(Json("fsdp@0.1.costs.stall.step_us")).owner, "fsdp@0.1") << "dots in a version";
    for (const char* wrong : {"", "efficiency", ".costs.stall", "a.costs.", "a.costs.b..c", "a.kosts.b"})
        EXPECT_FALSE(refusal([&] { constant_path(Json(wrong)); }).expected.empty()) << wrong;
}

TEST(ConstantPath, StarsStandForAnyLetters) {
    EXPECT_TRUE(matches("megatron-*@2022*", "megatron-deepspeed@2022-bigscience"));
    EXPECT_TRUE(matches("*", ""));
    EXPECT_TRUE(matches("stream*", "stream"));
    EXPECT_FALSE(matches("*_us", "loss"));
    EXPECT_FALSE(matches("fsdp", "fsdp@composer"));
}

TEST(ConstantPath, FindsAndReplacesFigures) {
    const Json figures = Json::parse(
        R"({"gemm": [{"dtype": "bf16", "efficiency": 0.5}, {"dtype": "fp32", "efficiency": 0.25}], "by": {"1": 29, "x": "y"}})",
        "figures");
    EXPECT_EQ(places_in(figures, {"gemm", "*", "efficiency"}),
              (std::vector<Place>{{"gemm", "bf16", "efficiency"}, {"gemm", "fp32", "efficiency"}}));
    EXPECT_EQ(places_in(figures, {"by", "*"}), (std::vector<Place>{{"by", "1"}})) << "numbers alone";
    EXPECT_TRUE(places_in(figures, {"gemm", "fp16", "efficiency"}).empty());
    EXPECT_EQ(figure_in(figures, {"gemm", "fp32", "efficiency"}), 0.25);
    const Json other = with_figure(figures, {"gemm", "fp32", "efficiency"}, Json(0.75));
    EXPECT_EQ(figure_in(other, {"gemm", "fp32", "efficiency"}), 0.75);
    EXPECT_EQ(figure_in(other, {"gemm", "bf16", "efficiency"}), 0.5);
    EXPECT_EQ(figure_in(figures, {"gemm", "fp32", "efficiency"}), 0.25) << "the first is as it was";
}

}  // namespace
}  // namespace foretrain
