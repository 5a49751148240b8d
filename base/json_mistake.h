// What is wrong with a text that is no JSON, in words that help: who wrote `NaN`, a comment, a single quote
// or left a placeholder in a template is told so, rather than what a parser was looking for.
//
//   mistake_in("{\"a\": NaN}", 7, false)    // found "NaN", expected "a finite number: ..."
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace foretrain {

// "line 2, column 11" of the last of the first `offset` bytes.
std::string line_and_column(std::string_view text, std::size_t offset);

struct JsonMistake {
    std::string found, expected;
    std::string suggestion = {};  // may be empty
};

// `offset` counts the bytes read, the one that does not fit among them; more than there are where the text
// ended too early. `complete`: a whole value stands before it. Empty where it is none of the known slips.
std::optional<JsonMistake> mistake_in(std::string_view text, std::size_t offset, bool complete);

}  // namespace foretrain
