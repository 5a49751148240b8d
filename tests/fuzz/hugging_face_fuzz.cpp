// A config.json of any model_type: what a reader makes of it is a sound model in our own form.
#include "models/hugging_face.h"
#include "models/model_file.h"
#include "models/parameters.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const Json json = Json::parse(text, "input");
        if (!json.is_object() || !json.has("model_type")) return;
        const ModelSpec m = model_from_json(json);
        fuzz::require(parameter_count(m) > 0, "a model has parameters");
        fuzz::require(model_from_json(Json::parse(model_to_json(m).dump(-1), "written")) == m, "a model reads back");
    });
}
