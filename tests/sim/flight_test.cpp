// What a schedule has in flight in closed form, against what its order says.
#include "sim/flight.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(Flight, IsThatOfTheScheduleOrder) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b})
        for (const std::int64_t stages : {1, 2, 3, 4, 8})
            for (const std::int64_t chunks : {1, 2, 3})
                for (const std::int64_t rounds : {1, 2, 5, 20})
                    for (std::int64_t stage = 0; stage < stages; ++stage) {
                        if (chunks > 1 && stages == 1) continue;
                        const std::int64_t m = rounds * stages;
                        const Flight closed = flight_of(schedule, stages, stage, m, chunks);
                        const Flight counted = flight_of(schedule_order(schedule, stages, stage, m, chunks),
                                                         static_cast<std::size_t>(chunks));
                        SCOPED_TRACE(std::string(name_of(schedule)) + " pp " + std::to_string(stages) + " v " +
                                     std::to_string(chunks) + " m " + std::to_string(m) + " stage " +
                                     std::to_string(stage));
                        EXPECT_EQ(closed.most, counted.most);
                        EXPECT_EQ(closed.fullest, counted.fullest);
                        ASSERT_EQ(closed.moments.size(), counted.moments.size());
                        for (std::size_t i = 0; i < closed.moments.size(); ++i) {
                            const Flight::Moment &a = closed.moments[i], &b = counted.moments[i];
                            EXPECT_EQ(a.backward, b.backward);
                            EXPECT_EQ(a.chunk, b.chunk);
                            EXPECT_EQ(a.in_flight, b.in_flight);
                            EXPECT_EQ(a.pass, b.pass);
                            EXPECT_EQ(a.microbatch, b.microbatch);
                        }
                    }
}

// F0 F1 F2 F3 B0 F4 B1 ...: three are in flight when F3 begins, four when B0 does.
TEST(Flight, OfTheFirstOfFourStages) {
    const Flight f = flight_of(Schedule::one_f_one_b, 4, 0, 16, 1);
    EXPECT_EQ(f.most, std::vector<std::int64_t>{4});
    EXPECT_EQ(f.moments[0].in_flight, std::vector<std::int64_t>{3});
    EXPECT_EQ(f.moments[0].microbatch, 3);
    EXPECT_EQ(f.moments[1].in_flight, std::vector<std::int64_t>{4});
    EXPECT_EQ(f.moments[1].microbatch, 0);
}

}  // namespace
}  // namespace foretrain
