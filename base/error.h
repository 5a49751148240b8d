// The two ways in which a call can fail, besides a returned Rejection (plan/check.h).
//
// UserError: the input is wrong. It names file, field, what was found, what is allowed and, where
// one is known, a suggestion; the front door prints it and exits with 2. Unsupported is the kind of it that a
// later version may answer.
// RunError: a run that had started failed (exit 3).
// FORETRAIN_CHECK: something that cannot be is; a defect of foretrain itself.
//
//   throw UserError({.file = "plan.json", .field = "parallelism.tensor", .found = "3",
//                    .expected = "a divisor of attention_heads = 32", .suggestion = "2 or 4"});
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain {

struct UserErrorText {
    std::string file;   // file name or "command line"; may be empty
    std::string field;  // dotted path, e.g. "parallelism.stage_layers[2]"; may be empty
    std::string found;
    std::string expected;
    std::string suggestion;  // may be empty
};

class UserError : public std::runtime_error {
public:
    explicit UserError(UserErrorText text);
    const UserErrorText& text() const { return text_; }

private:
    UserErrorText text_;
};

// Well formed and understood, but nothing of ours does it yet: who reads many inputs may count it and go on.
class Unsupported : public UserError {
public:
    using UserError::UserError;
};

class RunError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
public:
    using std::logic_error::logic_error;
};

// The first bytes of a text that came from outside, "..." for the rest; not cut inside a character.
std::string shortened(std::string text, std::size_t most = 80);

// The candidate nearest to `word` by edit distance, whatever the case and the separators; one that it begins, or
// is a part of, counts as near. "" if none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace foretrain

#define FORETRAIN_CHECK(condition, message)                                                   \
    do {                                                                                      \
        if (!(condition)) ::foretrain::check_failed(#condition, __FILE__, __LINE__, message); \
    } while (false)
