// A device with its calibration: it reads back as it is written.
#include "hardware/device_file.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const std::string written = device_to_json(device_from_json(Json::parse(text, "input"))).dump(-1);
        fuzz::require(device_to_json(device_from_json(Json::parse(written, "written"))).dump(-1) == written,
                      "a device reads back");
    });
}
