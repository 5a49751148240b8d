// JSON as foretrain reads and writes it: a value that remembers the file and the path it came
// from, so that every complaint names its field.
//
//   Json plan = Json::parse_file("plan.json");
//   plan.only_keys({"model", "cluster", "training"});          // unknown keys are errors
//   std::int64_t tp = plan.at("parallelism").at("tensor").integer(1, 1 << 20);
//
//   Json out = Json::object();
//   out.set("step_time_s", Json(0.25));
//   std::string text = out.dump();
//
// Errors: UserError with file, field, found, expected and a suggestion for a misspelt key. Numbers
// that do not fit, duplicate keys, depth over 64 and files over 64 MiB are refused.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain {

class Json {
public:
    Json();  // null
    explicit Json(std::string_view text);
    explicit Json(const char* text) : Json(std::string_view(text)) {}
    explicit Json(std::int64_t number);
    explicit Json(int number) : Json(static_cast<std::int64_t>(number)) {}
    explicit Json(double number);  // non-finite numbers become null
    explicit Json(bool value);
    static Json object();
    static Json array();

    static Json parse_file(const std::string& path);
    // `origin` names the text in error messages ("<inline>", "preset gpt2").
    static Json parse(std::string_view text, std::string_view origin);
    // A value on each line that is not blank; each names its file as "runs.jsonl:12".
    static std::vector<Json> parse_lines_of(const std::string& path);
    static std::vector<Json> parse_lines(std::string_view text, std::string_view origin);

    // Reading. The type tests never throw; the accessors throw UserError on a wrong type.
    bool is_null() const;
    bool is_object() const;
    bool is_array() const;
    bool is_string() const;
    bool is_number() const;
    bool is_boolean() const;
    bool has(std::string_view key) const;   // an object with this key, and its value is not null
    Json at(std::string_view key) const;    // missing: UserError (with the nearest key present)
    Json get(std::string_view key) const;   // missing: null, still with its path for errors
    std::vector<std::string> keys() const;  // in file order
    std::vector<Json> items() const;        // of an array
    std::int64_t integer(std::int64_t least, std::int64_t most) const;
    double number(double least, double most) const;
    std::string string() const;
    std::string name() const;  // a string of at most 200 letters, none of which moves a terminal
    bool boolean() const;
    // One of `names`; returns its index. A misspelt name is answered with the nearest.
    std::size_t one_of(const std::vector<std::string>& names) const;
    void only_keys(const std::vector<std::string>& allowed) const;

    const std::string& file() const { return file_; }
    const std::string& path() const { return path_; }  // "parallelism.stage_layers[2]"
    [[noreturn]] void fail(std::string found, std::string expected, std::string suggestion = "") const;
    [[noreturn]] void unsupported(std::string what, std::string expected) const;  // ", which is not supported yet"
    std::string found() const;  // this value as it stands in the file, shortened: for `fail`

    // Writing. set() replaces; push() appends; both return *this for chaining.
    Json& set(std::string_view key, Json value);
    Json& set(std::string_view key, std::string_view value) { return set(key, Json(value)); }
    Json& set(std::string_view key, const char* value) { return set(key, Json(value)); }
    Json& set(std::string_view key, std::int64_t value) { return set(key, Json(value)); }
    Json& set(std::string_view key, int value) { return set(key, Json(value)); }
    Json& set(std::string_view key, double value) { return set(key, Json(value)); }
    Json& set(std::string_view key, bool value) { return set(key, Json(value)); }
    Json& push(Json value);
    std::string dump(int indent = 2) const;  // keys in insertion order; the same bytes every time

private:
    struct Node;                  // nlohmann::ordered_json lives in json.cpp
    std::shared_ptr<Node> node_;  // shared for reading; copied before a write when shared
    std::string file_;
    std::string path_;
    Json(std::shared_ptr<Node> node, std::string file, std::string path);
};

}  // namespace foretrain
