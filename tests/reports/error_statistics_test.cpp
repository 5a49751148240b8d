#include "reports/error_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace foretrain {
namespace {

TEST(ErrorStatistics, QuantilesLieBetweenValues) {
    EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
    EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
    EXPECT_EQ(quantile({7}, 0.9), 7);
    EXPECT_DOUBLE_EQ(quantile({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9), 9);
    EXPECT_EQ(quantile({1, 5}, 0), 1);
    EXPECT_EQ(quantile({1, 5}, 1), 5);
}

TEST(ErrorStatistics, ErrorsKeepTheirSignInTheBiasAlone) {
    const ErrorSummary e = errors_of({{.predicted = 9, .measured = 10, .inside = true},
                                      {.predicted = 8, .measured = 10},
                                      {.predicted = 14, .measured = 10, .inside = true}});
    EXPECT_EQ(e.count, 3u);
    EXPECT_DOUBLE_EQ(e.median_ape, 0.2);
    EXPECT_DOUBLE_EQ(e.mape, 0.7 / 3);
    EXPECT_DOUBLE_EQ(e.p90_ape, 0.36);
    EXPECT_DOUBLE_EQ(e.bias, -0.1);
    EXPECT_DOUBLE_EQ(e.coverage, 2.0 / 3);
    EXPECT_EQ(errors_of({}).count, 0u);
}

TEST(ErrorStatistics, KendallsTauCountsPairs) {
    EXPECT_EQ(kendall_tau_b({1, 2, 3}, {10, 20, 30}), 1);
    EXPECT_EQ(kendall_tau_b({1, 2, 3}, {30, 20, 10}), -1);
    EXPECT_DOUBLE_EQ(*kendall_tau_b({1, 2, 3, 4}, {1, 2, 4, 3}), 4.0 / 6);  // one pair of six the other way
    // A tie in one: 5 pairs ordered in it, 6 in the other, all 5 alike.
    EXPECT_DOUBLE_EQ(*kendall_tau_b({1, 2, 2, 3}, {1, 2, 3, 4}), 5 / std::sqrt(30.0));
    EXPECT_FALSE(kendall_tau_b({1, 1, 1}, {1, 2, 3}).has_value());
    EXPECT_FALSE(kendall_tau_b({}, {}).has_value());
}

}  // namespace
}  // namespace foretrain
