#include "plan/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace foretrain {

namespace {

constexpr double longest_step_s = 1e6;
constexpr double largest_rate = 1e15;

struct Line {
    std::string_view text;
    const std::string& file;
    std::size_t number = 0;

    [[noreturn]] void fail(std::string_view field, std::string found, std::string expected) const {
        throw UserError({.file = fmt::format("{}:{}", file, number),
                         .field = std::string(field),
                         .found = std::move(found),
                         .expected = std::move(expected)});
    }
};

std::string printable(std::string_view text) {
    std::string out(text.substr(0, 40));
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return out;
}

// The number that follows `label`, in which commas part thousands: "6,123". Nothing where the label does not stand.
std::optional<double> number_after(const Line& line, std::string_view label, double most) {
    const std::size_t at = line.text.find(label);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = line.text.substr(at + label.size());
    const std::size_t first = rest.find_first_not_of(" :=");
    const std::string_view figure = first == std::string_view::npos ? std::string_view() : rest.substr(first);
    std::string digits;
    for (const char c : figure.substr(0, figure.find_first_not_of("0123456789.,eE+-")))
        if (c != ',') digits += c;
    double x = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
    // "CurrSamplesPerSec=41.2, MemAllocated": the comma was the line's.
    if (error != std::errc{} || end == digits.data() || !std::isfinite(x) || x <= 0 || x > most)
        line.fail(label, fmt::format("\"{}\"", printable(figure)), fmt::format("a number above 0, at most {:g}", most));
    return x;
}

// Megatron-LM, Megatron-DeepSpeed, NeMo's older logs. Milliseconds or seconds, as the label says.
std::optional<double> megatron_step(const Line& line, const LoggedBatch& batch) {
    std::optional<double> s = number_after(line, "elapsed time per iteration (s)", longest_step_s);
    if (!s) {
        s = number_after(line, "elapsed time per iteration (ms)", longest_step_s * 1e3);
        if (!s) return std::nullopt;
        *s /= 1e3;
    }
    constexpr std::string_view size = "global batch size";
    if (const auto n = number_after(line, size, largest_rate); n && *n != static_cast<double>(batch.global_batch_size))
        line.fail(size, fmt::format("{:g}", *n), fmt::format("{}, as the plan has it", batch.global_batch_size));
    return s;
}

// Tokens a second of one device; older versions say wps.
std::optional<double> torchtitan_step(const Line& line, const LoggedBatch& batch) {
    if (line.text.find("step:") == std::string_view::npos) return std::nullopt;
    std::optional<double> rate = number_after(line, "tps:", largest_rate);
    if (!rate) rate = number_after(line, "wps:", largest_rate);
    if (!rate) return std::nullopt;
    const double tokens = static_cast<double>(batch.global_batch_size) * static_cast<double>(batch.sequence_length);
    return tokens / (*rate * static_cast<double>(batch.devices));
}

// The pipeline engine says what a step takes, the other one samples a second; the running average knows the warm-up.
std::optional<double> deepspeed_step(const Line& line, const LoggedBatch& batch) {
    if (const auto s = number_after(line, "iter time (s)", longest_step_s)) return s;
    const auto rate = number_after(line, "CurrSamplesPerSec", largest_rate);
    if (!rate) return std::nullopt;
    return static_cast<double>(batch.global_batch_size) / *rate;
}

struct Software {
    const char* name;
    std::optional<double> (*step)(const Line&, const LoggedBatch&);
};
constexpr std::array known{Software{"Megatron-LM", megatron_step}, Software{"torchtitan", torchtitan_step},
                           Software{"DeepSpeed", deepspeed_step}};

}  // namespace

double TrainingLog::step_time_s() const {
    constexpr std::size_t warm_up = 5;  // one of so many
    const std::size_t first = step_times.size() == 1 ? 0 : std::max<std::size_t>(1, step_times.size() / warm_up);
    std::vector<double> rest(step_times.begin() + static_cast<std::ptrdiff_t>(first), step_times.end());
    std::sort(rest.begin(), rest.end());
    const std::size_t middle = rest.size() / 2;
    return rest.size() % 2 == 1 ? rest[middle] : (rest[middle - 1] + rest[middle]) / 2;
}

TrainingLog read_training_log(std::string_view text, const std::string& origin, const LoggedBatch& batch) {
    TrainingLog log;
    std::size_t number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const Line line{text.substr(0, end), origin, ++number};
        text.remove_prefix(std::min(end + 1, text.size()));
        for (const Software& software : known) {
            const std::optional<double> s = software.step(line, batch);
            if (!s) continue;
            if (!log.software.empty() && log.software != software.name)
                line.fail("", fmt::format("a line of {} in a log of {}", software.name, log.software), "one run's log");
            if (*s > longest_step_s)
                line.fail("", fmt::format("a step of {:g} s", *s), "the log of the plan beside it");
            log.software = software.name;
            log.step_times.push_back(*s);
            break;
        }
    }
    if (log.step_times.empty())
        throw UserError({.file = origin,
                         .found = "no line that tells a step's time",
                         .expected = "lines of Megatron-LM (\"elapsed time per iteration (ms): ...\"), torchtitan "
                                     "(\"step: ... tps: ...\") or DeepSpeed (\"iter time (s): ...\")"});
    return log;
}

}  // namespace foretrain
