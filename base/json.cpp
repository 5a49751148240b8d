#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "base/json_mistake.h"

namespace foretrain {

using Value = nlohmann::ordered_json;

// A place in a tree: the tree is kept alive by every place in it that someone still holds.
struct Json::Node {
    std::shared_ptr<Value> root;
    Value* at = nullptr;

    explicit Node(Value value) : root(std::make_shared<Value>(std::move(value))), at(root.get()) {}
    Node(std::shared_ptr<Value> tree, Value* place) : root(std::move(tree)), at(place) {}
};

namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20;
constexpr std::size_t deepest = 64;

// A key or text that is safe to print: escaped, valid UTF-8, short.
std::string printable(std::string_view text) {
    const std::string quoted =
        Value(std::string(text.substr(0, 200))).dump(-1, ' ', false, Value::error_handler_t::replace);
    return shortened(quoted.substr(1, quoted.size() - 2));
}

std::string join_path(const std::string& path, std::string_view key) {
    return path.empty() ? printable(key) : path + "." + printable(key);
}

std::string list(const std::vector<std::string>& names) {
    std::string s;
    for (const std::string& name : names) s += (s.empty() ? "" : ", ") + name;
    return s;
}

// nearest() is quadratic in the length of words: no key that anyone meant is longer than this.
std::string nearest_key(std::string_view word, const std::vector<std::string>& candidates) {
    constexpr std::size_t longest_word = 64;
    constexpr std::size_t most_candidates = 1000;
    if (word.size() > longest_word || candidates.size() > most_candidates) return "";
    std::vector<std::string> words;
    for (const std::string& c : candidates)
        if (c.size() <= longest_word) words.push_back(c);
    const std::string best = nearest(word, words);
    return best.empty() ? best : printable(best);
}

// What nlohmann says after its own "[json.exception...] parse error at line ...: ".
std::string reason_of(const std::string& what) {
    for (std::string_view mark : {"syntax error ", "parse error", "number overflow"}) {
        const std::size_t at = what.rfind(mark);
        if (at == std::string::npos) continue;
        const std::size_t end = std::min(what.find("; last read", at), what.find("; expected", at));
        return shortened(printable(std::string_view(what).substr(at, end == std::string::npos ? end : end - at)), 200);
    }
    return shortened(printable(what), 200);
}

// Builds the tree from nlohmann's events, refusing what its own reader lets pass: duplicate keys,
// integers outside 64 bits (it would round them) and bottomless nesting.
class Builder : public nlohmann::json_sax<Value> {
public:
    Builder(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

    Value take() { return std::move(root_); }

    bool null() override { return add(Value(nullptr)); }
    bool boolean(bool v) override { return add(Value(v)); }
    bool number_integer(std::int64_t v) override { return add(Value(v)); }
    bool number_unsigned(std::uint64_t v) override {
        if (v > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) too_large(std::to_string(v));
        return add(Value(static_cast<std::int64_t>(v)));
    }
    bool number_float(double v, const std::string& s) override {
        if (s.find_first_of(".eE") == std::string::npos || !std::isfinite(v)) too_large(s);
        return add(Value(v));
    }
    bool string(std::string& v) override { return add(Value(std::move(v))); }
    bool binary(Value::binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(Value::object()); }
    bool start_array(std::size_t) override { return open(Value::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& k) override {
        if (!open_.back().seen.insert(k).second)
            throw UserError({.file = origin_, .field = path(k), .found = "the key twice", .expected = "it once"});
        open_.back().key = std::move(k);
        return true;
    }
    bool parse_error(std::size_t position, const std::string& token,
                     const nlohmann::detail::exception& error) override {
        const bool complete = open_.empty() && begun_;
        UserErrorText e{.file = origin_,
                        .field = line_and_column(text_, position),
                        .found = fmt::format("{} at {}", reason_of(error.what()),
                                             token.empty() ? "the end" : "'" + printable(token) + "'"),
                        .expected = "JSON text"};
        if (std::optional<JsonMistake> mistake = mistake_in(text_, position, complete))
            e.found = mistake->found, e.expected = mistake->expected, e.suggestion = mistake->suggestion;
        throw UserError(std::move(e));
    }

private:
    struct Open {
        Value* value;
        std::string key;
        std::unordered_set<std::string> seen;
    };

    bool add(Value value) {
        place(std::move(value));
        return true;
    }
    Value* place(Value value) {
        begun_ = true;
        if (open_.empty()) return &(root_ = std::move(value));
        Value& parent = *open_.back().value;
        if (parent.is_array()) {
            parent.push_back(std::move(value));
            return &parent.back();
        }
        // Appended without a search: key() has seen to it that it is new.
        auto& members = parent.get_ref<Value::object_t&>();
        members.std::vector<Value::object_t::value_type>::emplace_back(open_.back().key, std::move(value));
        return &members.back().second;
    }
    bool open(Value value) {
        if (open_.size() >= deepest)
            throw UserError({.file = origin_,
                             .field = shortened(path()),
                             .found = "values nested deeper",
                             .expected = fmt::format("at most {} levels", deepest)});
        open_.push_back({place(std::move(value)), {}, {}});
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }
    [[noreturn]] void too_large(const std::string& number) const {
        throw UserError({.file = origin_,
                         .field = path(),
                         .found = shortened(number),
                         .expected = "a number that fits in 64 bits"});
    }
    // Where the next value stands (an array's next index, or the current key).
    std::string path() const {
        std::string p;
        for (const Open& o : open_)
            p = o.value->is_array() ? fmt::format("{}[{}]", p, o.value->size() - (&o != &open_.back() ? 1 : 0))
                                    : join_path(p, o.key);
        return p;
    }
    std::string path(const std::string& last_key) const {
        std::string p;
        for (const Open& o : open_) {
            if (o.value->is_array())
                p = fmt::format("{}[{}]", p, o.value->size() - 1);
            else
                p = join_path(p, &o == &open_.back() ? last_key : o.key);
        }
        return p;
    }

    std::string_view text_;
    std::string origin_;
    Value root_;
    std::vector<Open> open_;
    bool begun_ = false;
};

// 5e8 and "512" are no integers, but say which one is meant.
std::string integer_meant(const Value& value) {
    constexpr double exact = 9007199254740992;  // 2^53: above, doubles skip integers
    double x = std::numeric_limits<double>::quiet_NaN();
    if (value.is_number()) {
        x = value.get<double>();
    } else if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
        if (error != std::errc{} || end != text.data() + text.size()) return "";
    }
    return std::abs(x) <= exact && x == std::floor(x) ? fmt::format("{:.0f}", x) : "";
}

std::string read_whole(const std::string& path) {
    const auto refuse = [&](std::string found, std::string expected) {
        throw UserError({.file = path, .found = std::move(found), .expected = std::move(expected)});
    };
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) refuse("a directory", "a file");
    std::ifstream in(path, std::ios::binary);
    if (!in) refuse("no such file, or one that may not be read", "a readable file");
    std::string text;
    std::vector<char> piece(std::size_t{1} << 16);
    while (in) {  // by pieces: what is read may be a pipe, whose size no one knows
        in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        text.append(piece.data(), static_cast<std::size_t>(in.gcount()));
        if (text.size() > largest_file) refuse("a file over 64 MiB", "at most 64 MiB");
    }
    if (in.bad()) refuse("an error while reading", "a readable file");
    return text;
}

}  // namespace

