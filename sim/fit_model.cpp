#include "sim/fit_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "hardware/calibration_file.h"
#include "hardware/fields.h"
#include "plan/framework_file.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

constexpr std::array rooms{FigureRoom::costs, FigureRoom::calibration, FigureRoom::domain, FigureRoom::network};
// Of a factor's logarithm, for a slope: wide enough to step over the kinks where host and device take turns.
constexpr double step_of_slope = 0.03;
constexpr double spread_unstated = 0.1;

template <class Constants>
Json fields_of(Constants constants) {
    Json out = Json::object();
    FieldWriter w(out);
    visit(w, constants);
    return out;
}

template <class Constants>
Constants constants_from(const Json& json) {
    Constants out;
    FieldReader in(json);
    visit(in, out);
    in.finish();
    return out;
}

// The spread that the part of the figures says of itself in which the figure stands.
double spread_beside(const Json& figures, const Place& place) {
    for (std::size_t depth = place.size(); depth-- > 0;) {
        Place beside(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(depth));
        beside.emplace_back("spread");
        if (!places_in(figures, beside).empty()) return std::max(figure_in(figures, beside), 0.01);
    }
    return spread_unstated;
}

}  // namespace

FitModel::FitModel(std::vector<FitRun> runs, const std::vector<ConstantRule>& rules, int threads)
    : runs_(std::move(runs)), workers_(threads) {
    for (const FitRun& run : runs_) {
        std::vector<std::size_t>& of_run = holders_of_run_.emplace_back();
        for (const FigureRoom room : rooms) of_run.push_back(holder_of(room, run.plan));
    }
    find_constants(rules);
}

