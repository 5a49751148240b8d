// A program as text: it reads back as it is printed, and is proved or disproved.
#include "plan/program/text.h"
#include "plan/program/verify.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const Program program = program_from_text(text);
        const std::string printed = to_text(program);
        fuzz::require(to_text(program_from_text(printed)) == printed, "a program reads back");
        if (const auto wrong = verify(program)) fuzz::require(!wrong->empty(), "a disproof says why");
    });
}
