#include "cli/options.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "cli/launch.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

const Syntax& syntax() {
    static const Syntax s{.usage = "foretrain try [options]",
                          .summary = "Tries.",
                          .examples = {"foretrain try --steps 3"},
                          .groups = {{"Group",
                                      {{"steps", "N", "how many"},
                                       {"ratio", "X", "how much"},
                                       {"overlap", "on|off", "whether"},
                                       {"tensor", "N,...", "which"},
                                       {"plan", "FILE", "what to read"},
                                       {"save-plan", "FILE", "what to write"},
                                       {"force", "", "a switch"}}},
                                     output_options()},
                          .positional = 1};
    return s;
}

Options parsed(const Arguments& arguments) {
    std::ostringstream out, err;
    Console console{.out = out, .err = err, .folder = ""};
    return *parse(syntax(), arguments, console);
}

// What the UserError of `f` says.
template <class F>
std::string complaint(F f) {
    try {
        f();
    } catch (const UserError& e) {
        return e.what();
    }
    return "no complaint";
}

TEST(Options, ReadTypedValues) {
    const Options o =
        parsed({"--steps", "3", "--ratio=0.5", "--overlap", "off", "--tensor", "1,2,8", "--force", "word"});
    EXPECT_EQ(o.integer("steps", 1, 10), 3);
    EXPECT_DOUBLE_EQ(o.number("ratio", 0), 0.5);
    EXPECT_FALSE(o.on_off("overlap"));
    EXPECT_EQ(o.integers("tensor", 1, 8), (std::vector<std::int64_t>{1, 2, 8}));
    EXPECT_TRUE(o.has("force"));
    EXPECT_EQ(o.positional(), (std::vector<std::string>{"word"}));
    EXPECT_EQ(o.choice("format", {"table", "json"}), "table");
    EXPECT_EQ(o.integer_or("absent", 7, 1, 10), 7);
}

TEST(Options, KeepWhatFollowsTheDashes) {
    const Options o = parsed({"--steps", "3", "--", "--ranks", "mpi"});
    EXPECT_EQ(o.after_dashes(), (std::vector<std::string>{"--ranks", "mpi"}));
    EXPECT_TRUE(o.positional().empty());
}

TEST(Options, NameTheOptionInEveryComplaint) {
    EXPECT_EQ(
        complaint([] {
            parsed({"--stps", "3"});
        }),
        "command line: --stps: found an unknown option; expected one that `foretrain try --help` lists (try --steps)");
    EXPECT_EQ(
        complaint([] { parsed({"--stps=3"}); }),
        "command line: --stps: found an unknown option; expected one that `foretrain try --help` lists (try --steps)");
    EXPECT_EQ(complaint([] { parsed({"--steps"}); }), "command line: --steps: found no value; expected one after it");
    EXPECT_EQ(complaint([] {
                  parsed({"--steps", "1", "--steps", "2"});
              }),
              "command line: --steps: found it twice; expected it once");
    EXPECT_EQ(complaint([] { parsed({"--force=1"}); }),
              "command line: --force: found a value; expected none: it is a switch");
    EXPECT_EQ(complaint([] {
                  parsed({"one", "two"});
              }),
              "command line: found \"two\"; expected an option, which begins with --");
    EXPECT_TRUE(contains(complaint([] { parsed({"-s"}); }), "-s: found an unknown option"));
}

TEST(Options, RefuseWhatDoesNotFitTheType) {
    for (const char* bad : {"x", "", "3x", "0", "11", "99999999999999999999", "1.5", "0x3"})
        EXPECT_TRUE(contains(complaint([&] {
                                 parsed({"--steps", bad}).integer("steps", 1, 10);
                             }),
                             "expected a whole number from 1 to 10"))
            << bad;
    for (const char* bad : {"x", "-1", "nan", "inf", "1e999"})
        EXPECT_TRUE(contains(complaint([&] { parsed({"--ratio=" + std::string(bad)}).number("ratio", 0); }),
                             "expected a number of at least 0"))
            << bad;
    EXPECT_TRUE(contains(complaint([] { parsed({"--overlap", "onn"}).on_off("overlap"); }), "(try on)"));
    for (const char* bad : {"1,,2", ",1", "1,", "1;2"})
        EXPECT_NE(complaint([&] { parsed({"--tensor", bad}).integers("tensor", 1, 8); }), "no complaint") << bad;
    EXPECT_TRUE(contains(complaint([] {
                             parsed({"--format", "jsn"}).choice("format", {"table", "json"});
                         }),
                         "(try json)"));
}

TEST(Options, AnUnknownOneNamesTheHelpOfItsSubcommand) {
    const Syntax only_dashes{.usage = "foretrain try --output FILE [-- more]", .summary = "", .groups = {}};
    std::ostringstream out, err;
    Console console{.out = out, .err = err, .folder = ""};
    EXPECT_TRUE(contains(complaint([&] {
                             parse(only_dashes, {"--format", "json"}, console);
                         }),
                         "expected one that `foretrain try --help` lists"));
}

TEST(Options, OutputIsTriedBeforeTheWork) {
    const TemporaryFolder folder;
    const std::string fresh = folder.file("fresh"), kept = folder.file("kept");
    check_output(parsed({"--output", fresh}));
    EXPECT_FALSE(std::filesystem::exists(fresh)) << "only a result makes it";
    write_file("output", kept, "before");
    check_output(parsed({"--output", kept}));
    EXPECT_EQ(std::filesystem::file_size(kept), 6u);
    EXPECT_EQ(complaint([&] {
                  check_output(parsed({"--output", folder.file("missing/x")}));
              }).substr(0, 22),
              "command line: --output");
}

TEST(Options, NoResultOverwritesAnother) {
    const TemporaryFolder folder;
    const std::string plan = folder.file("plan"), other = folder.file("other");
    write_file("output", plan, "a plan");
    EXPECT_EQ(complaint([&] {
                  check_output(parsed({"--output", other, "--save-plan", other}));
              }).substr(0, 25),
              "command line: --save-plan");
    EXPECT_EQ(complaint([&] {
                  check_output(parsed({"--plan", plan, "--output", plan}));
              }).substr(0, 22),
              "command line: --output");
    check_output(parsed({"--plan", plan, "--save-plan", plan}));  // what people do to keep an option in it
    check_output(parsed({"--output", "/dev/null", "--save-plan", "/dev/null"}));
}

TEST(Options, HelpShowsExamplesAndEveryOption) {
    const std::string help = help_text(syntax());
    for (const char* part : {"Usage: foretrain try", "foretrain try --steps 3", "--overlap on|off", "a switch"})
        EXPECT_TRUE(contains(help, part)) << part;
}

}  // namespace
}  // namespace foretrain::cli
