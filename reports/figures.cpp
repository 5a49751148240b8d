#include "reports/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace foretrain {

namespace {

// Four significant digits, trailing zeros kept so that columns align.
std::string four_digits(double value) {
    const double size = std::abs(value);
    const int decimals = size >= 999.95 ? 0 : size >= 99.995 ? 1 : size >= 9.9995 ? 2 : 3;
    return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string figure(Time time) {
    const double s = seconds(time);
    const double size = std::abs(s);
    if (time.value == 0) return "0 s";
    if (size >= 1) return four_digits(s) + " s";
    if (size >= 1e-3) return four_digits(s * 1e3) + " ms";
    if (size >= 1e-6) return four_digits(s * 1e6) + " us";
    return four_digits(s * 1e9) + " ns";
}

std::string figure(Bytes bytes) {
    const double b = static_cast<double>(bytes.value);
    const double size = std::abs(b);
    if (size >= 1024.0 * static_cast<double>(GiB)) return four_digits(b / static_cast<double>(GiB) / 1024) + " TiB";
    if (size >= static_cast<double>(GiB)) return four_digits(b / static_cast<double>(GiB)) + " GiB";
    if (size >= static_cast<double>(MiB)) return four_digits(b / static_cast<double>(MiB)) + " MiB";
    if (size >= 1024) return four_digits(b / 1024) + " KiB";
    return fmt::format("{} B", bytes.value);
}

std::string grouped(double value) {
    std::string digits = fmt::format("{:.0f}", std::abs(value));
    for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, " ");
    return value < 0 ? "-" + digits : digits;
}

std::string amount(double x) { return x < 100 ? fmt::format("{:.3g}", x) : grouped(x); }

std::string percent(double fraction) { return fmt::format("{:.1f} %", fraction * 100); }

std::string signed_percent(double fraction) { return fmt::format("{:+.1f} %", fraction * 100); }

std::string gib(Bytes bytes) { return fmt::format("{:.2f}", gibibytes(bytes)); }

std::string short_count(double value) {
    if (value >= 1e12) return fmt::format("{:.2f} T", value / 1e12);
    if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
    if (value >= 1e6) return fmt::format("{:.1f} M", value / 1e6);
    return fmt::format("{:.0f}", value);
}

std::string wrapped(const std::string& words, std::size_t indent, std::size_t width) {
    std::string out, line(indent, ' ');
    bool begun = false;
    for (std::size_t from = 0; from < words.size();) {
        const std::size_t blank = std::min(words.find(' ', from), words.size());
        const std::string word = words.substr(from, blank - from);
        if (begun && line.size() + 1 + word.size() > width) {
            out += line + '\n';
            line = std::string(indent + 2, ' ');
            begun = false;
        }
        line += (begun ? " " : "") + word;
        begun = true;
        from = blank + 1;
    }
    return out + line + '\n';
}

std::string bar(double fraction, std::size_t width) {
    const double clamped = std::clamp(fraction, 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(std::llround(clamped * static_cast<double>(width)));
    return "[" + std::string(filled, '#') + std::string(width - filled, '.') + (fraction > 1 ? "!" : "]");
}

}  // namespace foretrain
