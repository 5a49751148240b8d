#include "reports/text_table.h"

#include <gtest/gtest.h>

#include "reports/figures.h"

namespace foretrain {
namespace {

TEST(TextTable, SetsNamesLeftAndFiguresRight) {
    TextTable t({"kind", "count"});
    t.row({"gemm", "96"}).rule().row({"all", "1096"});
    EXPECT_EQ(t.text(2),
              "  kind  count\n"
              "  gemm     96\n"
              "  -----------\n"
              "  all    1096\n");
}

TEST(TextTable, LeavesOutAnEmptyHeadingAndTrailingBlanks) {
    TextTable t({"", ""}, 2);
    t.row({"a", "long"}).row({"b"});
    EXPECT_EQ(t.text(), "a  long\nb\n");
}

TEST(CsvLine, QuotesWhatWouldBreakIt) {
    EXPECT_EQ(csv_line({"a", "b,c", "say \"no\"", ""}), "a,\"b,c\",\"say \"\"no\"\"\",\n");
}

TEST(Figures, TakeAUnitOfFittingSize) {
    EXPECT_EQ(figure(from_seconds(12.3456)), "12.35 s");
    EXPECT_EQ(figure(from_seconds(0.0123456)), "12.35 ms");
    EXPECT_EQ(figure(from_seconds(123.456e-6)), "123.5 us");
    EXPECT_EQ(figure(Time{1500}), "1.500 ns");
    EXPECT_EQ(figure(Time{}), "0 s");
    EXPECT_EQ(figure(Bytes{3 * MiB}), "3.000 MiB");
    EXPECT_EQ(figure(Bytes{999}), "999 B");
    EXPECT_EQ(figure(Bytes{80 * GiB}), "80.00 GiB");
    EXPECT_EQ(grouped(1234567.2), "1 234 567");
    EXPECT_EQ(grouped(-999), "-999");
    EXPECT_EQ(percent(0.4213), "42.1 %");
    EXPECT_EQ(signed_percent(-0.051), "-5.1 %");
    EXPECT_EQ(short_count(8.03e9), "8.03 B");
}

TEST(Figures, BarsFillAndOverflow) {
    EXPECT_EQ(bar(0.5, 10), "[#####.....]");
    EXPECT_EQ(bar(0, 4), "[....]");
    EXPECT_EQ(bar(1, 4), "[####]");
    EXPECT_EQ(bar(1.2, 4), "[####!");
}

}  // namespace
}  // namespace foretrain
