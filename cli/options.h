// Options of a subcommand: declared as data, parsed into texts, read with a type.
//
//   const Syntax syntax{.usage = "foretrain print [options]", .summary = "...", .groups = {{"Output", {
//       {"stage", "N", "only this stage"}, {"chunks", "", "at chunk level"}}}}};
//   const std::optional<Options> options = parse(syntax, arguments, console);
//   if (!options) return done;                                  // --help was asked for and printed
//   std::int64_t stage = options->integer("stage", 0, 15);
//
// Every error is a UserError that names the option: "command line: --stage: found "x"; expected …".
// What follows a lone `--` is kept apart, for the program that a subcommand starts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"

namespace foretrain::cli {

struct Option {
    std::string name;
    std::string value;  // what stands for its value in the help, "N"; empty: a switch
    std::string help;
    std::vector<std::string> also = {};  // what other tools call it, with dashes: for the suggestion alone
};

struct OptionGroup {
    std::string title;
    std::vector<Option> options;
};

struct Syntax {
    std::string usage;
    std::string summary;
    std::vector<std::string> examples;
    std::vector<OptionGroup> groups;
    std::size_t positional = 0;  // the most that are accepted
};

class Options {
public:
    bool has(const std::string& name) const { return values_.count(name) > 0; }
    std::string text(const std::string& name) const { return values_.at(name); }
    std::string text_or(const std::string& name, const std::string& otherwise) const;
    std::int64_t integer(const std::string& name, std::int64_t least, std::int64_t most) const;
    std::int64_t integer_or(const std::string& name, std::int64_t otherwise, std::int64_t least,
                            std::int64_t most) const;
    double number(const std::string& name, double least) const;
    bool on_off(const std::string& name) const;
    // One of `names`; the first where the option is absent.
    std::string choice(const std::string& name, const std::vector<std::string>& names) const;
    std::vector<std::string> list(const std::string& name) const;  // "1,2,4"; not empty
    std::vector<std::int64_t> integers(const std::string& name, std::int64_t least, std::int64_t most) const;

    Options with(const std::string& name, std::string value) const;  // the same, but for one value

    const std::vector<std::string>& positional() const { return positional_; }
    const std::vector<std::string>& after_dashes() const { return after_dashes_; }

private:
    friend std::optional<Options> parse(const Syntax&, const Arguments&, Console&);
    std::map<std::string, std::string> values_;
    std::vector<std::string> positional_;
    std::vector<std::string> after_dashes_;
};

std::optional<Options> parse(const Syntax& syntax, const Arguments& arguments, Console& console);
std::string help_text(const Syntax& syntax);

[[noreturn]] void option_error(const std::string& name, std::string found, std::string expected,
                               std::string suggestion = "");

// Calls `f`; a UserError from it that names no file is made to name the option.
template <class F>
auto for_option(const std::string& name, F f) -> decltype(f()) {
    try {
        return f();
    } catch (const UserError& e) {
        if (!e.text().file.empty()) throw;
        option_error(name, e.text().found, e.text().expected, e.text().suggestion);
    }
}

// Where results go: --format and --output.
OptionGroup output_options(const std::string& formats = "table|json|csv");
// Before long work: that --output and --save-plan can be written.
void check_output(const Options& options);
void write_result(const Options& options, Console& console, const std::string& text);
void write_file(const std::string& option, const std::string& path, const std::string& text);
void say_written(Console& console, const std::string& path);  // a file that the user named

}  // namespace foretrain::cli
