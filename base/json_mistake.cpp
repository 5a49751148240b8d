#include "base/json_mistake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace foretrain {

namespace {

constexpr std::string_view spaces = " \t\r\n";

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

// The word around a byte, at most 40 bytes to each side.
std::string word_at(std::string_view text, std::size_t at) {
    constexpr std::size_t most = 40;
    std::size_t from = at, to = at;
    while (from > 0 && at - from < most && in_word(text[from - 1])) --from;
    while (to < text.size() && to - at < most && in_word(text[to])) ++to;
    return std::string(text.substr(from, to - from));
}

bool is_placeholder(std::string_view word) {
    return word.size() >= 3 && std::any_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }) &&
           std::none_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

constexpr const char* placeholder = "a JSON value: is this a template's placeholder that is still to be filled in?";

std::optional<JsonMistake> mistaken_word(const std::string& word) {
    std::string lower;
    for (const char c : word) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string bare = lower.starts_with('-') ? lower.substr(1) : lower;
    if (bare == "nan" || bare == "inf" || bare == "infinity")
        return {{word, "a finite number: JSON has no NaN and no Infinity"}};
    if (lower == "none" || lower == "null") return {{word, "JSON text", "null"}};
    if (lower == "true" || lower == "false" || lower == "yes" || lower == "no")
        return {{word, "JSON text", lower == "true" || lower == "yes" ? "true" : "false"}};
    if (is_placeholder(word)) return {{word, placeholder}};
    if (!word.empty() && std::isalpha(static_cast<unsigned char>(word.front())) != 0)
        return {{fmt::format("the word {}", word), "a JSON value: texts stand in double quotes"}};
    return std::nullopt;
}

std::optional<JsonMistake> mistaken_sign(std::string_view text, std::size_t at) {
    const char c = text[at];
    const std::size_t before = at == 0 ? std::string_view::npos : text.find_last_not_of(spaces, at - 1);
    if (c == '\'') return {{"a single quote", "texts in double quotes"}};
    if (c == '/' || c == '#') return {{"a comment", "JSON text, which has none"}};
    if (c == '<' || c == '$' || (c == '{' && before != std::string_view::npos && text[before] == '{'))
        return {{fmt::format("\"{}\"", c), placeholder}};
    if ((c == '}' || c == ']') && before != std::string_view::npos && text[before] == ',')
        return {{fmt::format("\"{}\" after a comma", c), "no comma behind the last entry"}};
    if (c == '\n' || c == '\r') return {{"the end of the line inside a text", "its closing double quote"}};
    if (static_cast<unsigned char>(c) >= 0x80)
        return {{fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(c)), "JSON text in UTF-8"}};
    return std::nullopt;
}

}  // namespace

std::string line_and_column(std::string_view text, std::size_t offset) {
    const std::string_view before = text.substr(0, std::min(offset == 0 ? 0 : offset - 1, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
    return fmt::format("line {}, column {}", line, column + 1);
}

std::optional<JsonMistake> mistake_in(std::string_view text, std::size_t offset, bool complete) {
    if (text.find_first_not_of(spaces) == std::string_view::npos) return {{"nothing", "JSON text"}};
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return {{"UTF-16", "JSON text in UTF-8"}};
    if (offset > text.size()) return {{"the end of the text", "the rest of it: it is cut off"}};
    const std::size_t at = offset == 0 ? 0 : offset - 1;
    if (complete) return {{"more text behind the value", "one JSON value"}};
    if (auto sign = mistaken_sign(text, at)) return sign;
    // A word cut short is noticed at the sign behind it.
    std::string word = word_at(text, at);
    if (word.empty() && at > 0) word = word_at(text, at - 1);
    return mistaken_word(word);
}

}  // namespace foretrain
