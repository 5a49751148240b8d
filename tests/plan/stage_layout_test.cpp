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
                for (const std::int64_t period : {1, 2, 3})
                    for (const std::int64_t prefix : {0, 1, 3, 8, 20}) {
                        const bool counts = kind >= Kind::block;
                        if (!counts && of > 1) continue;
                        const Recompute recompute{kind, counts ? of : 0};
                        SCOPED_TRACE(describe(recompute) + ", " + std::to_string(layers) + " layers, a period of " +
                                     std::to_string(period) + " after " + std::to_string(prefix));
                        f(recompute, LayerSpan{layers, {prefix, prefix % 2 == 0 ? 1 : period, period}, prefix / 4});
                    }
}

TEST(StageLayout, BriefLayersAreThoseOfTheBriefStage) {
    for_all([](const Recompute& recompute, const LayerSpan& span) {
        const BriefLayers brief = brief_layers(recompute, span);
        const StageLayout layout = stage_layout(recompute, span, Depth::brief);
        EXPECT_EQ(layout.layers, brief.layers);
        ASSERT_EQ(layout.repeats.size(), brief.repeats);
        std::int64_t all = layout.layers;
        for (std::size_t r = 0; r < layout.repeats.size(); ++r) {
            EXPECT_EQ(layout.repeats[r].times, brief.times[r]);
            all += (layout.repeats[r].times - 1) * layout.repeats[r].period;
        }
        EXPECT_EQ(all, span.layers) << "with those that it stands for";
    });
}

TEST(StageLayout, SegmentRunsListTheSegments) {
    for_all([](const Recompute& recompute, const LayerSpan& span) {
        const StageLayout layout = stage_layout(recompute, span, Depth::full);
        EXPECT_EQ(layout.layers, span.layers);
        EXPECT_TRUE(layout.repeats.empty());
        std::size_t next = 0;
        std::int32_t first = 0;
        for (const SegmentRun& run : segment_runs(recompute, span))
            for (std::int64_t n = 0; n < run.times; ++n, ++next) {
                ASSERT_LT(next, layout.segments.size());
                EXPECT_EQ(layout.segments[next].first, first);
                EXPECT_EQ(layout.segments[next].count, run.count);
                EXPECT_EQ(layout.segments[next].recomputed, run.recomputed);
                first += run.count;
            }
        EXPECT_EQ(next, layout.segments.size());
        EXPECT_EQ(first, span.layers);
    });
}

// Where the layers left out stand there are others that do the same: what each is like says what is computed.
TEST(StageLayout, EveryLayerIsLikeTheOneInItsPlace) {
    for_all([](const Recompute& recompute, const LayerSpan& span) {
        const StageLayout full = stage_layout(recompute, span, Depth::full);
        const StageLayout brief = stage_layout(recompute, span, Depth::brief);
        for (std::int64_t layer = 0; layer < span.layers; ++layer)
            EXPECT_EQ(full.like[static_cast<std::size_t>(layer)], span.pattern.representative(span.first + layer));
        // A layer that stands for many does what each of them does.
        std::int64_t left_out = 0;
        for (const Repeat& r : brief.repeats) {
            const std::int64_t first = r.ascending() + left_out;
            for (std::int64_t n = 0; n < r.times * r.period; ++n) {
                const std::int64_t layer = full.like[static_cast<std::size_t>(first + n)];
                const std::int64_t stands = brief.like[static_cast<std::size_t>(r.ascending() + n % r.period)];
                EXPECT_EQ(layer < span.pattern.prefix, stands < span.pattern.prefix);
                if (layer >= span.pattern.prefix) {
                    EXPECT_EQ(layer, stands);
                }
            }
            left_out += (r.times - 1) * r.period;
        }
    });
}

TEST(LayerPattern, ExpertsFollowADensePrefix) {
    ModelSpec m;
    m.layers = 12;
    m.moe = {.experts = 8, .first_dense_layers = 3, .every = 2};
    m.sliding_window = {.size = 16, .full_every = 3};
    const LayerPattern p = layer_pattern(m, 64);
    EXPECT_EQ(p.prefix, 3);
    EXPECT_EQ(p.prefix_period, 3);
    EXPECT_EQ(p.period, 6);
    for (std::int64_t layer = 0; layer < 40; ++layer) {
        EXPECT_EQ(m.has_experts(layer), m.has_experts(p.representative(layer))) << layer;
        EXPECT_EQ(m.window_of(layer, 64), m.window_of(p.representative(layer), 64)) << layer;
    }
    m.moe = {};
    EXPECT_EQ(layer_pattern(m, 64).period, 3);
    EXPECT_TRUE(layer_pattern(m, 16).uniform());
}

}  // namespace
}  // namespace foretrain
