// Calls the front door in process and keeps what it wrote.
#pragma once

#include <sstream>
#include <string>

#include "cli/command.h"

namespace foretrain::cli {

struct Outcome {
    int code = 0;
    std::string out, err;
};

inline Outcome call(const Arguments& arguments, const std::string& folder = "") {
    std::ostringstream out, err;
    Console console{.out = out, .err = err, .folder = folder};
    Outcome outcome;
    outcome.code = front_door(arguments, console);
    outcome.out = out.str();
    outcome.err = err.str();
    return outcome;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A plan that every test may extend.
inline Arguments gpt2(const std::string& subcommand, const Arguments& further = {}) {
    Arguments arguments{subcommand, "--model",           "gpt2", "--cluster", "dgx-h100", "--global-batch-size",
                        "8",        "--sequence-length", "128"};
    arguments.insert(arguments.end(), further.begin(), further.end());
    return arguments;
}

}  // namespace foretrain::cli
