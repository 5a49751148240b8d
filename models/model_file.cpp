#include "models/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_name.h"
#include "base/preset.h"
#include "models/hugging_face.h"
#include "models/model_limits.h"
#include "models/parameters.h"

namespace foretrain {

namespace {

constexpr const char* model_format = "foretrain.model/1";

const std::vector<std::string> inline_keys{"format",
                                           "name",
                                           "layers",
                                           "hidden_size",
                                           "attention_heads",
                                           "kv_heads",
                                           "head_dim",
                                           "gated_mlp",
                                           "ffn_hidden_size",
                                           "vocab_size",
                                           "tied_embeddings",
                                           "positions",
                                           "max_positions",
                                           "norm",
                                           "activation",
                                           "norm_epsilon",
                                           "bias",
                                           "attention_bias",
                                           "rope_theta",
                                           "sources",
                                           "moe",
                                           "mla",
                                           "sliding_window"};

// Fields of the form that are not supported yet: null is neutral, anything else would be planned wrongly.
void refuse_unsupported(const Json& value) {
    for (const char* key : {"moe", "mla", "sliding_window"})
        if (value.has(key))
            value.at(key).fail(fmt::format("\"{}\", which is not supported yet", key), "null, or the key left out");
    if (const Json p = value.get("positions"); p.is_string() && p.string() == "alibi")
        p.fail("\"alibi\", which is not supported yet", "learned, rope or none");
}

std::int64_t size_or(const Json& value, const char* key, std::int64_t most, std::int64_t otherwise) {
    return value.has(key) ? value.at(key).integer(1, most) : otherwise;
}

bool flag_or(const Json& value, const char* key, bool otherwise) {
    return value.has(key) ? value.at(key).boolean() : otherwise;
}

template <class Enum>
Enum choice_or(const Json& value, const char* key, const std::vector<std::string>& names, Enum otherwise) {
    return value.has(key) ? static_cast<Enum>(value.at(key).one_of(names)) : otherwise;
}

const std::vector<std::string> positions_names{"learned", "rope", "none"};
const std::vector<std::string> norm_names{"layernorm", "rmsnorm"};
const std::vector<std::string> activation_names{"gelu", "silu"};

// gated_mlp left out: false, the plain MLP that `ffn_hidden_size` = 4 hidden goes with. The other
// defaults follow the family that this choice points to: Llama if gated, GPT-2 otherwise.
ModelSpec model_from_inline(const Json& value) {
    value.only_keys(inline_keys);
    refuse_unsupported(value);
    if (const Json format = value.get("format"); !format.is_null()) format.one_of({model_format});
    ModelSpec m;
    if (value.has("name")) m.name = value.at("name").string();
    m.layers = value.at("layers").integer(1, largest_layers);
    m.hidden_size = value.at("hidden_size").integer(1, largest_size);
    m.attention_heads = value.at("attention_heads").integer(1, largest_heads);
    m.kv_heads = size_or(value, "kv_heads", largest_heads, m.attention_heads);
    if (value.has("head_dim")) {
        m.head_dim = value.at("head_dim").integer(1, largest_size);
    } else {
        if (m.hidden_size % m.attention_heads != 0)
            value.at("attention_heads")
                .fail(std::to_string(m.attention_heads),
                      fmt::format("a divisor of hidden_size = {}, or head_dim to be given", m.hidden_size));
        m.head_dim = m.hidden_size / m.attention_heads;
    }
    m.gated_mlp = flag_or(value, "gated_mlp", false);
    m.ffn_hidden_size = size_or(value, "ffn_hidden_size", largest_size, 4 * m.hidden_size);
    m.vocab_size = value.at("vocab_size").integer(1, largest_size);
    m.positions = choice_or(value, "positions", positions_names, m.gated_mlp ? Positions::rope : Positions::learned);
    m.norm = choice_or(value, "norm", norm_names, m.gated_mlp ? Norm::rmsnorm : Norm::layernorm);
    m.activation = choice_or(value, "activation", activation_names, m.gated_mlp ? Activation::silu : Activation::gelu);
    m.bias = flag_or(value, "bias", !m.gated_mlp);
    m.tied_embeddings = flag_or(value, "tied_embeddings", !m.gated_mlp);
    m.max_positions = size_or(value, "max_positions", largest_size, m.positions == Positions::learned ? 1024 : 131072);
    if (value.has("norm_epsilon")) m.norm_epsilon = value.at("norm_epsilon").number(smallest_epsilon, largest_epsilon);
    m.attention_bias = flag_or(value, "attention_bias", false);
    if (value.has("rope_theta")) m.rope_theta = value.at("rope_theta").number(1, largest_theta);
    return m;
}

ModelSpec model_from_object(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a model: an object, a preset's name or a file name");
    const auto own = [&](const char* key) { return value.has(key); };
    if (!own("model_type") && !own("layers") && !own("hidden_size") && !own("attention_heads"))
        value.fail("an object with neither model_type nor layers",
                   "a Hugging Face config.json (model_type) or foretrain's own form (layers, hidden_size, ...)");
    ModelSpec m = value.has("model_type") ? model_from_hugging_face(value) : model_from_inline(value);
    if (m.name.empty())
        m.name =
            names_a_file(value.file()) ? std::filesystem::path(value.file()).stem().string() : std::string("model");
    require_sound(m, value);
    return m;
}

ModelSpec preset_named(const std::string& name, const Json& where) {
    for (const Preset& p : models_presets())
        if (p.name == name) return model_from_object(Json::parse(p.text, "preset " + name));
    const std::vector<std::string> names = model_preset_names();
    where.fail(where.found(), fmt::format("a preset ({}), an object or a file name", fmt::join(names, ", ")),
               nearest(name.substr(0, 100), names));
}

// Bounds the parameters in floating point first: the exact count of a slip would not fit in 64 bits.
double rough_count(const ModelSpec& m) {
    const double h = static_cast<double>(m.hidden_size);
    const double layer = h * static_cast<double>(m.qkv_size() + m.query_size() + m.fc1_size() + m.ffn_hidden_size);
    return layer * static_cast<double>(m.layers) + 2 * h * static_cast<double>(m.vocab_size + m.max_positions);
}

}  // namespace

void require_sound(const ModelSpec& m, const Json& where) {
    const auto refuse = [&](const char* field, std::string found, std::string expected) {
        throw UserError({.file = where.file(),
                         .field = where.path().empty() ? field : where.path() + "." + field,
                         .found = std::move(found),
                         .expected = std::move(expected)});
    };
    if (m.layers > largest_layers)
        refuse("layers", std::to_string(m.layers), fmt::format("at most {}", largest_layers));
    if (m.attention_heads > largest_heads)
        refuse("attention_heads", std::to_string(m.attention_heads), fmt::format("at most {}", largest_heads));
    if (m.kv_heads > m.attention_heads || m.attention_heads % m.kv_heads != 0)
        refuse("kv_heads", std::to_string(m.kv_heads),
               fmt::format("a divisor of attention_heads = {}", m.attention_heads));
    if (m.head_dim > largest_size / m.attention_heads)
        refuse("head_dim", std::to_string(m.head_dim), fmt::format("all heads together at most {}", largest_size));
    if (m.positions == Positions::rope && m.head_dim % 2 != 0)
        refuse("head_dim", std::to_string(m.head_dim), "an even number: rotary positions turn pairs");
    if (m.gated_mlp != (m.activation == Activation::silu))
        refuse("activation", m.gated_mlp ? "gelu" : "silu",
               m.gated_mlp ? "silu with a gated MLP: others are not supported"
                           : "gelu with a plain MLP: others are not supported");
    if (rough_count(m) > static_cast<double>(largest_count))
        refuse("hidden_size", fmt::format("a model of {:.1e} parameters", rough_count(m)),
               fmt::format("at most {:.1e}", static_cast<double>(largest_count)));
}

ModelSpec read_model(const std::string& name_or_file) {
    if (names_a_file(name_or_file)) return model_from_object(Json::parse_file(name_or_file));
    return preset_named(name_or_file, Json(name_or_file));
}

ModelSpec model_from_json(const Json& value) {
    if (!value.is_string()) return model_from_object(value);
    const std::string name = value.string();
    if (!names_a_file(name)) return preset_named(name, value);
    return model_from_object(Json::parse_file(beside(value.file(), name)));
}

Json model_to_json(const ModelSpec& m) {
    Json out = Json::object();
    return out.set("format", model_format)
        .set("name", m.name)
        .set("layers", m.layers)
        .set("hidden_size", m.hidden_size)
        .set("attention_heads", m.attention_heads)
        .set("kv_heads", m.kv_heads)
        .set("head_dim", m.head_dim)
        .set("ffn_hidden_size", m.ffn_hidden_size)
        .set("gated_mlp", m.gated_mlp)
        .set("vocab_size", m.vocab_size)
        .set("tied_embeddings", m.tied_embeddings)
        .set("positions", positions_names[static_cast<std::size_t>(m.positions)])
        .set("max_positions", m.max_positions)
        .set("norm", norm_names[static_cast<std::size_t>(m.norm)])
        .set("norm_epsilon", m.norm_epsilon)
        .set("activation", activation_names[static_cast<std::size_t>(m.activation)])
        .set("bias", m.bias)
        .set("attention_bias", m.attention_bias)
        .set("rope_theta", m.rope_theta);
}

std::vector<std::string> model_preset_names() {
    std::vector<std::string> names;
    for (const Preset& p : models_presets()) names.emplace_back(p.name);
    return names;
}

}  // namespace foretrain
