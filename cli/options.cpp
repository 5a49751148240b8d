#include "cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

namespace foretrain::cli {

namespace po = boost::program_options;

namespace {

std::string quoted(const std::string& text) { return fmt::format("\"{}\"", text.substr(0, 80)); }

std::vector<std::string> names_of(const Syntax& syntax) {
    std::vector<std::string> names{"--help"};
    for (const OptionGroup& group : syntax.groups)
        for (const Option& option : group.options) names.push_back("--" + option.name);
    return names;
}

po::options_description describe(const Syntax& syntax) {
    po::options_description all;
    for (const OptionGroup& group : syntax.groups)
        for (const Option& option : group.options) {
            if (option.value.empty())
                all.add_options()(option.name.c_str(), "");
            else
                all.add_options()(option.name.c_str(), po::value<std::string>(), "");
        }
    all.add_options()("help", "");
    return all;
}

// The option meant by a name that is not ours: another tool's, or nearly one of ours.
std::string meant(const Syntax& syntax, const std::string& token) {
    std::string name = token.substr(std::min(token.find_first_not_of('-'), token.size()));
    std::replace(name.begin(), name.end(), '_', '-');
    for (const OptionGroup& group : syntax.groups)
        for (const Option& option : group.options)
            if (std::find(option.also.begin(), option.also.end(), name) != option.also.end()) return "--" + option.name;
    return nearest(token, names_of(syntax));
}

[[noreturn]] void unknown_option(const Syntax& syntax, std::string token) {
    token = token.substr(0, token.find('='));
    const std::string usage = syntax.usage.substr(0, syntax.usage.find_first_of("-[") - 1);  // "foretrain sweep"
    throw UserError({.file = "command line",
                     .field = token,
                     .found = "an unknown option",
                     .expected = fmt::format("one that `{} --help` lists", usage),
                     .suggestion = meant(syntax, token)});
}

std::vector<po::option> parse_tokens(const Syntax& syntax, const Arguments& tokens) {
    namespace style = po::command_line_style;
    const po::options_description description = describe(syntax);
    try {
        return po::command_line_parser(tokens)
            .options(description)
            .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
            .run()
            .options;
    } catch (const po::unknown_option& e) {
        unknown_option(syntax, e.get_option_name());
    } catch (const po::invalid_command_line_syntax& e) {
        const bool missing = e.kind() != po::invalid_syntax::extra_parameter;
        throw UserError({.file = "command line",
                         .field = e.get_option_name(),
                         .found = missing ? "no value" : "a value",
                         .expected = missing ? "one after it" : "none: it is a switch"});
    } catch (const po::error& e) {
        throw UserError({.file = "command line", .found = e.what(), .expected = "options as --help lists them"});
    }
}

}  // namespace

void option_error(const std::string& name, std::string found, std::string expected, std::string suggestion) {
    throw UserError({.file = "command line",
                     .field = "--" + name,
                     .found = std::move(found),
                     .expected = std::move(expected),
                     .suggestion = std::move(suggestion)});
}

std::string Options::text_or(const std::string& name, const std::string& otherwise) const {
    return has(name) ? text(name) : otherwise;
}

namespace {

std::int64_t whole_number(const std::string& name, const std::string& text, std::int64_t least, std::int64_t most) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{} || end != text.data() + text.size() || n < least || n > most)
        option_error(name, quoted(text),
                     most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                                       : fmt::format("a whole number from {} to {}", least, most));
    return n;
}

}  // namespace

std::int64_t Options::integer(const std::string& name, std::int64_t least, std::int64_t most) const {
    return whole_number(name, text(name), least, most);
}

std::int64_t Options::integer_or(const std::string& name, std::int64_t otherwise, std::int64_t least,
                                 std::int64_t most) const {
    return has(name) ? integer(name, least, most) : otherwise;
}

double Options::number(const std::string& name, double least) const {
    const std::string given = text(name);
    double x = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), x);
    if (error != std::errc{} || end != given.data() + given.size() || !std::isfinite(x) || x < least)
        option_error(name, quoted(given), fmt::format("a number of at least {}", least));
    return x;
}

bool Options::on_off(const std::string& name) const {
    const std::string given = text(name);
    if (given == "on" || given == "true" || given == "1") return true;
    if (given == "off" || given == "false" || given == "0") return false;
    option_error(name, quoted(given), "on or off", nearest(given, {"on", "off"}));
}

std::string Options::choice(const std::string& name, const std::vector<std::string>& names) const {
    if (!has(name)) return names.front();
    const std::string given = text(name);
    if (std::find(names.begin(), names.end(), given) == names.end())
        option_error(name, quoted(given), fmt::format("one of {}", fmt::join(names, ", ")), nearest(given, names));
    return given;
}

std::vector<std::string> Options::list(const std::string& name) const {
    const std::string given = text(name);
    std::vector<std::string> parts;
    for (std::size_t from = 0; from <= given.size();) {
        const std::size_t comma = std::min(given.find(',', from), given.size());
        parts.push_back(given.substr(from, comma - from));
        if (parts.back().empty()) option_error(name, quoted(given), "values with commas between them, as in 1,2,4");
        from = comma + 1;
    }
    return parts;
}

