#include "plan/framework_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <iterator>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "plan/framework.h"

namespace foretrain {

namespace {

using Versions = std::vector<const Framework*>;

bool is_digit(char c) { return '0' <= c && c <= '9'; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Whether `words` stand in `text`, whatever the case, and not inside another word.
bool mentions(const std::string& text, const std::string& words) {
    for (auto from = text.begin();;) {
        const auto found = std::search(from, text.end(), words.begin(), words.end(),
                                       [](char a, char b) { return lower(a) == lower(b); });
        if (found == text.end()) return false;
        const auto end = found + static_cast<std::ptrdiff_t>(words.size());
        if ((found == text.begin() || !is_word(found[-1])) && (end == text.end() || !is_word(*end))) return true;
        from = found + 1;
    }
}

// "core_v0.12.0rc3" is {0, 12, 0}; empty if there is no number.
std::vector<int> numbers_of(const std::string& release) {
    std::vector<int> numbers;
    const char* at = release.data() + std::min(release.find_first_of("0123456789"), release.size());
    const char* const end = release.data() + release.size();
    while (at < end && is_digit(*at)) {
        int n = 0;
        const auto [after, error] = std::from_chars(at, end, n);
        if (error != std::errc{}) break;
        numbers.push_back(n);
        at = after;
        if (at == end || *at != '.') break;
        ++at;
    }
    return numbers;
}

// First and last month of a release that is a date, as texts that sort; empty if it is none.
struct Months {
    std::string first, last;
};

Months months_of(const std::string& release) {
    const auto month = [](const std::string& year, const std::string& number) {
        const std::string m = year + "-" + number;
        return number >= "01" && number <= "12" ? Months{m, m} : Months{};
    };
    const bool year = release.size() >= 4 && (release.starts_with("20") || release.starts_with("19")) &&
                      std::all_of(release.begin(), release.begin() + 4, is_digit);
    if (year && release.size() == 4) return {release + "-01", release + "-12"};
    if (year && release.size() >= 7 && (release[4] == '-' || release[4] == '.'))
        return month(release.substr(0, 4), release.substr(5, 2));
    // NVIDIA's containers: the year within the century and the month, both of two digits.
    const bool container = release.size() >= 5 && is_digit(release[0]) && is_digit(release[1]) && release[2] == '.' &&
                           is_digit(release[3]) && is_digit(release[4]) && (release.size() == 5 || release[5] == '.');
    return container ? month("20" + release.substr(0, 2), release.substr(3, 2)) : Months{};
}

// Compared as far as the bound goes: 0.5.10 is not after 0.5.
bool is_within(const std::vector<int>& release, const VersionRuns& runs) {
    const auto cut = [&](const std::vector<int>& bound) {
        return std::vector<int>(release.begin(),
                                release.begin() + static_cast<std::ptrdiff_t>(std::min(release.size(), bound.size())));
    };
    if (runs.from_release.empty() && runs.until_release.empty()) return false;
    const std::vector<int> from = numbers_of(runs.from_release), until = numbers_of(runs.until_release);
    return (from.empty() || cut(from) >= from) && (until.empty() || cut(until) <= until);
}

bool has_release(const VersionRuns& runs, const std::string& release) {
    if (!runs.dates_releases()) return true;
    if (const Months months = months_of(release); !months.first.empty()) {
        if (runs.from_month.empty() && runs.until_month.empty()) return false;
        return (runs.from_month.empty() || months.last >= runs.from_month) &&
               (runs.until_month.empty() || months.first <= runs.until_month);
    }
    const std::vector<int> numbers = numbers_of(release);
    return !numbers.empty() && is_within(numbers, runs);
}

// "from 2022-05 until 2023-11", "from 0.4"
std::string period_of(const VersionRuns& runs) {
    std::vector<std::string> parts;
    for (const auto& [word, month, release] :
         {std::tuple{"from", runs.from_month, runs.from_release}, {"until", runs.until_month, runs.until_release}})
        if (!month.empty() || !release.empty())
            parts.push_back(
                fmt::format("{} {}{}{}", word, month, month.empty() || release.empty() ? "" : " or ", release));
    std::string s;
    for (const std::string& part : parts) s += (s.empty() ? "" : " ") + part;
    return s;
}

std::string reference_of(const Framework& f) { return f.name + "@" + f.version; }

std::string listed(const Versions& versions, const std::function<std::string(const Framework&)>& text) {
    std::string s;
    for (const Framework* f : versions) s += (s.empty() ? "" : ", ") + text(*f);
    return s;
}

Versions kept(const Versions& versions, const std::function<bool(const Framework&)>& holds) {
    Versions out;
    std::copy_if(versions.begin(), versions.end(), std::back_inserter(out),
                 [&](const Framework* f) { return holds(*f); });
    return out;
}

VersionChoice none(std::string reason, std::string why) {
    VersionChoice choice;
    choice.reason = std::move(reason);
    choice.why = std::move(why);
    return choice;
}

}  // namespace

VersionChoice choose_version(const RunSoftware& software) {
    Versions versions;
    for (const std::string& version : framework_versions(software.name))
        versions.push_back(&framework_named(software.name + "@" + version));
    const Versions named = kept(versions, [&](const Framework& f) {
        return std::any_of(f.runs.details.begin(), f.runs.details.end(),
                           [&](const std::string& words) { return mentions(software.detail, words); });
    });
    if (!named.empty()) versions = named;
    if (!software.release.empty()) {
        const Versions then = kept(versions, [&](const Framework& f) { return has_release(f.runs, software.release); });
        if (then.empty())
            return none(
                "framework release",
                fmt::format("release {} of {} has no profile; there is one for {}", shortened(software.release, 40),
                            software.name, listed(versions, [](const Framework& f) {
                                return fmt::format("{} ({})", reference_of(f), period_of(f.runs));
                            })));
        versions = then;
    }
    const auto ask = [&](const std::optional<bool>& wish, const std::function<bool(const Framework&)>& has) {
        if (!wish) return true;
        const Versions agree = kept(versions, [&](const Framework& f) { return has(f) == *wish; });
        if (agree.empty()) return false;
        versions = agree;
        return true;
    };
    const auto disagree = [&](const char* reason, const char* what) {
        return none(reason, fmt::format("the run's {}, unlike what the profile does: {}", what,
                                        listed(versions, reference_of)));
    };
    if (!ask(software.compiled, [](const Framework& f) { return f.runs.compiled; }))
        return disagree("compiled", *software.compiled ? "layers were compiled" : "layers were not compiled");
    if (!ask(software.flash_attention, [](const Framework& f) { return f.costs.unfused.product_efficiency == 0; }))
        return disagree("attention", *software.flash_attention ? "attention was fused" : "attention was unfused");
    if (const Versions usual = kept(versions, [](const Framework& f) { return !f.by_name_only; });
        named.empty() && !usual.empty())
        versions = usual;
    VersionChoice choice;
    choice.reference = reference_of(*versions.back());
    choice.assumed = named.empty() && software.release.empty() && framework_versions(software.name).size() > 1;
    return choice;
}

}  // namespace foretrain
