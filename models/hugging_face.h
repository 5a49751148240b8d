// A Hugging Face `config.json`, as its authors publish it: model_type gpt2 and llama.
//
//   ModelSpec m = model_from_hugging_face(Json::parse_file("Llama-2-7b-hf/config.json"));
//
// Keys that change neither shapes nor work are ignored, by an explicit list; any other unknown key
// is an error, for it may change what the model is. Dropout is not modelled and its rates are
// ignored; rope_scaling changes angles, not work.
#pragma once

#include "base/json.h"
#include "models/model_spec.h"

namespace foretrain {

ModelSpec model_from_hugging_face(const Json& config);

}  // namespace foretrain