std::vector<std::int64_t> Options::integers(const std::string& name, std::int64_t least, std::int64_t most) const {
    std::vector<std::int64_t> numbers;
    for (const std::string& part : list(name)) numbers.push_back(whole_number(name, part, least, most));
    return numbers;
}

Options Options::with(const std::string& name, std::string value) const {
    Options other = *this;
    other.values_[name] = std::move(value);
    return other;
}

std::optional<Options> parse(const Syntax& syntax, const Arguments& arguments, Console& console) {
    Options options;
    const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
    if (dashes != arguments.end()) options.after_dashes_.assign(dashes + 1, arguments.end());
    Arguments tokens(arguments.begin(), dashes);
    std::replace(tokens.begin(), tokens.end(), std::string("-h"), std::string("--help"));
    if (std::find(tokens.begin(), tokens.end(), "--help") != tokens.end()) {
        console.out << help_text(syntax);
        return std::nullopt;
    }
    for (const po::option& option : parse_tokens(syntax, tokens)) {
        if (option.position_key >= 0) {
            const std::string& value = option.value.front();
            if (value.size() > 1 && value.front() == '-') unknown_option(syntax, value);
            if (options.positional_.size() == syntax.positional)
                throw UserError(
                    {.file = "command line", .found = quoted(value), .expected = "an option, which begins with --"});
            options.positional_.push_back(value);
            continue;
        }
        if (options.has(option.string_key)) option_error(option.string_key, "it twice", "it once");
        options.values_[option.string_key] = option.value.empty() ? std::string() : option.value.front();
    }
    return options;
}

namespace {

// Words from a column on, in as many lines as they need.
std::string filled(const std::string& help, std::size_t column) {
    constexpr std::size_t widest = 100;
    std::string s;
    std::size_t at = column;
    std::istringstream words(help);
    for (std::string word; words >> word;) {
        if (at > column && at + 1 + word.size() > widest) {
            s += '\n' + std::string(column, ' ');
            at = column;
        }
        s += (at > column ? " " : "") + word;
        at += word.size() + (at > column ? 1 : 0);
    }
    return s + '\n';
}

}  // namespace

std::string help_text(const Syntax& syntax) {
    std::string s = fmt::format("Usage: {}\n\n{}\n", syntax.usage, syntax.summary);
    if (!syntax.examples.empty()) s += "\nExamples:\n";
    for (const std::string& example : syntax.examples) s += "  " + example + "\n";
    constexpr std::size_t column = 37;
    for (const OptionGroup& group : syntax.groups) {
        s += fmt::format("\n{}:\n", group.title);
        for (const Option& option : group.options) {
            std::string left = fmt::format("  --{} {}", option.name, option.value);
            if (left.size() + 2 > column) left += "\n";
            s += left.back() == '\n' ? left + std::string(column, ' ') : fmt::format("{:<{}}", left, column);
            s += filled(option.help, column);
        }
    }
    return s;
}

OptionGroup output_options(const std::string& formats) {
    return {"Output",
            {{"format", formats, "form of the result (table)"},
             {"output", "FILE", "write the result there instead of standard output"}}};
}

void write_file(const std::string& option, const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) option_error(option, quoted(path), "a file that can be written");
}

namespace {

// One result would overwrite another, or what it was made of.
void refuse_same_file(const Options& options) {
    const std::vector<std::string> written{"output", "save-plan", "trace"};
    for (std::size_t n = 0; n < written.size(); ++n) {
        if (!options.has(written[n])) continue;
        const std::string path = options.text(written[n]);
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(path, ignored) && std::filesystem::exists(path, ignored)) continue;
        const auto same = [&](const std::string& other) {
            return options.has(other) && std::filesystem::weakly_canonical(options.text(other), ignored) ==
                                             std::filesystem::weakly_canonical(path, ignored);
        };
        for (std::size_t m = 0; m < n; ++m)
            if (same(written[m])) option_error(written[n], quoted(path), "another file than that of --" + written[m]);
        if (written[n] == "output" && same("plan"))
            option_error(written[n], quoted(path), "another file than that of --plan, which it would overwrite");
    }
}

}  // namespace

void check_output(const Options& options) {
    refuse_same_file(options);
    for (const char* name : {"output", "save-plan"}) {
        if (!options.has(name)) continue;
        // Appending nothing: a file that is there stays as it is until there is a result.
        std::error_code ignored;
        const std::string path = options.text(name);
        const std::filesystem::file_status before = std::filesystem::status(path, ignored);
        // A pipe's reader would take this for its end.
        if (std::filesystem::is_fifo(before) || std::filesystem::is_character_file(before)) continue;
        if (!std::ofstream(path, std::ios::app)) option_error(name, quoted(path), "a file that can be written");
        if (!std::filesystem::exists(before)) std::filesystem::remove(path, ignored);
    }
}

void say_written(Console& console, const std::string& path) { console.err << "foretrain: wrote " << path << '\n'; }

void write_result(const Options& options, Console& console, const std::string& text) {
    if (!options.has("output")) {
        console.out << text;
        return;
    }
    write_file("output", options.text("output"), text);
    say_written(console, options.text("output"));
}

}  // namespace foretrain::cli
