#include "models/expert_fields.h"

#include <fmt/format.h>

#include "models/model_limits.h"

namespace foretrain {

namespace {

std::int64_t number_or(const Json& value, const char* key, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise) {
    return value.has(key) ? value.at(key).integer(least, most) : otherwise;
}

bool flag_or(const Json& value, const char* key, bool otherwise) {
    return value.has(key) ? value.at(key).boolean() : otherwise;
}

// The width of all shared experts together, which is said either as such or by their number.
std::int64_t shared_width(const Json& value, std::int64_t width_of_one) {
    const std::int64_t count = number_or(value, "shared_experts", 0, largest_experts, 0);
    if (!value.has("shared_ffn")) {
        if (count * width_of_one > largest_size)
            value.at("shared_experts")
                .fail(std::to_string(count), fmt::format("all together at most {}", largest_size));
        return count * width_of_one;
    }
    const std::int64_t width = value.at("shared_ffn").integer(0, largest_size);
    if (value.has("shared_experts") && (count == 0) != (width == 0))
        value.at("shared_ffn").fail(std::to_string(width), fmt::format("a width that fits shared_experts = {}", count));
    return width;
}

}  // namespace

MixtureOfExperts experts_from_json(const Json& value) {
    value.only_keys({"experts", "topk", "moe_ffn", "shared_experts", "shared_ffn", "first_dense_layers", "every",
                     "capacity_factor", "pad_to_capacity", "router_bias", "shared_gate"});
    MixtureOfExperts moe;
    moe.experts = value.at("experts").integer(1, largest_experts);
    moe.topk = value.at("topk").integer(1, moe.experts);
    moe.ffn_hidden_size = value.at("moe_ffn").integer(1, largest_size);
    moe.shared_ffn = shared_width(value, moe.ffn_hidden_size);
    moe.first_dense_layers = number_or(value, "first_dense_layers", 0, largest_layers, 0);
    moe.every = number_or(value, "every", 1, largest_layers, 1);
    if (value.has("capacity_factor")) moe.capacity_factor = value.at("capacity_factor").number(0, largest_capacity);
    moe.pad_to_capacity = flag_or(value, "pad_to_capacity", false);
    moe.router_bias = flag_or(value, "router_bias", false);
    moe.shared_gate = flag_or(value, "shared_gate", false);
    if (moe.pad_to_capacity && moe.capacity_factor == 0)
        value.at("pad_to_capacity").fail("true", "a capacity_factor beside it: without one there is no capacity");
    if (moe.shared_gate && moe.shared_ffn == 0) value.at("shared_gate").fail("true", "shared experts for it to weigh");
    return moe;
}

LatentAttention latent_from_json(const Json& value) {
    value.only_keys({"q_lora", "kv_lora", "qk_nope", "qk_rope", "v_dim"});
    LatentAttention mla;
    mla.q_lora = number_or(value, "q_lora", 0, largest_size, 0);
    mla.kv_lora = value.at("kv_lora").integer(1, largest_size);
    mla.qk_nope = value.at("qk_nope").integer(1, largest_size);
    mla.qk_rope = value.at("qk_rope").integer(1, largest_size);
    mla.v_dim = value.at("v_dim").integer(1, largest_size);
    return mla;
}

Json experts_to_json(const MixtureOfExperts& moe) {
    const MixtureOfExperts usual;
    Json out = Json::object().set("experts", moe.experts).set("topk", moe.topk).set("moe_ffn", moe.ffn_hidden_size);
    const auto set = [&](const char* key, const auto& field, const auto& otherwise) {
        if (field != otherwise) out.set(key, field);
    };
    set("shared_ffn", moe.shared_ffn, usual.shared_ffn);
    set("first_dense_layers", moe.first_dense_layers, usual.first_dense_layers);
    set("every", moe.every, usual.every);
    set("capacity_factor", moe.capacity_factor, usual.capacity_factor);
    set("pad_to_capacity", moe.pad_to_capacity, usual.pad_to_capacity);
    set("router_bias", moe.router_bias, usual.router_bias);
    set("shared_gate", moe.shared_gate, usual.shared_gate);
    return out;
}

Json latent_to_json(const LatentAttention& mla) {
    return Json::object()
        .set("q_lora", mla.q_lora == 0 ? Json() : Json(mla.q_lora))
        .set("kv_lora", mla.kv_lora)
        .set("qk_nope", mla.qk_nope)
        .set("qk_rope", mla.qk_rope)
        .set("v_dim", mla.v_dim);
}

void require_sound_experts(const ModelSpec& m, const RefuseField& refuse) {
    const MixtureOfExperts& moe = m.moe;
    if (m.ffn_hidden_size == 0 && m.expert_layers() < m.layers)
        refuse("ffn_hidden_size", "none", "the width of the MLP of the layers without experts");
    if (!m.has_experts()) return;
    if (m.expert_layers() < 1)
        refuse("moe",
               fmt::format("experts on each {} of the layers after the first {}", moe.every, moe.first_dense_layers),
               fmt::format("a layer with experts among the {}", m.layers));
    if (moe.topk > moe.experts)
        refuse("moe.topk", std::to_string(moe.topk), fmt::format("at most experts = {}", moe.experts));
    if (m.is_parallel() || m.post_norms)
        refuse("moe", "experts",
               "a sequential block without norms after its branches, or no experts: both is not supported");
}

void require_sound_latents(const ModelSpec& m, const RefuseField& refuse) {
    if (!m.is_latent()) return;
    if (m.kv_heads != m.attention_heads)
        refuse("kv_heads", std::to_string(m.kv_heads),
               fmt::format("attention_heads = {}: latent attention gives each head a key", m.attention_heads));
    if (m.head_dim != m.mla.qk_size())
        refuse("head_dim", std::to_string(m.head_dim), fmt::format("qk_nope + qk_rope = {}", m.mla.qk_size()));
    if (m.mla.qk_rope % 2 != 0)
        refuse("mla.qk_rope", std::to_string(m.mla.qk_rope), "an even number: rotary positions turn pairs");
    if (m.mla.v_dim > largest_size / m.attention_heads)
        refuse("mla.v_dim", std::to_string(m.mla.v_dim), fmt::format("all heads together at most {}", largest_size));
    if (m.positions != Positions::rope || m.rotary_dim != 0)
        refuse("positions", "other ones", "rope, of qk_rope elements, with latent attention");
    if (m.qkv_biased() || m.query_key_norm != QueryKeyNorm::none || m.attention_sinks || m.sliding_window.size > 0)
        refuse("mla", "latent attention",
               "no biases, norms or sinks of heads and no window beside it: neither is supported");
    if (m.is_parallel()) refuse("mla", "latent attention", "a sequential block: another is not supported with it");
}

}  // namespace foretrain
