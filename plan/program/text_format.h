// What printing and parsing a program share: how names are written, and the words of a line.
//
// A name is written bare if it is made of letters, digits and . _ ' # @ / + -, else in quotes. Where
// a line refers to an entry of a table (a buffer, a section, a body) it says the entry's name if only
// one has it, else the name and the entry's number: layer0.dx'12~345.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/program/program.h"

namespace foretrain::text_format {

constexpr std::string_view origin = "<program text>";
constexpr std::string_view format = "foretrain.program/1";

std::string quoted(std::string_view name);  // bare where it can be

// The names of one table, in the order of its entries.
class Names {
public:
    void add(const std::string& name);
    std::string reference(std::int32_t id) const;  // "?7" where there is no such entry
    std::optional<std::int32_t> find(std::string_view reference) const;
    std::vector<std::string> all() const;

private:
    std::vector<std::string> names_;
    std::map<std::string, std::int32_t, std::less<>> only_;  // -1: several have it
};

// One line in words, with its number for errors. Words end at spaces outside quotes; a word that
// begins with # begins a comment.
class Line {
public:
    Line(std::string_view text, std::int64_t number);

    bool empty() const { return words_.empty(); }
    std::int64_t number() const { return number_; }
    // The next word that is not a field (name=value), unquoted; an error says what was expected.
    std::string word(std::string_view expected);
    std::optional<std::string> word_if_any();
    // The value of a field, at most once a line. `name` is a literal.
    std::optional<std::string> field(std::string_view name);
    std::string required(std::string_view name);
    // All that is left must have been asked for.
    void finish() const;

    [[noreturn]] void fail(std::string_view found, std::string_view expected,
                           const std::vector<std::string>& candidates = {}) const;

    template <class Number>
    Number number(std::string_view text, std::string_view expected = "an integer in range") const {
        Number value{};
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end) fail(text, expected);
        return value;
    }
    template <class Number>
    void read(std::string_view name, Number& value) {
        if (const auto text = field(name)) value = number<Number>(*text);
    }
    void read(std::string_view name, Bytes& value) { read(name, value.value); }

    // One of the values of an enum that has `count` values, by its name.
    template <class Enum>
    Enum choice(std::string_view text, int count) const {
        for (int i = 0; i < count; ++i)
            if (name_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
        std::vector<std::string> names;
        for (int i = 0; i < count; ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
        fail(text, one_of(names), names);
    }
    template <class Enum>
    void read(std::string_view name, Enum& value, int count) {
        if (const auto text = field(name)) value = choice<Enum>(*text, count);
    }

private:
    struct Word {
        std::string text;
        std::string name;  // of a field
        bool is_field = false;
        bool taken = false;
    };
    static std::string one_of(const std::vector<std::string>& names);
    // Reads a quoted string that begins at `at`, and moves behind it.
    std::string unquote(std::string_view text, std::size_t& at) const;

    std::vector<Word> words_;
    std::vector<std::string_view> asked_;
    std::int64_t number_ = 0;
};

constexpr int kind_count = static_cast<int>(InstructionKind::step_end) + 1;
constexpr int type_count = static_cast<int>(DType::int32) + 1;

constexpr std::array<std::string_view, 3> init_names{"normal", "ones", "zeros"};

// A unit's buffers and what its line calls them.
struct UnitField {
    const char* name;
    std::int32_t Unit::*member;
};
constexpr UnitField unit_fields[] = {
    {"weight", &Unit::weight},     {"weight_shard", &Unit::weight_shard},     {"gradient", &Unit::gradient},
    {"momentum", &Unit::momentum}, {"gradient_shard", &Unit::gradient_shard}, {"variance", &Unit::variance},
    {"master", &Unit::master}};

}  // namespace foretrain::text_format
