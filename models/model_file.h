// Reading a model: a preset by name, an inline object, or a Hugging Face `config.json`.
//
//   ModelSpec a = read_model("gpt2");                       // preset
//   ModelSpec b = read_model("path/to/config.json");        // model_type: see models/hugging_face.h
//   Json out = model_to_json(b);                            // the inline form, for --save-plan
//
// The inline form has the fields of ModelSpec by name, `sliding_window` as an object:
//
//   {"layers": 26, "hidden_size": 2304, ..., "sliding_window": {"size": 4096, "full_every": 2}}
//
// Errors: UserError. An unknown preset is answered with the nearest name, an unsupported
// `model_type` is refused by its name, an unknown key by its path.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/model_spec.h"

namespace foretrain {

// `name_or_file`: a preset's name, or a path (anything with a '/' or ending in ".json").
ModelSpec read_model(const std::string& name_or_file);

// A model inside another file: a preset's name, a path relative to that file, or an object (inline
// form, or Hugging Face form, told apart by `model_type`).
ModelSpec model_from_json(const Json& value);

Json model_to_json(const ModelSpec& model);

std::vector<std::string> model_preset_names();

}  // namespace foretrain
