#include "reports/error_statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace foretrain {

double quantile(std::vector<double> values, double q) {
    FORETRAIN_CHECK(!values.empty(), "a quantile of nothing");
    std::sort(values.begin(), values.end());
    const double place = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorSummary errors_of(const std::vector<Compared>& rows) {
    ErrorSummary out;
    out.count = rows.size();
    if (rows.empty()) return out;
    std::vector<double> errors, sizes;
    double sum = 0, inside = 0;
    for (const Compared& row : rows) {
        errors.push_back(row.error());
        sizes.push_back(std::fabs(row.error()));
        sum += sizes.back();
        inside += row.inside ? 1 : 0;
    }
    const auto n = static_cast<double>(rows.size());
    out.median_ape = quantile(sizes, 0.5);
    out.mape = sum / n;
    out.p90_ape = quantile(sizes, 0.9);
    out.bias = quantile(errors, 0.5);
    out.coverage = inside / n;
    return out;
}

std::optional<double> kendall_tau_b(const std::vector<double>& a, const std::vector<double>& b) {
    FORETRAIN_CHECK(a.size() == b.size(), "two orders of different things");
    const auto sign = [](double x) { return static_cast<double>((x > 0) - (x < 0)); };
    double agree = 0, ordered_a = 0, ordered_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t j = i + 1; j < a.size(); ++j) {
            const double of_a = sign(a[i] - a[j]), of_b = sign(b[i] - b[j]);
            agree += of_a * of_b;
            ordered_a += std::fabs(of_a);
            ordered_b += std::fabs(of_b);
        }
    if (ordered_a == 0 || ordered_b == 0) return std::nullopt;
    return agree / std::sqrt(ordered_a * ordered_b);
}

}  // namespace foretrain