Json::Json() : node_(std::make_shared<Node>(Value(nullptr))) {}
Json::Json(std::string_view text) : node_(std::make_shared<Node>(Value(std::string(text)))) {}
Json::Json(std::int64_t number) : node_(std::make_shared<Node>(Value(number))) {}
Json::Json(double number) : node_(std::make_shared<Node>(std::isfinite(number) ? Value(number) : Value(nullptr))) {}
Json::Json(bool value) : node_(std::make_shared<Node>(Value(value))) {}
Json::Json(std::shared_ptr<Node> node, std::string file, std::string path)
    : node_(std::move(node)), file_(std::move(file)), path_(std::move(path)) {}

Json Json::object() { return Json(std::make_shared<Node>(Value::object()), "", ""); }
Json Json::array() { return Json(std::make_shared<Node>(Value::array()), "", ""); }

Json Json::parse_file(const std::string& path) { return parse(read_whole(path), path); }

Json Json::parse(std::string_view text, std::string_view origin) {
    if (text.size() > largest_file)
        throw UserError({.file = std::string(origin), .found = "a text over 64 MiB", .expected = "at most 64 MiB"});
    // nlohmann takes a zero byte for the end and would not see what follows.
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
        throw UserError({.file = std::string(origin),
                         .field = line_and_column(text, zero + 1),
                         .found = "a zero byte",
                         .expected = "JSON text"});
    Builder builder(text, origin);
    Value::sax_parse(text.begin(), text.end(), &builder);
    return Json(std::make_shared<Node>(builder.take()), std::string(origin), "");
}

