#include "reports/fit_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reports/figures.h"
#include "reports/fit_errors.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

constexpr std::size_t line_width = 100;

std::string count_of(std::size_t n) { return grouped(static_cast<double>(n)); }

// "llmfoundry 96 %, torchtitan", the sources without which the constant would not be known.
std::string rests_on(const FittedConstant& c) {
    if (c.sources.empty()) return "no run";
    const auto& [source, share] = c.sources.front();
    const std::string others = c.sources.size() == 1 ? "" : fmt::format(" of {}", c.sources.size());
    return fmt::format("{}{} {:.0f} %{}", c.rests_on_one() ? "! " : "", source, 100 * share, others);
}

std::string constants_part(const FitReport& r) {
    TextTable t({"constant", "rests on", "before", "after", "change", "+-", "folds +-", "runs"}, 2);
    for (const FittedConstant& c : r.constants)
        t.row({c.name, rests_on(c), fmt::format("{:.4g}", c.before),
               fmt::format("{:.4g}{}", c.after, c.at_bound ? "|" : ""), signed_percent(c.after / c.before - 1),
               percent(c.standard_error), c.fold_spread ? percent(*c.fold_spread) : "", count_of(c.rows)});
    return t.text(2) +
           wrapped(
               "!: all but 5 % of what is known of it comes from one source; |: at its bound. Of a constant that is a "
               "factor on several figures, the first is shown (--format json names all). +-: standard error, of "
               "which the prior is a part; folds +-: standard deviation over the folds.",
               2, line_width) +
           "\n";
}

std::string errors_cell(const ErrorSummary& e) {
    return e.count == 0 ? "" : fmt::format("{:.1f} / {:.1f}", 100 * e.median_ape, 100 * e.mape);
}

std::string errors_part(const FitReport& r) {
    TextTable t({"errors, %", "runs", "before", "fitted", r.folds > 0 ? fmt::format("{} folds", r.folds) : "",
                 r.without_source ? "cold" : "", r.without_source ? "own" : "",
                 r.given > 0 ? fmt::format("cold + {}", r.given) : "",
                 r.given > 0 ? fmt::format("before + {}", r.given) : ""});
    for (const FitErrors& e : fit_errors(r)) {
        if (e.source == "all") t.rule();
        t.row({e.source, count_of(e.runs), errors_cell(e.before), errors_cell(e.after), errors_cell(e.folded),
               errors_cell(e.cold), errors_cell(e.own), errors_cell(e.given_from_cold),
               errors_cell(e.given_from_before)});
    }
    std::string what = "Median / mean of |predicted / measured - 1|.";
    if (r.folds > 0) what += fmt::format(" {} folds: each run by a fit to the other folds.", r.folds);
    if (r.without_source)
        what +=
            " cold: by a fit without its source, in which frameworks' figures begin at neutral ones; own: the same, "
            "then "
            "its source's frameworks alone fitted to it (seen).";
    if (r.given > 0)
        what += fmt::format(
            " + {}: by constants that {} of its source's runs corrected, drawn ten times, judged on the others.",
            r.given, r.given);
    return t.text(2) + wrapped(what, 2, line_width) + "\n";
}

std::string sources_text(const FitReport& r) {
    std::vector<std::string> sources;
    for (const FitErrors& e : fit_errors(r)) sources.push_back(e.source);
    const std::size_t n = sources.size() - 1;
    return fmt::format("{} source{}", n, n == 1 ? "" : "s");
}

Json errors_json(const ErrorSummary& e) {
    if (e.count == 0) return {};
    Json out = Json::object();
    return out.set("count", static_cast<std::int64_t>(e.count))
        .set("median_ape", e.median_ape)
        .set("mape", e.mape)
        .set("p90_ape", e.p90_ape)
        .set("bias", e.bias);
}

