// JSON text: what is read can be written, and reads back as the same.
#include "base/json.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const std::string written = Json::parse(text, "input").dump(-1);
        fuzz::require(Json::parse(written, "written").dump(-1) == written, "written JSON reads back");
    });
}
