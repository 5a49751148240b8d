#include "sim/fit_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace foretrain {

namespace {

constexpr double moves_little = 0.01;     // of a factor's logarithm
constexpr double prior_of_neutral = 0.5;  // at least: a neutral figure is a guess
constexpr int draws_of_given = 10;
constexpr double noise_of_few = 0.06;  // a run by itself: runs of one source lie about so far apart

Rows others_than(const FitModel& model, const Rows& rows) {
    const std::set<std::size_t> out(rows.begin(), rows.end());
    Rows rest;
    for (const std::size_t row : model.all_rows())
        if (out.count(row) == 0) rest.push_back(row);
    return rest;
}

std::map<std::string, Rows> rows_by_source(const FitModel& model) {
    std::map<std::string, Rows> by_source;
    for (const std::size_t row : model.all_rows()) by_source[model.runs()[row].source].push_back(row);
    return by_source;
}

// The same on any machine, unlike std::shuffle.
void shuffle(Rows& rows, std::mt19937_64& random) {
    for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
}

// What the rows know of a constant: the squares of what it moves their steps by.
std::vector<std::pair<std::string, double>> shares_of(const FitModel& model, const Sensitivity& s, std::size_t c) {
    std::map<std::string, double> known;
    double sum = 0;
    for (std::size_t i = 0; i < s.size(); ++i) {
        const double moved = s[i][c] * s[i][c];
        if (!moves_noticeably(s[i][c])) continue;
        known[model.runs()[i].source] += moved;
        sum += moved;
    }
    std::vector<std::pair<std::string, double>> shares(known.begin(), known.end());
    for (auto& [source, share] : shares) share /= sum;
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return shares;
}

FittedConstant told(const FitModel& model, const Fitted& fitted, std::size_t c) {
    const FreeConstant& free = model.constants()[c];
    const double x = fitted.factors[c];
    FittedConstant out{.name = free.name,
                       .reason = free.reason,
                       .paths = free.paths,
                       .before = free.before,
                       .after = free.before * std::exp(x),
                       .prior = free.prior,
                       .standard_error = fitted.standard_error[c],
                       .fold_spread = {},
                       .at_bound = x <= free.least || x >= free.most,
                       .sources = shares_of(model, fitted.sensitivity, c)};
    for (const std::vector<double>& row : fitted.sensitivity)
        if (moves_noticeably(row[c])) ++out.rows;
    return out;
}

class Study {
public:
    Study(const FitModel& model, const StudySettings& settings, const Fitted& all, FitReport& report)
        : model_(model), settings_(settings), all_(all), report_(report) {}

    void fold() {
        const std::vector<Rows> folds = folds_of(model_, settings_.folds, settings_.seed);
        std::vector<LogFactors> factors;
        for (std::size_t f = 0; f < folds.size(); ++f) {
            tell("folds", f, folds.size());
            FitSettings with;
            with.sensitivity = &all_.sensitivity;
            factors.push_back(fit(model_, others_than(model_, folds[f]), with).factors);
            predict(folds[f], factors.back(), &FitRow::folded);
        }
        for (std::size_t c = 0; c < model_.constants().size(); ++c) {
            double mean = 0, squares = 0;
            for (const LogFactors& x : factors) mean += x[c] / static_cast<double>(factors.size());
            for (const LogFactors& x : factors) squares += (x[c] - mean) * (x[c] - mean);
            for (FittedConstant& told : report_.constants)
                if (told.name == model_.constants()[c].name)
                    told.fold_spread = std::sqrt(squares / static_cast<double>(factors.size() - 1));
        }
    }

    void leave_sources_out() {
        const std::map<std::string, Rows> by_source = rows_by_source(model_);
        std::size_t done = 0;
        for (const auto& [source, rows] : by_source) {
            tell("without " + source, done++, by_source.size());
            const Fitted cold = without(rows);
            predict(rows, cold.factors, &FitRow::cold);
            FitSettings own = from(cold.factors);
            for (const FreeConstant& c : model_.constants()) own.fixed.push_back(!c.of_framework);
            predict(rows, fit(model_, rows, own).factors, &FitRow::own);
            if (settings_.given > 0 && settings_.given < rows.size()) give(source, rows, cold.factors);
        }
    }

private:
    void tell(const std::string& what, std::size_t done, std::size_t of) const {
        if (settings_.progress) settings_.progress(what, static_cast<double>(done) / static_cast<double>(of));
    }

