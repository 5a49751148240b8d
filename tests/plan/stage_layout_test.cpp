// Brief stages and their full ones: two ways to say the same.
#include "plan/program/stage_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace foretrain {
namespace {

using Kind = Recompute::Kind;

template <class F>
void for_all(F&& f) {
    for (const Kind kind : {Kind::none, Kind::selective, Kind::full, Kind::block, Kind::segment, Kind::every})
        for (const std::int64_t of : {1, 2, 3, 5, 7, 12})
            for (const std::int64_t layers : {1, 2, 3, 4, 5, 6, 9, 12, 13, 32, 61})
                for (const std::int64_t alternation : {1, 2, 3}) {
                    const bool counts = kind >= Kind::block;
                    if (!counts && of > 1) continue;
                    const Recompute recompute{kind, counts ? of : 0};
                    SCOPED_TRACE(describe(recompute) + ", " + std::to_string(layers) + " layers, windows of " +
                                 std::to_string(alternation));
                    f(recompute, layers, alternation);
                }
}

TEST(StageLayout, BriefLayersAreThoseOfTheBriefStage) {
    for_all([](const Recompute& recompute, std::int64_t layers, std::int64_t alternation) {
        const BriefLayers brief = brief_layers(recompute, layers, alternation);
        const StageLayout layout = stage_layout(recompute, layers, alternation, Depth::brief);
        EXPECT_EQ(layout.layers, brief.layers);
        ASSERT_EQ(layout.repeats.size(), brief.repeats);
        std::int64_t all = layout.layers;
        for (std::size_t r = 0; r < layout.repeats.size(); ++r) {
            EXPECT_EQ(layout.repeats[r].times, brief.times[r]);
            all += (layout.repeats[r].times - 1) * layout.repeats[r].period;
        }
        EXPECT_EQ(all, layers) << "with those that it stands for";
    });
}

TEST(StageLayout, SegmentRunsListTheSegments) {
    for_all([](const Recompute& recompute, std::int64_t layers, std::int64_t alternation) {
        const StageLayout layout = stage_layout(recompute, layers, alternation, Depth::full);
        EXPECT_EQ(layout.layers, layers);
        EXPECT_TRUE(layout.repeats.empty());
        std::size_t next = 0;
        std::int32_t first = 0;
        for (const SegmentRun& run : segment_runs(recompute, layers))
            for (std::int64_t n = 0; n < run.times; ++n, ++next) {
                ASSERT_LT(next, layout.segments.size());
                EXPECT_EQ(layout.segments[next].first, first);
                EXPECT_EQ(layout.segments[next].count, run.count);
                EXPECT_EQ(layout.segments[next].recomputed, run.recomputed);
                first += run.count;
            }
        EXPECT_EQ(next, layout.segments.size());
        EXPECT_EQ(first, layers);
    });
}

}  // namespace
}  // namespace foretrain
