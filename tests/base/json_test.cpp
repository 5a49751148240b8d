#include "base/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

UserErrorText refusal_of(std::string_view text) {
    return refusal([&] { Json::parse(text, "f.json"); });
}

TEST(Json, ReadsEveryType) {
    const Json j =
        Json::parse(R"({"a": 1, "b": -2.5, "c": "x", "d": true, "e": null, "f": [1, 2], "g": {"h": 7}})", "f");
    EXPECT_EQ(j.at("a").integer(0, 5), 1);
    EXPECT_EQ(j.at("a").number(0, 5), 1.0);
    EXPECT_EQ(j.at("b").number(-3, 3), -2.5);
    EXPECT_EQ(j.at("c").string(), "x");
    EXPECT_TRUE(j.at("d").boolean());
    EXPECT_TRUE(j.at("e").is_null());
    EXPECT_FALSE(j.has("e"));
    EXPECT_FALSE(j.has("z"));
    EXPECT_EQ(j.at("f").items()[1].integer(0, 5), 2);
    EXPECT_EQ(j.at("f").items()[1].path(), "f[1]");
    EXPECT_EQ(j.at("g").at("h").path(), "g.h");
    EXPECT_EQ(j.get("z").path(), "z");
    EXPECT_EQ(j.keys(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"}));
}

TEST(Json, ChildrenOutliveTheirParent) {
    Json child;
    {
        const Json parent = Json::parse(R"({"a": {"b": [1, 2, 3]}})", "f");
        child = parent.at("a").at("b");
    }
    EXPECT_EQ(child.items()[2].integer(0, 9), 3);
}

TEST(Json, NamesTheMisspeltKey) {
    const Json j = Json::parse(R"({"parallelism": {"tensr": 2}})", "plan.json").at("parallelism");
    const UserErrorText unknown = refusal([&] { j.only_keys({"tensor", "pipeline"}); });
    EXPECT_EQ(unknown.file, "plan.json");
    EXPECT_EQ(unknown.field, "parallelism.tensr");
    EXPECT_EQ(unknown.suggestion, "tensor");
    const UserErrorText missing = refusal([&] { j.at("tensor"); });
    EXPECT_EQ(missing.field, "parallelism");
    EXPECT_EQ(missing.suggestion, "tensr");
}

TEST(Json, RefusesWrongTypesAndRanges) {
    const Json j = Json::parse(R"({"n": 8.5, "s": "tensr", "i": 300, "w": 8.0})", "f.json");
    EXPECT_EQ(refusal([&] { j.at("n").integer(1, 9); }).found, "8.5");
    EXPECT_EQ(refusal([&] { j.at("w").integer(1, 9); }).found, "8.0");
    EXPECT_EQ(refusal([&] { j.at("s").integer(1, 9); }).found, "\"tensr\"");
    EXPECT_EQ(refusal([&] { j.at("i").integer(1, 9); }).expected, "an integer from 1 to 9");
    EXPECT_EQ(refusal([&] { j.at("i").number(0, 1); }).field, "i");
    EXPECT_EQ(refusal([&] { j.at("i").string(); }).expected, "a text");
    EXPECT_EQ(refusal([&] { j.at("i").boolean(); }).expected, "true or false");
    EXPECT_EQ(refusal([&] { j.at("i").items(); }).expected, "an array");
    EXPECT_EQ(refusal([&] { j.at("i").at("k"); }).expected, "an object");
    EXPECT_EQ(refusal([&] { j.at("s").one_of({"pipeline", "tensor"}); }).suggestion, "tensor");
}

TEST(Json, RefusesDuplicateKeys) {
    const UserErrorText t = refusal_of(R"({"a": {"b": 1, "c": 2, "b": 3}})");
    EXPECT_EQ(t.file, "f.json");
    EXPECT_EQ(t.field, "a.b");
}

TEST(Json, RefusesBottomlessNesting) {
    EXPECT_NO_THROW(Json::parse(std::string(64, '[') + std::string(64, ']'), "f"));
    EXPECT_EQ(refusal_of(std::string(65, '[') + std::string(65, ']')).expected, "at most 64 levels");
    refusal_of(std::string(1 << 20, '['));
    std::string objects;
    for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
    refusal_of(objects);
}

TEST(Json, RefusesNumbersThatDoNotFit) {
    EXPECT_EQ(refusal_of(R"({"a": [0, 9223372036854775808]})").field, "a[1]");
    EXPECT_EQ(refusal_of(R"({"a": -9223372036854775809})").field, "a");
    EXPECT_EQ(refusal_of(R"({"a": 123456789012345678901234567890})").field, "a");
    refusal_of("[1e999]");
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(Json::parse("[9223372036854775807]", "f").items()[0].integer(least, most), most);
    EXPECT_EQ(Json::parse("[-9223372036854775808]", "f").items()[0].integer(least, most), least);
}

TEST(Json, SaysWhereTheTextBreaks) {
    EXPECT_EQ(refusal_of("{\n  \"a\": tru\n}").field, "line 2, column 11");
    EXPECT_EQ(refusal_of("").field, "line 1, column 1");
    for (const char* text :
         {"{", "[1, 2", "{\"a\"", "{\"a\": }", "{} x", "[1,]", "\"abc", "nul", "[01]", "{'a': 1}", "NaN"})
        EXPECT_EQ(refusal_of(text).field.substr(0, 5), "line ") << text;
}

TEST(Json, SaysWhichSlipItIs) {
    struct Slip {
        const char* text;
        const char* found;
        const char* expected;
    };
    for (const Slip& s : {Slip{"", "nothing", "JSON text"},
                          {" \n", "nothing", "JSON text"},
                          {"\xff\xfe{", "UTF-16", "UTF-8"},
                          {"{\"a\": 1", "the end of the text", "cut off"},
                          {"{\"a\": NaN}", "NaN", "finite"},
                          {"[1, -Infinity]", "-Infinity", "finite"},
                          {"{\"batch\": CONFIG_BATCH_SIZE}", "CONFIG_BATCH_SIZE", "placeholder"},
                          {"{\"batch\": <batch>}", "\"<\"", "placeholder"},
                          {"{\"batch\": ${B}}", "\"$\"", "placeholder"},
                          {"{\"a\": auto}", "the word auto", "double quotes"},
                          {"{\"a\": nul}", "the word nul", "quotes"},
                          {"{'a': 1}", "a single quote", "double quotes"},
                          {"// x\n{}", "a comment", "none"},
                          {"[1, # x\n2]", "a comment", "none"},
                          {"[1,]", "\"]\" after a comma", "no comma"},
                          {"{\"a\": 1,\n}", "\"}\" after a comma", "no comma"},
                          {"{} {}", "more text", "one JSON value"},
                          {"[\"a\nb\"]", "the end of the line", "closing"},
                          {"[\"a\xff\"]", "the byte 0xff", "UTF-8"}}) {
        const UserErrorText t = refusal_of(s.text);
        EXPECT_NE(t.found.find(s.found), std::string::npos) << s.text << ": " << t.found;
        EXPECT_NE(t.expected.find(s.expected), std::string::npos) << s.text << ": " << t.expected;
    }
    EXPECT_EQ(refusal_of("{\"a\": True}").suggestion, "true");
    EXPECT_EQ(refusal_of("{\"a\": None}").suggestion, "null");
}

TEST(Json, SaysWhichIntegerIsMeant) {
    const Json j = Json::parse(R"({"a": 5e8, "b": "512", "c": 1.5, "d": "many", "e": 1e300, "f": "5e8"})", "f.json");
    const auto meant = [&](const char* key) { return refusal([&] { j.at(key).integer(1, 1 << 30); }).suggestion; };
    EXPECT_EQ(meant("a"), "500000000");
    EXPECT_EQ(meant("b"), "512");
    EXPECT_EQ(meant("f"), "500000000");
    for (const char* key : {"c", "d", "e"}) EXPECT_EQ(meant(key), "") << key;
}

TEST(Json, RefusesBrokenUtf8) {
    refusal_of("[\"\xff\xfe\"]");
    refusal_of("{\"\xc3\": 1}");
    refusal_of(std::string_view("[1]\0", 4));
    EXPECT_EQ(Json::parse("\"\xc3\xa9\\u00e9\"", "f").string(), "\xc3\xa9\xc3\xa9");
    refusal([] { Json::object().set("name", "\xff").dump(); });
    refusal([] { Json::object().set("\xff", 1).dump(); });
    EXPECT_FALSE(Json(std::string_view("\xff")).found().empty());
}

TEST(Json, RefusesFilesThatCannotBeRead) {
    EXPECT_EQ(refusal([] { Json::parse_file("/no/such/file.json"); }).file, "/no/such/file.json");
    EXPECT_EQ(refusal([] { Json::parse_file("/"); }).found, "a directory");
    const auto path = std::filesystem::temp_directory_path() / "foretrain_json_test_large.json";
    std::ofstream(path).put(' ');
    std::filesystem::resize_file(path, (std::uintmax_t{64} << 20) + 1);
    EXPECT_EQ(refusal([&] { Json::parse_file(path.string()); }).expected, "at most 64 MiB");
    std::filesystem::remove(path);
}

TEST(Json, ShortensWhatItQuotes) {
    const Json j = Json::parse("[\"" + std::string(100000, 'x') + "\"]", "f").items()[0];
    EXPECT_LT(j.found().size(), 200u);
    EXPECT_LT(refusal([&] { j.one_of({"a"}); }).found.size(), 200u);
    const Json keys = Json::parse("{\"" + std::string(100000, 'k') + "\": 1}", "f");
    EXPECT_LT(refusal([&] { keys.only_keys({"a"}); }).field.size(), 300u);
}

TEST(Json, WritesInOrderAndTheSameBytes) {
    Json j = Json::object();
    j.set("z", 1).set("a", 0.1).set("list", Json::array().push(Json(1)).push(Json("x")));
    EXPECT_EQ(j.dump(-1), R"({"z":1,"a":0.1,"list":[1,"x"]})");
    j.set("z", true);
    EXPECT_EQ(j.dump(-1), R"({"z":true,"a":0.1,"list":[1,"x"]})");
    EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
    EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
    for (double x : {0.1, 1.0 / 3, 2039e9, 5e-324, 1.7976931348623157e308})
        EXPECT_EQ(Json::parse(Json::array().push(Json(x)).dump(), "f")
                      .items()[0]
                      .number(0, std::numeric_limits<double>::max()),
                  x);
}

TEST(Json, WritingOneCopyLeavesTheOther) {
    Json a = Json::object();
    a.set("x", 1);
    Json b = a;
    b.set("x", 2);
    EXPECT_EQ(a.at("x").integer(0, 9), 1);
    EXPECT_EQ(b.at("x").integer(0, 9), 2);
    const Json parent = Json::parse(R"({"c": {"x": 1}})", "f");
    Json child = parent.at("c");
    child.set("x", 5);
    EXPECT_EQ(parent.dump(-1), R"({"c":{"x":1}})");
    EXPECT_EQ(child.dump(-1), R"({"x":5})");
    Json self = Json::array();
    self.push(self);
    EXPECT_EQ(self.dump(-1), "[[]]");
}

// A report of a sweep has tens of thousands of entries, a file of records as many keys.
TEST(Json, IsLinearInTheSizeOfTheText) {
    std::string text = "{";
    for (int i = 0; i < 100000; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
    const auto begin = std::chrono::steady_clock::now();
    const Json j = Json::parse(text + "}", "f");
    Json list = Json::array();
    for (int i = 0; i < 100000; ++i) list.push(Json::object().set("a", i));
    list.dump();
    EXPECT_EQ(j.keys().size(), 100000u);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20.0);
}

TEST(JsonLines, NamesTheLineOfEach) {
    const std::vector<Json> values = Json::parse_lines("{\"a\": 1}\r\n\n  \t\n[2]", "runs.jsonl");
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(values[0].file(), "runs.jsonl:1");
    EXPECT_EQ(values[1].file(), "runs.jsonl:4");
    EXPECT_TRUE(Json::parse_lines("\n \n", "runs.jsonl").empty());
    const UserErrorText t = refusal([] { Json::parse_lines("1\n{\"a\" 2}\n", "runs.jsonl"); });
    EXPECT_EQ(t.file, "runs.jsonl:2");
    EXPECT_EQ(t.field, "column 6");
}

TEST(Json, WhatIsNotSupportedYetIsAKindOfUserError) {
    const Json value = Json::parse("{\"a\": 1}", "x.json").at("a");
    try {
        value.unsupported(value.found(), "2");
        FAIL();
    } catch (const Unsupported& e) {
        EXPECT_STREQ(e.what(), "x.json: a: found 1, which is not supported yet; expected 2");
    }
}

}  // namespace
}  // namespace foretrain
