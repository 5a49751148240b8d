// A Hugging Face `config.json`, as its authors publish it, of any language model whose
// `model_type` is in the table of models/model_types.h.
//
//   ModelSpec m = model_from_hugging_face(Json::parse_file("Llama-2-7b-hf/config.json"));
//   supported_model_types()   // {"bloom", "chatglm", ...}
//
// Keys that change neither shapes nor work are ignored, by an explicit list; any other unknown key
// is an error, for it may change what the model is. Dropout is not modelled and its rates are
// ignored; rope_scaling changes angles, not work.
//
// Layers for multi-token prediction (DeepSeek-V3) are left out, and a note says so. Which experts a router may
// choose together changes no work.
//
// Refused by name: other types (mixtures of experts and latent attention said to be so), encoders
// and decoders, and files whose `architectures` have no language-model head. Of a model around a
// text model (`text_config`) the text model is read, and a note says so.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/model_spec.h"

namespace foretrain {

ModelSpec model_from_hugging_face(const Json& config);

std::vector<std::string> supported_model_types();

}  // namespace foretrain
