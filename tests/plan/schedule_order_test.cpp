#include "plan/schedule_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace foretrain {
namespace {

std::string text(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches) {
    std::string s;
    for (const Pass& p : schedule_order(schedule, stages, stage, microbatches))
        s += (s.empty() ? "" : " ") + std::string(p.backward ? "B" : "F") + std::to_string(p.microbatch);
    return s;
}

// The most chunk passes whose activations a stage holds at once: forwards begun minus backwards done.
std::int64_t most_in_flight(const std::vector<Pass>& order) {
    std::int64_t now = 0, most = 0;
    for (const Pass& pass : order) {
        now += pass.backward ? -1 : 1;
        most = std::max(most, now);
    }
    return most;
}

TEST(ScheduleOrder, IsTheOneInTheBooks) {
    EXPECT_EQ(text(Schedule::gpipe, 4, 0, 3), "F0 F1 F2 B0 B1 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 3, 3), "F0 B0 F1 B1 F2 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 2, 3), "F0 F1 B0 F2 B1 B2");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 0, 6), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
    EXPECT_EQ(text(Schedule::one_f_one_b, 4, 0, 2), "F0 F1 B0 B1");  // fewer microbatches than warm-up
}

// 1F1B holds min(m, p - r) microbatches on stage r, GPipe all of them.
TEST(ScheduleOrder, HoldsAsManyMicrobatchesAsStagesFollow) {
    for (std::int64_t stages : {1, 2, 4, 7})
        for (std::int64_t m : {1, 2, 5, 16})
            for (std::int64_t r = 0; r < stages; ++r) {
                const auto order = schedule_order(Schedule::one_f_one_b, stages, r, m);
                EXPECT_EQ(static_cast<std::int64_t>(order.size()), 2 * m);
                EXPECT_EQ(most_in_flight(order), std::min(m, stages - r));
                EXPECT_EQ(most_in_flight(schedule_order(Schedule::gpipe, stages, r, m)), m);
            }
}

// With the chunk before the point.
std::string interleaved(Schedule schedule, std::int64_t stages, std::int64_t stage, std::int64_t microbatches,
                        std::int64_t chunks) {
    std::string s;
    for (const Pass& p : schedule_order(schedule, stages, stage, microbatches, chunks))
        s += (s.empty() ? "" : " ") + std::string(p.backward ? "B" : "F") + std::to_string(p.chunk) + "." +
             std::to_string(p.microbatch);
    return s;
}

TEST(ScheduleOrder, InterleavesChunksInRoundsOfAsManyMicrobatchesAsStages) {
    EXPECT_EQ(interleaved(Schedule::one_f_one_b, 2, 0, 4, 2),
              "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
    EXPECT_EQ(interleaved(Schedule::one_f_one_b, 2, 1, 4, 2),
              "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
    EXPECT_EQ(interleaved(Schedule::gpipe, 2, 1, 2, 2), "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1");
    EXPECT_EQ(interleaved(Schedule::one_f_one_b, 2, 0, 2, 2), interleaved(Schedule::gpipe, 2, 0, 2, 2));
    EXPECT_EQ(interleaved(Schedule::one_f_one_b, 2, 1, 2, 1), "F0.0 B0.0 F0.1 B0.1");
}

// Stage r warms up with 2 (p - r - 1) + (v - 1) p forward passes and holds one more: the first stage
// p v + p - 1 chunks, 1 + (p - 1) / (p v) times what it holds without interleaving.
TEST(ScheduleOrder, InterleavedHoldsItsWarmUpAndOneMore) {
    for (std::int64_t p : {2, 3, 4, 8})
        for (std::int64_t v : {2, 3, 5})
            for (std::int64_t rounds : {1, 2, 3, 7})
                for (std::int64_t r = 0; r < p; ++r) {
                    const auto order = schedule_order(Schedule::one_f_one_b, p, r, rounds * p, v);
                    const std::int64_t passes = rounds * p * v;
                    EXPECT_EQ(static_cast<std::int64_t>(order.size()), 2 * passes);
                    EXPECT_EQ(most_in_flight(order), std::min(passes, 2 * (p - r - 1) + (v - 1) * p + 1));
                    if (r == 0 && rounds > 1) {
                        EXPECT_EQ(most_in_flight(order), p * v + p - 1);
                    }
                }
}

// Every chunk runs every microbatch once each way, in their order (gradients add up in it), and no
// backward pass comes before its forward pass or before that of the chunk behind it on this stage.
TEST(ScheduleOrder, EveryPassRunsOnceAndInOrder) {
    for (Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
        for (std::int64_t stage = 0; stage < 3; ++stage) {
            constexpr std::int32_t chunks = 3, microbatches = 9;
            std::array<std::int32_t, chunks> forward{}, backward{};
            for (const Pass& p : schedule_order(schedule, 3, stage, microbatches, chunks)) {
                const auto c = static_cast<std::size_t>(p.chunk);
                EXPECT_EQ(p.microbatch, p.backward ? backward[c]++ : forward[c]++);
                EXPECT_LE(backward[c], forward[c]);
                if (c > 0) {
                    EXPECT_LE(forward[c], forward[c - 1]);
                }
                if (c + 1 < chunks) {
                    EXPECT_LE(backward[c], backward[c + 1]);
                }
            }
            for (std::size_t c = 0; c < chunks; ++c) {
                EXPECT_EQ(forward[c], microbatches);
                EXPECT_EQ(backward[c], microbatches);
            }
        }
}

}  // namespace
}  // namespace foretrain
