// A model in foretrain's own form: what is read is written for --save-plan and reads back as the same.
#include "models/model_file.h"
#include "models/parameters.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const ModelSpec m = model_from_json(Json::parse(text, "input"));
        fuzz::require(parameter_count(m) > 0, "a model has parameters");
        fuzz::require(model_from_json(Json::parse(model_to_json(m).dump(-1), "written")) == m, "a model reads back");
    });
}