std::vector<Json> Json::parse_lines_of(const std::string& path) { return parse_lines(read_whole(path), path); }

namespace {

// The line is in the file's name already; of its place within, the column is left to say.
Json parse_line(std::string_view line, const std::string& origin) {
    try {
        return Json::parse(line, origin);
    } catch (const UserError& e) {
        constexpr std::string_view only = "line 1, ";
        UserErrorText text = e.text();
        if (text.field.starts_with(only)) text.field.erase(0, only.size());
        throw UserError(std::move(text));
    }
}

}  // namespace

std::vector<Json> Json::parse_lines(std::string_view text, std::string_view origin) {
    std::vector<Json> values;
    for (std::size_t from = 0, number = 1; from < text.size(); ++number) {
        const std::size_t end = std::min(text.find('\n', from), text.size());
        const std::string_view line = text.substr(from, end - from);
        if (line.find_first_not_of(" \t\r") != std::string_view::npos)
            values.push_back(parse_line(line, fmt::format("{}:{}", origin, number)));
        from = end + 1;
    }
    return values;
}

bool Json::is_null() const { return node_->at->is_null(); }
bool Json::is_object() const { return node_->at->is_object(); }
bool Json::is_array() const { return node_->at->is_array(); }
bool Json::is_string() const { return node_->at->is_string(); }
bool Json::is_number() const { return node_->at->is_number(); }
bool Json::is_boolean() const { return node_->at->is_boolean(); }

bool Json::has(std::string_view key) const {
    if (!is_object()) return false;
    const auto found = node_->at->find(std::string(key));
    return found != node_->at->end() && !found->is_null();
}

Json Json::at(std::string_view key) const {
    if (!is_object()) fail(found(), "an object");
    const auto member = node_->at->find(std::string(key));
    if (member == node_->at->end())
        throw UserError({.file = file_,
                         .field = path_,
                         .found = fmt::format("no key \"{}\"", printable(key)),
                         .expected = "it to be given",
                         .suggestion = nearest_key(key, keys())});
    return Json(std::make_shared<Node>(node_->root, &*member), file_, join_path(path_, key));
}

Json Json::get(std::string_view key) const {
    if (!is_object()) fail(found(), "an object");
    const auto member = node_->at->find(std::string(key));
    if (member == node_->at->end()) return Json(std::make_shared<Node>(Value(nullptr)), file_, join_path(path_, key));
    return Json(std::make_shared<Node>(node_->root, &*member), file_, join_path(path_, key));
}

std::vector<std::string> Json::keys() const {
    if (!is_object()) fail(found(), "an object");
    std::vector<std::string> out;
    out.reserve(node_->at->size());
    for (const auto& member : node_->at->items()) out.push_back(member.key());
    return out;
}

std::vector<Json> Json::items() const {
    if (!is_array()) fail(found(), "an array");
    std::vector<Json> out;
    out.reserve(node_->at->size());
    for (std::size_t i = 0; i < node_->at->size(); ++i)
        out.push_back(
            Json(std::make_shared<Node>(node_->root, &(*node_->at)[i]), file_, fmt::format("{}[{}]", path_, i)));
    return out;
}

std::int64_t Json::integer(std::int64_t least, std::int64_t most) const {
    const std::string expected = most == std::numeric_limits<std::int64_t>::max()
                                     ? fmt::format("an integer of at least {}", least)
                                     : fmt::format("an integer from {} to {}", least, most);
    if (!node_->at->is_number_integer()) fail(found(), expected, integer_meant(*node_->at));
    const auto v = node_->at->get<std::int64_t>();
    if (v < least || v > most) fail(found(), expected, v < least ? std::to_string(least) : std::to_string(most));
    return v;
}

