// The fields `moe` and `mla` of a model file: experts and latent attention, read, written and held against the
// model's other fields.
//
//   {"moe": {"experts": 64, "topk": 6, "moe_ffn": 1408, "shared_experts": 2, "first_dense_layers": 1},
//    "mla": {"q_lora": null, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v_dim": 128}, ...}
//
// `shared_ffn` left out is shared_experts * moe_ffn; `q_lora` left out or null projects queries directly.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "models/model_spec.h"

namespace foretrain {

MixtureOfExperts experts_from_json(const Json& value);
LatentAttention latent_from_json(const Json& value);
Json experts_to_json(const MixtureOfExperts& moe);
Json latent_to_json(const LatentAttention& mla);

// Throws that `field` is `found` where `expected` is needed.
using RefuseField = std::function<void(const char* field, std::string found, std::string expected)>;

// What has to hold between these fields and the others.
void require_sound_experts(const ModelSpec& model, const RefuseField& refuse);
void require_sound_latents(const ModelSpec& model, const RefuseField& refuse);

}  // namespace foretrain