Json constant_json(const FittedConstant& c) {
    Json paths = Json::array(), sources = Json::object();
    for (const std::string& path : c.paths) paths.push(Json(path));
    for (const auto& [source, share] : c.sources) sources.set(source, share);
    Json out = Json::object();
    return out.set("name", c.name)
        .set("paths", std::move(paths))
        .set("before", c.before)
        .set("after", c.after)
        .set("factor", c.after / c.before)
        .set("prior", c.prior)
        .set("standard_error", c.standard_error)
        .set("fold_spread", c.fold_spread ? Json(*c.fold_spread) : Json())
        .set("at_bound", c.at_bound)
        .set("runs", static_cast<std::int64_t>(c.rows))
        .set("sources", std::move(sources))
        .set("rests_on_one_source", c.rests_on_one())
        .set("reason", c.reason);
}

Json row_json(const FitRow& row) {
    const auto known = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
    Json out = Json::object();
    return out.set("id", row.id)
        .set("source", row.source)
        .set("measured_s", row.measured)
        .set("before_s", row.before)
        .set("after_s", row.after)
        .set("folded_s", known(row.folded))
        .set("cold_s", known(row.cold))
        .set("own_s", known(row.own));
}

}  // namespace

std::string fit_table(const FitReport& r) {
    std::string s = fmt::format("{} free constant{} fitted to {} run{} of {}.\n", r.constants.size(),
                                r.constants.size() == 1 ? "" : "s", count_of(r.rows.size()),
                                r.rows.size() == 1 ? "" : "s", sources_text(r));
    for (const auto& [reason, n] : r.left_out) s += fmt::format("  {} left out: {}\n", count_of(n), reason);
    return s + "\n" + constants_part(r) + "\n" + errors_part(r);
}

Json fit_json(const FitReport& r) {
    Json constants = Json::array(), errors = Json::object(), rows = Json::array(), left_out = Json::object();
    for (const FittedConstant& c : r.constants) constants.push(constant_json(c));
    for (const FitErrors& e : fit_errors(r)) {
        Json of = Json::object();
        of.set("runs", static_cast<std::int64_t>(e.runs))
            .set("before", errors_json(e.before))
            .set("after", errors_json(e.after))
            .set("folded", errors_json(e.folded))
            .set("cold", errors_json(e.cold))
            .set("own", errors_json(e.own))
            .set("given_from_cold", errors_json(e.given_from_cold))
            .set("given_from_before", errors_json(e.given_from_before));
        errors.set(e.source, std::move(of));
    }
    for (const FitRow& row : r.rows) rows.push(row_json(row));
    for (const auto& [reason, n] : r.left_out) left_out.set(reason, static_cast<std::int64_t>(n));
    Json out = Json::object();
    return out.set("free_constants", static_cast<std::int64_t>(r.constants.size()))
        .set("runs", static_cast<std::int64_t>(r.rows.size()))
        .set("left_out", std::move(left_out))
        .set("folds", r.folds)
        .set("given", static_cast<std::int64_t>(r.given))
        .set("constants", std::move(constants))
        .set("errors", std::move(errors))
        .set("rows", std::move(rows));
}

std::string fit_csv(const FitReport& r) {
    std::string s = csv_line({"constant", "first_path", "paths", "before", "after", "factor", "prior", "standard_error",
                              "fold_spread", "at_bound", "runs", "sources", "main_source", "main_share"});
    for (const FittedConstant& c : r.constants) {
        const auto figure_of = [](double x) { return fmt::format("{:.6g}", x); };
        s +=
            csv_line({c.name, c.paths.front(), std::to_string(c.paths.size()), figure_of(c.before), figure_of(c.after),
                      figure_of(c.after / c.before), figure_of(c.prior), figure_of(c.standard_error),
                      c.fold_spread ? figure_of(*c.fold_spread) : "", c.at_bound ? "yes" : "no", std::to_string(c.rows),
                      std::to_string(c.sources.size()), c.sources.empty() ? "" : c.sources.front().first,
                      c.sources.empty() ? "" : figure_of(c.sources.front().second)});
    }
    return s;
}

}  // namespace foretrain
