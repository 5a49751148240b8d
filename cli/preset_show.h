// `foretrain models`, `clusters` and `frameworks`: how one room's presets are listed and shown.
//
//   return show(Presets<ModelSpec>{"models", "model", "NAME|FILE", names, read, table, text, json}, arguments,
//   console);
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/options.h"

namespace foretrain::cli {

// Presets come in the order of their files, where "gpt2-xl.json" is before "gpt2.json".
template <class Names>
std::vector<std::string> sorted(Names names) {
    std::vector<std::string> list = names();
    std::sort(list.begin(), list.end());
    return list;
}

// How one room's presets are listed and shown.
template <class Spec>
struct Presets {
    const char* command;
    const char* noun;
    const char* named;  // how the help calls what `show` takes
    std::vector<std::string> (*names)();
    Spec (*read)(const std::string&);
    std::string (*table)();
    std::string (*text)(const Spec&);
    Json (*json)(const Spec&);
};

// The name stands alone on the command line: errors call it by its noun.
template <class Spec>
Spec read_named(const Presets<Spec>& presets, const std::string& name) {
    try {
        return presets.read(name);
    } catch (const UserError& e) {
        if (!e.text().file.empty()) throw;
        UserErrorText text = e.text();
        text.file = "command line";
        text.field = presets.noun;
        throw UserError(std::move(text));
    }
}

template <class Spec>
int show(const Presets<Spec>& presets, const Arguments& arguments, Console& console) {
    const std::string command = presets.command, noun = presets.noun;
    const std::vector<std::string> names = sorted(presets.names);
    const std::string example = names.empty() ? "NAME" : names.front();
    const Syntax syntax{
        .usage = "foretrain " + command + " [show " + presets.named + "] [options]",
        .summary = "Lists the " + noun + " presets, or shows one " + noun + " with all its figures.",
        .examples = {"foretrain " + command, "foretrain " + command + " show " + example + " --format json"},
        .groups = {output_options("table|json")},
        .positional = 2};
    const std::optional<Options> options = parse(syntax, arguments, console);
    if (!options) return done;
    const bool json = options->choice("format", {"table", "json"}) == "json";
    const std::vector<std::string>& words = options->positional();
    if (words.empty()) {
        Json all = Json::array();
        if (json)
            for (const std::string& name : names) all.push(presets.json(presets.read(name)));
        write_result(*options, console, json ? all.dump() + "\n" : presets.table());
        return done;
    }
    if (words.front() != "show" || words.size() != 2) {
        const bool is_preset = std::find(names.begin(), names.end(), words.front()) != names.end();
        throw UserError({.file = "command line",
                         .found = '"' + words.front() + (words.size() > 1 ? " " + words[1] : "") + '"',
                         .expected = "nothing, or `show NAME` with one of the " + std::to_string(names.size()) +
                                     " names that `foretrain " + command + "` lists",
                         .suggestion = "foretrain " + command + " show " + (is_preset ? words.front() : example)});
    }
    const Spec spec = read_named(presets, words[1]);
    write_result(*options, console, json ? presets.json(spec).dump() + "\n" : presets.text(spec));
    return done;
}

}  // namespace foretrain::cli