double Json::number(double least, double most) const {
    const std::string expected = fmt::format("a number from {} to {}", least, most);
    if (!is_number()) fail(found(), expected);
    const auto v = node_->at->get<double>();
    if (!(v >= least && v <= most)) fail(found(), expected);
    return v;
}

std::string Json::string() const {
    if (!is_string()) fail(found(), "a text");
    return node_->at->get<std::string>();
}

std::string Json::name() const {
    constexpr std::size_t longest = 200;
    std::string s = string();
    const bool plain = std::none_of(s.begin(), s.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F;
    });
    if (s.size() > longest || !plain) fail(found(), fmt::format("a name of at most {} letters on one line", longest));
    return s;
}

bool Json::boolean() const {
    if (!is_boolean()) fail(found(), "true or false");
    return node_->at->get<bool>();
}

std::size_t Json::one_of(const std::vector<std::string>& names) const {
    const std::string expected = "one of " + list(names);
    if (!is_string()) fail(found(), expected);
    const std::string name = string();
    const auto match = std::find(names.begin(), names.end(), name);
    if (match == names.end()) fail(found(), expected, nearest_key(name, names));
    return static_cast<std::size_t>(match - names.begin());
}

void Json::only_keys(const std::vector<std::string>& allowed) const {
    if (!is_object()) fail(found(), "an object");
    for (const auto& member : node_->at->items())
        if (std::find(allowed.begin(), allowed.end(), member.key()) == allowed.end())
            throw UserError({.file = file_,
                             .field = join_path(path_, member.key()),
                             .found = "an unknown key",
                             .expected = "one of " + list(allowed),
                             .suggestion = nearest_key(member.key(), allowed)});
}

void Json::fail(std::string found, std::string expected, std::string suggestion) const {
    throw UserError({.file = file_,
                     .field = path_,
                     .found = std::move(found),
                     .expected = std::move(expected),
                     .suggestion = std::move(suggestion)});
}

void Json::unsupported(std::string what, std::string expected) const {
    throw Unsupported({.file = file_,
                       .field = path_,
                       .found = std::move(what) + ", which is not supported yet",
                       .expected = std::move(expected)});
}

std::string Json::found() const {
    if (is_null()) return "nothing";
    if (is_string()) return shortened("\"" + printable(node_->at->get_ref<const std::string&>()) + "\"");
    if (is_object()) return fmt::format("an object of {} keys", node_->at->size());
    if (is_array() && node_->at->size() > 16) return fmt::format("an array of {} values", node_->at->size());
    return shortened(node_->at->dump(-1, ' ', false, Value::error_handler_t::replace));
}

Json& Json::set(std::string_view key, Json value) {
    FORETRAIN_CHECK(is_object() || is_null(), "set() on a value that is no object");
    const bool shared = node_.use_count() > 1 || node_->root.use_count() > 1;
    if (shared || node_->at != node_->root.get()) node_ = std::make_shared<Node>(Value(*node_->at));
    Node& v = *value.node_;
    const bool own = value.node_.use_count() == 1 && v.root.use_count() == 1 && v.at == v.root.get();
    (*node_->at)[std::string(key)] = own ? std::move(*v.at) : *v.at;
    return *this;
}

Json& Json::push(Json value) {
    FORETRAIN_CHECK(is_array() || is_null(), "push() on a value that is no array");
    const bool shared = node_.use_count() > 1 || node_->root.use_count() > 1;
    if (shared || node_->at != node_->root.get()) node_ = std::make_shared<Node>(Value(*node_->at));
    Node& v = *value.node_;
    const bool own = value.node_.use_count() == 1 && v.root.use_count() == 1 && v.at == v.root.get();
    node_->at->push_back(own ? std::move(*v.at) : *v.at);
    return *this;
}

std::string Json::dump(int indent) const {
    try {
        return node_->at->dump(indent);
    } catch (const Value::exception&) {  // a file name or title that came from outside
        throw UserError({.file = file_,
                         .field = path_,
                         .found = shortened(node_->at->dump(-1, ' ', false, Value::error_handler_t::replace)),
                         .expected = "text in UTF-8"});
    }
}

}  // namespace foretrain
