#include "reports/fit_errors.h"

#include <functional>
#include <set>

namespace foretrain {

namespace {

using Takes = std::function<bool(const std::string& source)>;

FitErrors errors_where(const FitReport& report, std::string name, const Takes& takes) {
    FitErrors out;
    out.source = std::move(name);
    std::vector<Compared> before, after, folded, cold, own, from_cold, from_before;
    const auto add = [](std::vector<Compared>& to, std::optional<double> predicted, double measured) {
        if (predicted) to.push_back({.predicted = *predicted, .measured = measured});
    };
    for (const FitRow& row : report.rows) {
        if (!takes(row.source)) continue;
        ++out.runs;
        add(before, row.before, row.measured);
        add(after, row.after, row.measured);
        add(folded, row.folded, row.measured);
        add(cold, row.cold, row.measured);
        add(own, row.own, row.measured);
    }
    for (const GivenRow& row : report.given_rows) {
        if (!takes(row.source)) continue;
        add(from_cold, row.from_cold, row.measured);
        add(from_before, row.from_before, row.measured);
    }
    out.before = errors_of(before);
    out.after = errors_of(after);
    out.folded = errors_of(folded);
    out.cold = errors_of(cold);
    out.own = errors_of(own);
    out.given_from_cold = errors_of(from_cold);
    out.given_from_before = errors_of(from_before);
    return out;
}

}  // namespace

std::vector<FitErrors> fit_errors(const FitReport& report) {
    std::set<std::string> sources;
    for (const FitRow& row : report.rows) sources.insert(row.source);
    std::vector<FitErrors> out;
    for (const std::string& source : sources)
        out.push_back(errors_where(report, source, [&](const std::string& s) { return s == source; }));
    out.push_back(errors_where(report, "all", [](const std::string&) { return true; }));
    return out;
}

}  // namespace foretrain
