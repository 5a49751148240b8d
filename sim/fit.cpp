#include "sim/fit.h"

#include <algorithm>
#include <cmath>

#include "sim/normal_equations.h"

namespace foretrain {

namespace {

constexpr double huber_at = 1.5;      // times the noise: beyond it a row pulls no harder
constexpr int rounds = 6;             // of steps with one set of sensitivities
constexpr int halvings = 4;           // of a step that does not help
constexpr double enough = 1e-3;       // a round that gains less, relatively, is the last
constexpr double least_error = 1e-6;  // standard error of a constant that stays

struct Problem {
    const FitModel& model;
    const Rows& rows;
    const FitSettings& settings;
    LogFactors centre;
    std::vector<double> prior;
    std::vector<bool> stays;  // by constant: at the centre

    double objective(const LogFactors& x, const std::vector<double>& log_steps) const {
        double sum = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const double z = std::fabs(residual(i, log_steps)) / settings.noise;
            sum += z <= huber_at ? z * z / 2 : huber_at * (z - huber_at / 2);
        }
        for (std::size_t c = 0; c < x.size(); ++c) {
            const double z = (x[c] - centre[c]) / prior[c];
            sum += z * z / 2;
        }
        return sum;
    }
    double residual(std::size_t i, const std::vector<double>& log_steps) const {
        return log_steps[i] - std::log(model.runs()[rows[i]].measured_s);
    }
    // Of a row: its weight where it lies beyond Huber's bend.
    double weight(std::size_t i, const std::vector<double>& log_steps) const {
        const double z = std::fabs(residual(i, log_steps)) / settings.noise;
        return (z <= huber_at ? 1 : huber_at / z) / (settings.noise * settings.noise);
    }
};

// J' W J + prior, and -(J' W r + prior (x - centre)); constants that stay do not take part.
NormalEquations equations_of(const Problem& p, const Sensitivity& s, const LogFactors& x,
                             const std::vector<double>& log_steps, const std::vector<bool>& stays) {
    NormalEquations e(x.size());
    std::vector<std::size_t> acting;
    for (std::size_t i = 0; i < p.rows.size(); ++i) {
        acting.clear();
        for (std::size_t c = 0; c < x.size(); ++c)
            if (!stays[c] && s[i][c] != 0) acting.push_back(c);
        const double w = p.weight(i, log_steps), r = p.residual(i, log_steps);
        for (const std::size_t a : acting) {
            e.right[a] -= w * s[i][a] * r;
            for (const std::size_t b : acting) e.at(a, b) += w * s[i][a] * s[i][b];
        }
    }
    for (std::size_t c = 0; c < x.size(); ++c) {
        if (stays[c]) {
            e.at(c, c) = 1 / (least_error * least_error);
            continue;
        }
        const double pull = 1 / (p.prior[c] * p.prior[c]);
        e.at(c, c) += pull;
        e.right[c] -= pull * (x[c] - p.centre[c]);
    }
    return e;
}

// The step to the minimum of the linear model within the bounds: what would pass one stops there, and the others
// are asked again.
LogFactors step_of(const Problem& p, const Sensitivity& s, const LogFactors& x, const std::vector<double>& log_steps) {
    const std::vector<FreeConstant>& constants = p.model.constants();
    std::vector<bool> stays = p.stays;
    LogFactors to = x;
    for (std::size_t again = 0; again <= x.size(); ++again) {
        // Those that were stopped moved already: the rest sees residuals as they become.
        std::vector<double> moved = log_steps;
        for (std::size_t i = 0; i < p.rows.size(); ++i)
            for (std::size_t c = 0; c < x.size(); ++c)
                if (stays[c]) moved[i] += s[i][c] * (to[c] - x[c]);
        const std::vector<double> delta = solve(equations_of(p, s, x, moved, stays));
        bool stopped = false;
        for (std::size_t c = 0; c < x.size(); ++c) {
            if (stays[c]) continue;
            to[c] = x[c] + delta[c];
            if (to[c] >= constants[c].least && to[c] <= constants[c].most) continue;
            to[c] = std::clamp(to[c], constants[c].least, constants[c].most);
            stays[c] = stopped = true;
        }
        if (!stopped) break;
    }
    return to;
}

struct State {
    LogFactors x;
    std::vector<double> log_steps;
    double objective = 0;
};

// Gauss-Newton with one set of sensitivities and exact predictions.
void descend(const Problem& p, const Sensitivity& s, State& at) {
    for (int round = 0; round < rounds; ++round) {
        const double before = at.objective;
        const LogFactors to = step_of(p, s, at.x, at.log_steps);
        double share = 1;
        for (int halving = 0; halving <= halvings; ++halving, share /= 2) {
            State next = at;
            for (std::size_t c = 0; c < to.size(); ++c) next.x[c] = at.x[c] + share * (to[c] - at.x[c]);
            next.log_steps = p.model.log_steps(next.x, p.rows);
            next.objective = p.objective(next.x, next.log_steps);
            if (next.objective >= at.objective) continue;
            at = std::move(next);
            break;
        }
        if (p.settings.progress) p.settings.progress("descending", (round + 1.0) / rounds);
        if (before - at.objective <= enough * before) return;
    }
}

// Besides those that are to: what moves no step noticeably, of which the rows know nothing.
std::vector<bool> staying(const FitSettings& settings, const Sensitivity& s, std::size_t constants) {
    std::vector<bool> stays = settings.fixed;
    stays.resize(constants);
    for (std::size_t c = 0; c < constants; ++c)
        if (std::none_of(s.begin(), s.end(), [&](const auto& row) { return moves_noticeably(row[c]); }))
            stays[c] = true;
    return stays;
}

Sensitivity rows_of(const Sensitivity& all, const Rows& rows) {
    Sensitivity out;
    for (const std::size_t row : rows) out.push_back(all[row]);
    return out;
}

}  // namespace

Fitted fit(const FitModel& model, const Rows& rows, const FitSettings& settings) {
    const std::size_t n = model.constants().size();
    Problem p{model, rows, settings, settings.centre, settings.prior, {}};
    if (p.centre.empty()) p.centre.assign(n, 0.0);
    if (p.prior.empty())
        for (const FreeConstant& c : model.constants()) p.prior.push_back(c.prior);

    State at;
    const auto place = [&](LogFactors x) {
        at.x = std::move(x);
        at.log_steps = model.log_steps(at.x, rows);
        at.objective = p.objective(at.x, at.log_steps);
    };
    place(settings.start.empty() ? p.centre : settings.start);
    const bool given = settings.sensitivity != nullptr;
    const auto slopes = [&](const char* what) {
        const auto tell = [&](double part) {
            if (settings.progress) settings.progress(what, part);
        };
        return given ? rows_of(*settings.sensitivity, rows) : model.sensitivity(at.x, rows, tell);
    };
    Sensitivity s = slopes("sensitivities");
    p.stays = staying(settings, s, n);
    LogFactors x = at.x;
    for (std::size_t c = 0; c < n; ++c)
        if (p.stays[c]) x[c] = p.centre[c];
    if (x != at.x) place(std::move(x));
    descend(p, s, at);
    if (!given) {
        s = slopes("sensitivities again");
        descend(p, s, at);
    }
    Fitted out{.factors = at.x,
               .standard_error = standard_errors(equations_of(p, s, at.x, at.log_steps, p.stays)),
               .stayed = p.stays,
               .log_steps = std::move(at.log_steps),
               .sensitivity = {}};
    if (!given) out.sensitivity = std::move(s);
    return out;
}

}  // namespace foretrain
