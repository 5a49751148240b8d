#include "base/least_squares.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace foretrain {

namespace {

using Point = std::vector<double>;
struct Vertex {
    Point at;
    double value = 0;
};

// a + t (b - a)
Point along(const Point& a, const Point& b, double t) {
    Point p(a.size());
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = a[i] + t * (b[i] - a[i]);
    return p;
}

Point centre_but_last(const std::vector<Vertex>& simplex) {
    Point c(simplex.front().at.size(), 0.0);
    for (std::size_t v = 0; v + 1 < simplex.size(); ++v)
        for (std::size_t i = 0; i < c.size(); ++i) c[i] += simplex[v].at[i] / static_cast<double>(simplex.size() - 1);
    return c;
}

}  // namespace

std::vector<double> fit_nonnegative(const std::vector<std::vector<double>>& rows, const std::vector<double>& measured) {
    FORETRAIN_CHECK(!rows.empty() && rows.size() == measured.size(), "a fit without a table");
    const std::size_t n = rows.front().size();
    // Normal equations A x = b of the relative errors, columns scaled to a unit diagonal.
    std::vector<std::vector<double>> a(n, std::vector<double>(n, 0.0));
    std::vector<double> b(n, 0.0), scale(n, 0.0);
    for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::size_t i = 0; i < n; ++i) scale[i] += rows[r][i] * rows[r][i] / (measured[r] * measured[r]);
    for (double& s : scale) s = s > 0 ? std::sqrt(s) : 1;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        for (std::size_t i = 0; i < n; ++i) {
            const double x = rows[r][i] / measured[r] / scale[i];
            b[i] += x;
            for (std::size_t j = 0; j < n; ++j) a[i][j] += x * rows[r][j] / measured[r] / scale[j];
        }
    }
    // One constant at a time, held at zero where it would fall below. The problem is convex and has
    // a handful of unknowns: this ends at the optimum.
    std::vector<double> x(n, 0.0);
    constexpr int rounds = 20000;
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < n; ++i) {
            if (a[i][i] <= 0) continue;
            double rest = b[i];
            for (std::size_t j = 0; j < n; ++j)
                if (j != i) rest -= a[i][j] * x[j];
            x[i] = std::max(0.0, rest / a[i][i]);
        }
    }
    for (std::size_t i = 0; i < n; ++i) x[i] /= scale[i];
    return x;
}

std::vector<double> fit_linear(const std::function<double(std::size_t, const std::vector<double>&)>& form,
                               std::size_t constants, const std::vector<double>& measured) {
    std::vector<std::vector<double>> rows(measured.size(), std::vector<double>(constants));
    for (std::size_t c = 0; c < constants; ++c) {
        std::vector<double> unit(constants, 0.0);
        unit[c] = 1;
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i][c] = form(i, unit);
    }
    return fit_nonnegative(rows, measured);
}

std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& f, std::vector<double> start,
                             int rounds) {
    std::vector<Vertex> simplex{{start, f(start)}};
    for (std::size_t i = 0; i < start.size(); ++i) {
        Point p = start;
        p[i] += 0.5;
        simplex.push_back({p, f(p)});
    }
    const auto better = [](const Vertex& x, const Vertex& y) { return x.value < y.value; };
    for (int round = 0; round < rounds; ++round) {
        std::sort(simplex.begin(), simplex.end(), better);
        Vertex& worst = simplex.back();
        const Point centre = centre_but_last(simplex);
        const auto try_at = [&](double t) {
            const Point p = along(centre, worst.at, t);
            return Vertex{p, f(p)};
        };
        const Vertex reflected = try_at(-1);
        if (reflected.value < simplex.front().value) {
            const Vertex expanded = try_at(-2);
            worst = expanded.value < reflected.value ? expanded : reflected;
        } else if (reflected.value < simplex[simplex.size() - 2].value) {
            worst = reflected;
        } else if (const Vertex inside = try_at(0.5); inside.value < worst.value) {
            worst = inside;
        } else {
            for (std::size_t v = 1; v < simplex.size(); ++v) {
                simplex[v].at = along(simplex.front().at, simplex[v].at, 0.5);
                simplex[v].value = f(simplex[v].at);
            }
        }
    }
    return std::min_element(simplex.begin(), simplex.end(), better)->at;
}

FitError error_of(const std::vector<double>& predicted, const std::vector<double>& measured) {
    FORETRAIN_CHECK(!predicted.empty() && predicted.size() == measured.size(), "an error without a table");
    std::vector<double> errors;
    for (std::size_t i = 0; i < predicted.size(); ++i) errors.push_back(std::abs(predicted[i] / measured[i] - 1));
    std::sort(errors.begin(), errors.end());
    const std::size_t n = errors.size();
    return {errors[n / 2], errors[n * 8 / 10], errors[n * 9 / 10]};
}

}  // namespace foretrain
