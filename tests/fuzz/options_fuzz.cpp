// A command line, one word a line: a plan by its options, the base of a sweep, or presets shown. No
// subcommand that writes a file or starts a program is called.
#include <sstream>
#include <string>

#include "cli/command.h"
#include "cli/plan_options.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

namespace {

cli::Arguments words_of(std::string_view text) {
    cli::Arguments words;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line) && words.size() < 64;) words.push_back(line);
    return words;
}

void plan_of(const cli::Arguments& arguments, cli::Console& console, bool swept) {
    const cli::Syntax syntax{.usage = "foretrain estimate [options]",
                             .summary = "",
                             .groups = swept ? cli::sweep_base_option_groups() : cli::plan_option_groups()};
    const auto options = cli::parse(syntax, arguments, console);
    if (!options) return;
    if (swept)
        fuzz::predict(cli::sweep_base_from_options(*options));
    else
        fuzz::predict(cli::plan_from_options(*options));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        cli::Arguments arguments = words_of(text);
        if (arguments.empty()) return;
        std::ostringstream out, err;
        cli::Console console{.out = out, .err = err, .folder = ""};
        const std::string first = arguments.front();
        if (first == "estimate" || first == "sweep") {
            arguments.erase(arguments.begin());
            return plan_of(arguments, console, first == "sweep");
        }
        if (first != "models" && first != "clusters" && first != "help") return;
        for (const std::string& word : arguments)
            if (word.starts_with("--output")) return;
        const int code = cli::front_door(arguments, console);
        fuzz::require(code == cli::done || code == cli::bad_input, "a word is understood or refused");
        fuzz::require(code == cli::done || !err.str().empty(), "a refusal says why");
    });
}
