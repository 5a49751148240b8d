#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace foretrain {

namespace {

std::string render(const UserErrorText& t) {
    std::string s;
    if (!t.file.empty()) s += t.file + ": ";
    if (!t.field.empty()) s += t.field + ": ";
    if (!t.found.empty()) s += fmt::format("found {}", t.found);
    if (!t.expected.empty()) s += fmt::format("{}expected {}", t.found.empty() ? "" : "; ", t.expected);
    if (!t.suggestion.empty()) s += fmt::format(" (try {})", t.suggestion);
    return s;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
        }
    }
    return row[b.size()];
}

// As people vary names: "Llama_3" for "llama-3".
std::string folded(std::string_view word) {
    std::string s;
    for (const char c : word)
        s += c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return s;
}

// "llama-3.1" and "llama31" are the same without what separates their parts.
std::string squeezed(std::string_view word) {
    std::string s;
    for (const char c : word)
        if (c != '-' && c != '.') s += c;
    return s;
}

}  // namespace

UserError::UserError(UserErrorText text) : std::runtime_error(render(text)), text_(std::move(text)) {}

std::string shortened(std::string text, std::size_t most) {
    if (text.size() <= most) return text;
    std::size_t cut = most;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
    return text.substr(0, cut) + "...";
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    // What a word begins or is a part of was meant, however much is missing, if it is long enough to mean something.
    constexpr std::size_t shortest_part = 4;
    const std::string meant = folded(word), letters_meant = squeezed(meant);
    std::string best;
    // Slips, then letters. Further than this is not a slip of the finger.
    std::pair<std::size_t, std::size_t> nearest_yet{word.size() / 2 + 1, 0};
    for (const std::string& candidate : candidates) {
        const std::string name = folded(candidate);
        const std::size_t letters = edit_distance(meant, name);
        std::size_t slips = letters;
        if (letters_meant.size() >= shortest_part) {
            const std::size_t place = squeezed(name).find(letters_meant);
            if (place != std::string::npos) slips = std::min<std::size_t>(letters, place == 0 ? 0 : 1);
        }
        const std::pair distance{slips, letters};
        if (distance < nearest_yet) {
            nearest_yet = distance;
            best = candidate;
        }
    }
    return best;
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
    throw InternalError(fmt::format("{}:{}: {} does not hold: {}", file, line, condition, message));
}

}  // namespace foretrain