    void predict(const Rows& rows, const LogFactors& factors, std::optional<double> FitRow::*where) {
        const std::vector<double> log_steps = model_.log_steps(factors, rows);
        for (std::size_t i = 0; i < rows.size(); ++i) report_.rows[rows[i]].*where = std::exp(log_steps[i]);
    }

    // Frameworks' figures believed less, where they begin at neutral ones.
    FitSettings from(LogFactors centre) const {
        FitSettings with;
        with.centre = std::move(centre);
        for (const FreeConstant& c : model_.constants())
            with.prior.push_back(c.of_framework ? std::max(c.prior, prior_of_neutral) : c.prior);
        return with;
    }

    Fitted without(const Rows& rows) const {
        LogFactors neutral;
        for (const FreeConstant& c : model_.constants()) neutral.push_back(c.of_framework ? c.neutral : 0);
        FitSettings with = from(std::move(neutral));
        with.start = all_.factors;
        with.sensitivity = &all_.sensitivity;
        return fit(model_, others_than(model_, rows), with);
    }

    void give(const std::string& source, const Rows& rows, const LogFactors& cold) {
        std::mt19937_64 random(settings_.seed);
        for (int draw = 0; draw < draws_of_given; ++draw) {
            Rows shuffled = rows;
            shuffle(shuffled, random);
            const auto cut = shuffled.begin() + static_cast<std::ptrdiff_t>(settings_.given);
            const Rows seen(shuffled.begin(), cut), rest(cut, shuffled.end());
            const auto corrected = [&](FitSettings with) {
                return model_.log_steps(fit_few(model_, seen, std::move(with)).factors, rest);
            };
            const std::vector<double> from_cold = corrected(from(cold)), from_before = corrected({});
            for (std::size_t i = 0; i < rest.size(); ++i)
                report_.given_rows.push_back(
                    {source, model_.runs()[rest[i]].measured_s, std::exp(from_cold[i]), std::exp(from_before[i])});
        }
    }

    const FitModel& model_;
    const StudySettings& settings_;
    const Fitted& all_;
    FitReport& report_;
};

}  // namespace

std::vector<Rows> folds_of(const FitModel& model, int folds, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Rows> out(static_cast<std::size_t>(folds));
    std::size_t next = 0;
    for (auto& [source, rows] : rows_by_source(model)) {
        Rows shuffled = rows;
        shuffle(shuffled, random);
        for (const std::size_t row : shuffled) out[next++ % out.size()].push_back(row);
    }
    for (Rows& fold : out) std::sort(fold.begin(), fold.end());
    return out;
}

Fitted fit_few(const FitModel& model, const Rows& rows, FitSettings settings) {
    settings.noise = noise_of_few;
    const Fitted all = fit(model, rows, settings);
    settings.fixed.resize(model.constants().size());
    for (std::size_t c = 0; c < all.factors.size(); ++c) {
        const double centre = settings.centre.empty() ? 0 : settings.centre[c];
        if (std::fabs(all.factors[c] - centre) < moves_little) settings.fixed[c] = true;
    }
    return fit(model, rows, settings);
}

FitReport fit_study(const FitModel& model, const StudySettings& settings, LogFactors& factors) {
    const Rows all = model.all_rows();
    FitSettings with;
    with.progress = settings.progress;
    const bool few = all.size() < model.constants().size();
    Fitted fitted = few ? fit_few(model, all, with) : fit(model, all, with);
    factors = fitted.factors;

    FitReport report;
    report.folds = settings.folds;
    report.without_source = settings.without_source;
    report.given = settings.without_source ? settings.given : 0;
    const std::vector<double> before = model.log_steps(LogFactors(factors.size(), 0.0), all);
    for (const std::size_t row : all) {
        const FitRun& run = model.runs()[row];
        report.rows.push_back({.id = run.id,
                               .source = run.source,
                               .measured = run.measured_s,
                               .before = std::exp(before[row]),
                               .after = std::exp(fitted.log_steps[row]),
                               .folded = {},
                               .cold = {},
                               .own = {}});
    }
    for (std::size_t c = 0; c < factors.size(); ++c)
        if (!fitted.stayed[c]) report.constants.push_back(told(model, fitted, c));
    Study study(model, settings, fitted, report);
    if (settings.folds > 0) study.fold();
    if (settings.without_source) study.leave_sources_out();
    return report;
}

}  // namespace foretrain
