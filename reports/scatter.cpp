#include "reports/scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "reports/backtest_summary.h"
#include "reports/figures.h"

namespace foretrain {

namespace {

constexpr double plot = 560, left = 80, top = 50;  // a square, in pixels
constexpr double width = 960, height = top + plot + 90;
constexpr double band = 0.1;

// Told apart also by those who see few colours (Okabe and Ito), the darker ones first.
constexpr std::array<const char*, 8> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#56b4e9", "#000000", "#7a7a00", "#e69f00"};

std::string escaped(const std::string& text) {
    std::string s;
    for (const char c : text) {
        switch (c) {
            case '&': s += "&amp;"; break;
            case '<': s += "&lt;"; break;
            case '>': s += "&gt;"; break;
            case '"': s += "&quot;"; break;
            default: s += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
    }
    return s;
}

// Seconds to pixels; both axes share the range.
struct Axes {
    double least, most;  // logarithms to base 10

    double along(double value) const { return plot * (std::log10(value) - least) / (most - least); }
    double x(double value) const { return left + along(value); }
    double y(double value) const { return top + plot - along(value); }
};

std::string text_at(double x, double y, const char* anchor, const std::string& words, int size = 13) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n", x, y, anchor,
                       size, escaped(words));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
    return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

// "0.01", "50", "2 000"
std::string tick_name(double value) { return value >= 1000 ? grouped(value) : fmt::format("{:.4g}", value); }

std::string ticks(const Axes& axes) {
    const bool few = axes.most - axes.least < 2.2;  // decades: then 2 and 5 have room too
    std::string s;
    for (int decade = static_cast<int>(std::floor(axes.least)); decade <= static_cast<int>(axes.most); ++decade)
        for (const int digit : {1, 2, 5}) {
            const double value = digit * std::pow(10.0, decade);
            if (std::log10(value) < axes.least - 1e-9 || std::log10(value) > axes.most + 1e-9) continue;
            const double x = axes.x(value), y = axes.y(value);
            const char* style = digit == 1 ? "stroke=\"#d0d0d0\"" : "stroke=\"#ececec\"";
            s += line(x, top, x, top + plot, style) + line(left, y, left + plot, y, style);
            if (digit != 1 && !few) continue;
            s += text_at(x, top + plot + 18, "middle", tick_name(value)) +
                 text_at(left - 8, y + 4, "end", tick_name(value));
        }
    return s;
}

// predicted = factor * measured, from edge to edge.
std::string slope(const Axes& axes, double factor, const char* style) {
    const double low = std::pow(10.0, axes.least), high = std::pow(10.0, axes.most);
    const double from = std::max(low, low / factor), to = std::min(high, high / factor);
    return line(axes.x(from), axes.y(from * factor), axes.x(to), axes.y(to * factor), style);
}

Axes axes_of(const std::vector<const BacktestRow*>& rows) {
    double least = 1e300, most = 1e-300;
    for (const BacktestRow* row : rows) {
        const Compared c = step_of(*row);
        least = std::min({least, c.predicted, c.measured});
        most = std::max({most, c.predicted, c.measured});
    }
    if (rows.empty()) return {0, 1};
    constexpr double margin = 0.08;
    return {std::log10(least) - margin, std::log10(most) + margin};
}

std::string point(const Axes& axes, const BacktestRow& row, const char* colour) {
    const Compared c = step_of(row);
    const std::string title =
        fmt::format("{}: predicted {}, measured {}, {}", row.run.id, figure(from_seconds(c.predicted)),
                    figure(from_seconds(c.measured)), signed_percent(c.error()));
    return fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\" fill=\"{}\" fill-opacity=\"0.65\"><title>{}</title></circle>\n",
        axes.x(c.measured), axes.y(c.predicted), colour, escaped(title));
}

}  // namespace

std::string scatter_svg(const std::vector<BacktestRow>& rows) {
    std::vector<const BacktestRow*> shown;
    std::map<std::string, std::vector<const BacktestRow*>> by_framework;
    std::vector<Compared> all;
    for (const BacktestRow& row : rows) {
        if (!row.has_step()) continue;
        shown.push_back(&row);
        by_framework[framework_of(row.prediction->plan)].push_back(&row);
        all.push_back(step_of(row));
    }
    const Axes axes = axes_of(shown);
    std::string s = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"sans-serif\" fill=\"#222\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
        width, height);
    s += text_at(left, 28, "start", "Step time: predicted against measured", 17);
    s += ticks(axes);
    s += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", left, top,
                     plot, plot);
    for (const double factor : {1 - band, 1 + band})
        s += slope(axes, factor, "stroke=\"#888\" stroke-dasharray=\"5 4\"");
    s += slope(axes, 1, "stroke=\"#333\" stroke-width=\"1.4\"");
    const double legend = left + plot + 24;
    double at = top + 14;
    std::size_t number = 0;
    // Those with few points last, on top of the others.
    using Group = std::pair<std::string, std::vector<const BacktestRow*>>;
    std::vector<Group> groups(by_framework.begin(), by_framework.end());
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.second.size() > b.second.size(); });
    for (const auto& [framework, points] : groups) {
        const char* colour = colours[number++ % colours.size()];
        for (const BacktestRow* row : points) s += point(axes, *row, colour);
        s += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"/>\n", legend, at - 4, colour);
        s += text_at(legend + 12, at, "start", fmt::format("{} ({})", framework, points.size()));
        at += 22;
    }
    at += 10;
    s += line(legend - 8, at - 4, legend + 16, at - 4, "stroke=\"#333\" stroke-width=\"1.4\"") +
         text_at(legend + 24, at, "start", "as measured");
    at += 22;
    s += line(legend - 8, at - 4, legend + 16, at - 4, "stroke=\"#888\" stroke-dasharray=\"5 4\"") +
         text_at(legend + 24, at, "start", "10 % more, 10 % less");
    s += text_at(left + plot / 2, top + plot + 42, "middle", "measured, seconds", 14);
    s += fmt::format("<g transform=\"translate(22 {}) rotate(-90)\">{}</g>\n", top + plot / 2,
                     text_at(0, 0, "middle", "predicted, seconds", 14));
    const ErrorSummary e = errors_of(all);
    std::string below =
        fmt::format("{} runs; {} without a step time or refused.", shown.size(), rows.size() - shown.size());
    if (e.count > 0)
        below += fmt::format(" Median error {}, 90th percentile {}, bias {}.", percent(e.median_ape),
                             percent(e.p90_ape), signed_percent(e.bias));
    s += text_at(left, top + plot + 70, "start", below);
    return s + "</svg>\n";
}

}  // namespace foretrain