Rows FitModel::all_rows() const {
    Rows rows(runs_.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
    return rows;
}

std::size_t FitModel::holder_of(FigureRoom room, const Plan& plan) {
    Holder h;
    h.room = room;
    const ClusterSpec& c = plan.cluster;
    if (room == FigureRoom::costs) {
        h.framework = framework_named(plan.framework);
        h.owner = h.framework.name + "@" + h.framework.version;
    }
    if (room == FigureRoom::calibration) {
        h.owner = c.device.name;
        h.cluster.device.calibration = c.device.calibration;
    }
    if (room == FigureRoom::domain) {
        h.owner = c.domain.link;
        h.cluster.domain = c.domain;
    }
    if (room == FigureRoom::network) {
        h.owner = c.network.fabric;
        h.cluster.network.constants = c.network.constants;
    }
    const auto same = std::find_if(holders_.begin(), holders_.end(), [&](const Holder& other) {
        return other.room == room && other.owner == h.owner && other.framework == h.framework &&
               other.cluster == h.cluster;
    });
    if (same != holders_.end()) return static_cast<std::size_t>(same - holders_.begin());
    holders_.push_back(std::move(h));
    return holders_.size() - 1;
}

Json FitModel::figures_of(const Holder& h) {
    switch (h.room) {
        case FigureRoom::costs: return costs_to_json(h.framework.costs);
        case FigureRoom::calibration: return calibration_to_json(h.cluster.device.calibration);
        case FigureRoom::domain: return fields_of(h.cluster.domain);
        case FigureRoom::network: return fields_of(h.cluster.network.constants);
    }
    throw InternalError("no such room of figures");
}

void FitModel::find_constants(const std::vector<ConstantRule>& rules) {
    for (const ConstantRule& rule : rules) {
        // Holders by owner: those of one owner have the same constants, if each has its own.
        std::map<Owner, std::vector<std::size_t>> owners;
        std::vector<std::size_t> all;
        for (std::size_t h = 0; h < holders_.size(); ++h) {
            const Holder& holder = holders_[h];
            const bool meant = std::any_of(rule.paths.begin(), rule.paths.end(), [&](const ConstantPath& p) {
                return p.room == holder.room && matches(p.owner, holder.owner);
            });
            if (!meant) continue;
            owners[{holder.room, holder.owner}].push_back(h);
            all.push_back(h);
        }
        if (!rule.each) add_constant(rule, all);
        if (rule.each)
            for (const auto& [owner, holders] : owners) add_constant(rule, holders);
    }
}

void FitModel::add_constant(const ConstantRule& rule, const std::vector<std::size_t>& holders) {
    FreeConstant c{.name = rule.name, .paths = {}, .reason = rule.reason};
    const std::size_t number = constants_.size();
    double least = -std::numeric_limits<double>::infinity(), most = -least;
    for (const std::size_t h : holders) {
        Holder& holder = holders_[h];
        std::vector<Scaled>& scaled = scaled_[{holder.room, holder.owner}];
        const Json figures = figures_of(holder);
        for (const ConstantPath& path : rule.paths) {
            if (path.room != holder.room || !matches(path.owner, holder.owner)) continue;
            for (const Place& place : places_in(figures, path.inside)) {
                const double value = figure_in(figures, place);
                if (value <= 0) continue;  // no factor makes something of nothing
                const auto claimed = [&](const Scaled& s) { return s.place == place && s.constant != number; };
                if (std::any_of(scaled.begin(), scaled.end(), claimed)) continue;
                std::string text = text_of({holder.owner, holder.room, place});
                if (std::find(c.paths.begin(), c.paths.end(), text) == c.paths.end()) {
                    scaled.push_back({number, place, rule.least, rule.most, rule.whole});
                    c.paths.push_back(std::move(text));
                }
                if (c.paths.size() == 1) {
                    c.before = value;
                    c.prior = rule.prior.value_or(spread_beside(figures, place));
                    c.neutral = rule.neutral ? std::log(*rule.neutral / value) : 0;
                }
                least = std::max(least, std::log(rule.least / value));
                most = std::min(most, std::log(rule.most / value));
                if (holder.constants.empty() || holder.constants.back() != number) holder.constants.push_back(number);
            }
        }
    }
    if (c.paths.empty()) return;
    c.of_framework = rule.paths.front().room == FigureRoom::costs;
    if (rule.each) c.name += " of " + holders_[holders.front()].owner;
    c.least = std::min(least, 0.0);  // a figure out of its range stays where it is
    c.most = std::max(most, 0.0);
    c.neutral = std::clamp(c.neutral, c.least, c.most);
    constants_.push_back(std::move(c));
}

Json FitModel::corrected(const Owner& owner, Json figures, const LogFactors& factors) const {
    const auto found = scaled_.find(owner);
    if (found == scaled_.end()) return figures;
    for (const Scaled& s : found->second) {
        if (factors[s.constant] == 0 || places_in(figures, s.place).empty()) continue;
        const double before = figure_in(figures, s.place);
        const double after =
            std::clamp(before * std::exp(factors[s.constant]), std::min(s.least, before), std::max(s.most, before));
        figures = with_figure(figures, s.place, s.whole ? Json(std::int64_t{std::llround(after)}) : Json(after));
    }
    return figures;
}

FitModel::Holder FitModel::corrected(const Holder& h, const LogFactors& factors) const {
    Holder out = h;
    if (h.room == FigureRoom::costs)
        correct(out.framework, factors);
    else
        correct(out.cluster, factors, h.room, h.owner);
    return out;
}

void FitModel::correct(Framework& f, const LogFactors& factors) const {
    const Json figures = costs_to_json(f.costs);
    f.costs = costs_from_json(corrected({FigureRoom::costs, f.name + "@" + f.version}, figures, factors));
}

void FitModel::correct(ClusterSpec& c, const LogFactors& factors, FigureRoom room, const std::string& owner) const {
    const auto with = [&](Json figures) { return corrected({room, owner}, std::move(figures), factors); };
    if (room == FigureRoom::calibration)
        c.device.calibration = calibration_from_json(with(calibration_to_json(c.device.calibration)));
    if (room == FigureRoom::domain) c.domain = constants_from<DomainConstants>(with(fields_of(c.domain)));
    if (room == FigureRoom::network)
        c.network.constants = constants_from<NetworkConstants>(with(fields_of(c.network.constants)));
}

void FitModel::correct(ClusterSpec& c, const LogFactors& factors) const {
    correct(c, factors, FigureRoom::calibration, c.device.name);
    correct(c, factors, FigureRoom::domain, c.domain.link);
    correct(c, factors, FigureRoom::network, c.network.fabric);
}

double FitModel::log_step(std::size_t run, const std::vector<const Holder*>& holders) const {
    Plan plan = runs_[run].plan;
    for (const std::size_t h : holders_of_run_[run]) {
        const Holder& holder = *holders[h];
        switch (holder.room) {
            case FigureRoom::costs: plan.framework = FrameworkRef(holder.framework, Json()); break;
            case FigureRoom::calibration: plan.cluster.device.calibration = holder.cluster.device.calibration; break;
            case FigureRoom::domain: plan.cluster.domain = holder.cluster.domain; break;
            case FigureRoom::network: plan.cluster.network.constants = holder.cluster.network.constants; break;
        }
    }
    return std::log(seconds(estimated_step(plan)));
}

std::vector<double> FitModel::log_steps(const LogFactors& factors, const Rows& rows) const {
    std::vector<Holder> corrected_holders;
    for (const Holder& h : holders_) corrected_holders.push_back(corrected(h, factors));
    std::vector<const Holder*> holders;
    for (const Holder& h : corrected_holders) holders.push_back(&h);
    std::vector<double> out(rows.size());
    workers_.for_each(rows.size(), [&](std::size_t i, int) { out[i] = log_step(rows[i], holders); });
    return out;
}

Sensitivity FitModel::sensitivity(const LogFactors& factors, const Rows& rows,
                                  const std::function<void(double part)>& progress) const {
    // The holders at the factors, and those that each constant acts on with it moved a step.
    std::vector<Holder> here;
    for (const Holder& h : holders_) here.push_back(corrected(h, factors));
    std::vector<double> steps(constants_.size());
    std::vector<std::map<std::size_t, Holder>> moved(constants_.size());
    for (std::size_t c = 0; c < constants_.size(); ++c) {
        // Towards the far bound, so that a figure at its bound has a slope too.
        steps[c] = constants_[c].most - factors[c] >= factors[c] - constants_[c].least ? step_of_slope : -step_of_slope;
        LogFactors there = factors;
        there[c] += steps[c];
        for (std::size_t h = 0; h < holders_.size(); ++h)
            if (std::binary_search(holders_[h].constants.begin(), holders_[h].constants.end(), c))
                moved[c].emplace(h, corrected(holders_[h], there));
    }
    std::vector<const Holder*> base;
    for (const Holder& h : here) base.push_back(&h);

    Sensitivity out(rows.size(), std::vector<double>(constants_.size(), 0.0));
    std::atomic<std::size_t> finished{0};
    workers_.for_each(rows.size(), [&](std::size_t i, int worker) {
        const double at = log_step(rows[i], base);
        for (std::size_t c = 0; c < constants_.size(); ++c) {
            std::vector<const Holder*> holders = base;
            bool acts = false;
            for (const std::size_t h : holders_of_run_[rows[i]])
                if (const auto found = moved[c].find(h); found != moved[c].end()) {
                    holders[h] = &found->second;
                    acts = true;
                }
            if (acts) out[i][c] = (log_step(rows[i], holders) - at) / steps[c];
        }
        const std::size_t done = ++finished;
        if (progress && worker == 0) progress(static_cast<double>(done) / static_cast<double>(rows.size()));
    });
    return out;
}

}  // namespace foretrain
