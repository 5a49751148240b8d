// A user's framework file: what is accepted is written and reads back equal.
#include "plan/framework_file.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        for (const Framework& f : frameworks_from_json(Json::parse(text, "input"))) {
            const std::string written = framework_file_json({f}).dump(-1);
            fuzz::require(frameworks_from_json(Json::parse(written, "written")).front() == f, "a profile reads back");
        }
    });
}
