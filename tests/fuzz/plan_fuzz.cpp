// A plan: it reads back as it is written, and is refused or predicted.
#include "plan/plan_file.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const Plan plan = plan_from_json(Json::parse(text, "input"));
        const std::string written = plan_to_json(plan).dump(-1);
        fuzz::require(plan_to_json(plan_from_json(Json::parse(written, "written"))).dump(-1) == written,
                      "a plan reads back");
        fuzz::predict(plan);
    });
}
