#include "plan/program/text_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace foretrain::text_format {

namespace {

bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._'#@/+-").find(c) != std::string_view::npos;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// A reference is split at commas and ~, so a name with those is only ever referred to by number.
bool is_bare(std::string_view name) {
    return !name.empty() && name.front() != '#' &&
           std::all_of(name.begin(), name.end(), [](char c) { return is_bare(c); });
}

}  // namespace

std::string quoted(std::string_view name) {
    if (is_bare(name)) return std::string(name);
    std::string out = "\"";
    for (char c : name) {
        const bool plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
        if (plain)
            out += c;
        else
            out += fmt::format("\\{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    return out + '"';
}

// ---- names ----------------------------------------------------------------------------------

void Names::add(const std::string& name) {
    const auto id = static_cast<std::int32_t>(names_.size());
    const auto [entry, fresh] = only_.emplace(name, id);
    if (!fresh) entry->second = -1;
    names_.push_back(name);
}

std::string Names::reference(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= names_.size()) return fmt::format("?{}", id);
    const std::string& name = names_[static_cast<std::size_t>(id)];
    if (!is_bare(name)) return fmt::format("~{}", id);
    return only_.at(name) >= 0 ? name : fmt::format("{}~{}", name, id);
}

std::optional<std::int32_t> Names::find(std::string_view reference) const {
    const std::size_t mark = reference.rfind('~');
    if (mark == std::string_view::npos) {
        const auto entry = only_.find(reference);
        if (entry == only_.end() || entry->second < 0) return std::nullopt;
        return entry->second;
    }
    const std::string_view digits = reference.substr(mark + 1);
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || stop != digits.data() + digits.size()) return std::nullopt;
    if (id < 0 || static_cast<std::size_t>(id) >= names_.size()) return std::nullopt;
    const bool by_number = mark == 0;
    if (!by_number && names_[static_cast<std::size_t>(id)] != reference.substr(0, mark)) return std::nullopt;
    return id;
}

std::vector<std::string> Names::all() const {
    constexpr std::size_t most = 4096;  // enough to find what was meant
    std::vector<std::string> out;
    for (std::size_t i = 0; i < std::min(names_.size(), most); ++i)
        out.push_back(reference(static_cast<std::int32_t>(i)));
    return out;
}

// ---- lines ----------------------------------------------------------------------------------

Line::Line(std::string_view text, std::int64_t number) : number_(number) {
    std::size_t at = 0;
    while (true) {
        while (at < text.size() && is_space(text[at])) ++at;
        if (at == text.size() || text[at] == '#') return;
        Word word;
        while (at < text.size() && !is_space(text[at])) {
            if (text[at] == '"')
                word.text += unquote(text, at);
            else if (text[at] == '=' && !word.is_field)
                word.is_field = true, word.name = std::move(word.text), word.text.clear(), ++at;
            else
                word.text += text[at++];
        }
        words_.push_back(std::move(word));
    }
}

std::string Line::unquote(std::string_view text, std::size_t& at) const {
    std::string out;
    for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] != '\\') {
            out += text[at];
            continue;
        }
        const std::string_view digits = text.substr(at + 1, 2);
        unsigned code = 0;
        const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        if (digits.size() != 2 || error != std::errc() || stop != digits.data() + 2)
            fail(text.substr(at, 3), "two hexadecimal digits after \\");
        out += static_cast<char>(code);
        at += 2;
    }
    if (at >= text.size()) fail("the end of the line", "a closing quote");
    ++at;
    return out;
}

std::optional<std::string> Line::word_if_any() {
    for (Word& w : words_)
        if (!w.is_field && !w.taken) {
            w.taken = true;
            return w.text;
        }
    return std::nullopt;
}

std::string Line::word(std::string_view expected) {
    if (auto w = word_if_any()) return *w;
    fail("the end of the line", expected);
}

std::optional<std::string> Line::field(std::string_view name) {
    asked_.push_back(name);
    for (Word& w : words_)
        if (w.is_field && !w.taken && w.name == name) {
            w.taken = true;
            return w.text;
        }
    return std::nullopt;
}

std::string Line::required(std::string_view name) {
    if (auto value = field(name)) return *value;
    fail("a line without it", fmt::format("{}=", name));
}

void Line::finish() const {
    for (const Word& w : words_) {
        if (w.taken) continue;
        if (!w.is_field) fail(w.text, "nothing more but fields (name=value)");
        const bool twice = std::find(asked_.begin(), asked_.end(), w.name) != asked_.end();
        if (twice) fail(w.name + "=", "each field once");
        const std::vector<std::string> fields(asked_.begin(), asked_.end());
        fail(w.name + "=", one_of(fields), fields);
    }
}

std::string Line::one_of(const std::vector<std::string>& names) {
    return fmt::format("one of {}", fmt::join(names, ", "));
}

void Line::fail(std::string_view found, std::string_view expected, const std::vector<std::string>& candidates) const {
    constexpr std::size_t most = 80;
    throw UserError({.file = std::string(origin),
                     .field = fmt::format("line {}", number_),
                     .found = quoted(found.substr(0, most)),
                     .expected = std::string(expected),
                     .suggestion = nearest(found.substr(0, most), candidates)});
}

}  // namespace foretrain::text_format
