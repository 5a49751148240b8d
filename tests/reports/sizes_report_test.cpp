#include "reports/sizes_report.h"

#include <gtest/gtest.h>

#include "tests/reports/support/examples.h"

namespace foretrain {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

RangeResult two_sizes() {
    RangeResult range{.base = examples::two_stages().plan};
    range.sizes = {
        {.nodes = 1, .devices = 8, .best = examples::two_stages(), .fewest = true, .least_hours = true},
        {.nodes = 2, .devices = 16, .best = examples::two_stages()},
    };
    return range;
}

TrainingCost cost() { return {.tokens = 1e12, .steps = 1e6, .days = 15240, .device_hours = 2926080}; }

TEST(SizesReport, SaysInWordsWhatIsUnbeaten) {
    const std::string table = sizes_table(two_sizes());
    EXPECT_TRUE(contains(table, "  speed, hours  ")) << table;
    EXPECT_TRUE(contains(table, "unbeaten in speed: no smaller size is as fast; in hours: none is faster")) << table;
    EXPECT_FALSE(contains(table, "! tight")) << table;
}

TEST(SizesReport, MarksTightPlans) {
    RangeResult range = two_sizes();
    range.sizes[0].best->memory[1].activations = Bytes{4 * GiB + 6 * GiB / 10};
    const std::string table = sizes_table(range);
    EXPECT_TRUE(contains(table, "9.60!")) << table;
    EXPECT_TRUE(contains(table, "! tight: less than a twentieth of the device to spare")) << table;
}

TEST(SizesReport, DaysAreGroupedAndMoneyAndEnergyShownWhereTheyAreKnown) {
    RangeResult range = two_sizes();
    range.sizes[0].best->training = range.sizes[1].best->training = cost();
    const std::string plain = sizes_table(range);
    EXPECT_TRUE(contains(plain, "15 240  ")) << plain;
    EXPECT_FALSE(contains(plain, "USD")) << plain;
    EXPECT_FALSE(contains(plain, "MWh")) << plain;
    for (SizeResult& s : range.sizes) {
        s.best->training->watts = 1000;
        s.best->training->megawatt_hours = 2926;
    }
    const std::string powered = sizes_table(range);
    EXPECT_TRUE(contains(powered, "MWh")) << powered;
    EXPECT_TRUE(contains(powered, " 2 926\n")) << powered;
}

}  // namespace
}  // namespace foretrain
