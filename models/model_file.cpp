#include "models/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_name.h"
#include "base/preset.h"
#include "models/expert_fields.h"
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
                                           "parameters",
                                           "active_parameters",
                                           "sources",
                                           "moe",
                                           "mla",
                                           "sliding_window",
                                           "projection_bias",
                                           "mlp_bias",
                                           "head_bias",
                                           "norm_bias",
                                           "block",
                                           "query_key_norm",
                                           "post_norms",
                                           "embedding_norm",
                                           "attention_sinks",
                                           "rotary_dim",
                                           "position_offset",
                                           "elementwise_scaling",
                                           "note"};

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

const std::vector<std::string> positions_names{"learned", "rope", "none", "alibi"};
const std::vector<std::string> norm_names{"layernorm", "rmsnorm"};
const std::vector<std::string> activation_names{"gelu", "silu", "relu", "squared_relu"};
const std::vector<std::string> block_names{"sequential", "parallel", "parallel_shared_norm"};
const std::vector<std::string> query_key_norm_names{"none", "shared", "per_head"};

template <class Enum>
const std::string& name_in(const std::vector<std::string>& names, Enum value) {
    return names[static_cast<std::size_t>(value)];
}

// The fields that most models leave at their defaults.
void read_rare_fields(const Json& value, ModelSpec& m) {
    m.projection_bias = flag_or(value, "projection_bias", false);
    m.mlp_bias = flag_or(value, "mlp_bias", false);
    m.head_bias = flag_or(value, "head_bias", false);
    m.norm_bias = flag_or(value, "norm_bias", true);
    m.block = choice_or(value, "block", block_names, Block::sequential);
    m.query_key_norm = choice_or(value, "query_key_norm", query_key_norm_names, QueryKeyNorm::none);
    m.post_norms = flag_or(value, "post_norms", false);
    m.embedding_norm = flag_or(value, "embedding_norm", false);
    m.attention_sinks = flag_or(value, "attention_sinks", false);
    if (value.has("rotary_dim")) m.rotary_dim = value.at("rotary_dim").integer(0, largest_size);
    if (value.has("position_offset")) m.position_offset = value.at("position_offset").integer(0, largest_size);
    if (value.has("sliding_window")) {
        const Json window = value.at("sliding_window");
        window.only_keys({"size", "full_every"});
        m.sliding_window.size = window.at("size").integer(1, largest_size);
        if (window.has("full_every")) m.sliding_window.full_every = window.at("full_every").integer(0, largest_layers);
    }
    m.elementwise_scaling = flag_or(value, "elementwise_scaling", false);
    if (value.has("note")) m.note = value.at("note").string();
}

void write_rare_fields(const ModelSpec& m, Json& out) {
    const ModelSpec usual;
    const auto set = [&](const char* key, const auto& field, const auto& otherwise) {
        if (field != otherwise) out.set(key, field);
    };
    set("projection_bias", m.projection_bias, usual.projection_bias);
    set("mlp_bias", m.mlp_bias, usual.mlp_bias);
    set("head_bias", m.head_bias, usual.head_bias);
    set("norm_bias", m.norm_bias, usual.norm_bias);
    set("block", name_in(block_names, m.block), name_in(block_names, usual.block));
    set("query_key_norm", name_in(query_key_norm_names, m.query_key_norm),
        name_in(query_key_norm_names, usual.query_key_norm));
    set("post_norms", m.post_norms, usual.post_norms);
    set("embedding_norm", m.embedding_norm, usual.embedding_norm);
    set("attention_sinks", m.attention_sinks, usual.attention_sinks);
    set("rotary_dim", m.rotary_dim, usual.rotary_dim);
    set("position_offset", m.position_offset, usual.position_offset);
    if (m.sliding_window != usual.sliding_window)
        out.set("sliding_window",
                Json::object().set("size", m.sliding_window.size).set("full_every", m.sliding_window.full_every));
    if (m.has_experts()) out.set("moe", experts_to_json(m.moe));
    if (m.is_latent()) out.set("mla", latent_to_json(m.mla));
    set("elementwise_scaling", m.elementwise_scaling, usual.elementwise_scaling);
    set("note", m.note, usual.note);
}

// Where it is left out: all of the hidden size, shared out.
std::int64_t head_dim_of(const Json& value, const ModelSpec& m) {
    if (m.is_latent()) return m.mla.qk_size();
    if (m.hidden_size % m.attention_heads != 0)
        value.at("attention_heads")
            .fail(std::to_string(m.attention_heads),
                  fmt::format("a divisor of hidden_size = {}, or head_dim to be given", m.hidden_size));
    return m.hidden_size / m.attention_heads;
}

// gated_mlp left out: false, the plain MLP that `ffn_hidden_size` = 4 hidden goes with. The other
// defaults follow the family that this choice points to: Llama if gated, GPT-2 otherwise.
ModelSpec model_from_inline(const Json& value) {
    value.only_keys(inline_keys);
    if (const Json format = value.get("format"); !format.is_null()) format.one_of({model_format});
    ModelSpec m;
    if (value.has("name")) m.name = value.at("name").name();
    m.layers = value.at("layers").integer(1, largest_layers);
    m.hidden_size = value.at("hidden_size").integer(1, largest_size);
    m.attention_heads = value.at("attention_heads").integer(1, largest_heads);
    m.kv_heads = size_or(value, "kv_heads", largest_heads, m.attention_heads);
    if (value.has("mla")) m.mla = latent_from_json(value.at("mla"));
    if (value.has("moe")) m.moe = experts_from_json(value.at("moe"));
    m.head_dim = value.has("head_dim") ? value.at("head_dim").integer(1, largest_size) : head_dim_of(value, m);
    m.gated_mlp = flag_or(value, "gated_mlp", false);
    m.ffn_hidden_size = size_or(value, "ffn_hidden_size", largest_size, m.has_experts() ? 0 : 4 * m.hidden_size);
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
    read_rare_fields(value, m);
    return m;
}

// A config.json without its model_type: nothing says which tensors the sizes stand for.
void refuse_nameless_hugging_face(const Json& value) {
    if (value.has("model_type")) return;
    for (const char* key : {"architectures", "num_hidden_layers", "n_layer"})
        if (value.has(key))
            value.fail(fmt::format("no model_type beside {}", key),
                       "the model_type that a Hugging Face config.json carries, such as gpt2 or llama");
}

// `models show` prints the counts with the sizes, and they are taken back where they are still theirs.
void check_count(const Json& value, const char* key, std::int64_t count) {
    if (!value.has(key)) return;
    if (value.at(key).integer(1, largest_count) != count)
        value.at(key).fail(value.at(key).found(), fmt::format("{}, which the sizes give, or the key left out", count),
                           std::to_string(count));
}

void check_counts(const Json& value, const ModelSpec& m) {
    check_count(value, "parameters", parameter_count(m));
    check_count(value, "active_parameters", active_parameter_count(m));
}

ModelSpec model_from_object(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a model: an object, a preset's name or a file name");
    refuse_nameless_hugging_face(value);
    const auto own = [&](const char* key) { return value.has(key); };
    if (!own("model_type") && !own("layers") && !own("hidden_size") && !own("attention_heads"))
        value.fail("an object with neither model_type nor layers",
                   "a Hugging Face config.json (model_type) or foretrain's own form (layers, hidden_size, ...)");
    ModelSpec m = value.has("model_type") ? model_from_hugging_face(value) : model_from_inline(value);
    if (m.name.empty())
        m.name =
            names_a_file(value.file()) ? std::filesystem::path(value.file()).stem().string() : std::string("model");
    require_sound(m, value);
    if (!value.has("model_type")) check_counts(value, m);
    return m;
}

ModelSpec preset_named(const std::string& name, const Json& where) {
    for (const Preset& p : models_presets())
        if (p.name == name) return model_from_object(Json::parse(p.text, "preset " + name));
    const std::vector<std::string> names = model_preset_names();
    where.fail(where.found(),
               fmt::format("one of {} presets (`foretrain models` lists them){} or a file name", names.size(),
                           where.path().empty() ? "" : ", an object"),
               nearest(name.substr(0, 100), names));
}

// A folder as Hugging Face's tools download it. A preset's name stays the preset's, whatever folders there are.
bool is_download(const std::string& name) {
    std::error_code none;
    const auto presets = model_preset_names();
    return std::find(presets.begin(), presets.end(), name) == presets.end() &&
           std::filesystem::is_regular_file(std::filesystem::path(name) / "config.json", none);
}

ModelSpec model_at(const std::string& name, std::string path, const Json& where) {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) path = (std::filesystem::path(path) / "config.json").string();
    // "meta-llama/Llama-3.1-70B" is a name at Hugging Face, from which nothing is fetched.
    if (!std::filesystem::exists(path, none) && !name.ends_with(".json")) {
        const std::string last = std::filesystem::path(name).filename().string();
        const std::string preset = nearest(last.substr(0, 100), model_preset_names());
        if (!preset.empty()) where.fail(where.found(), "a preset, a file, or a folder with a config.json", preset);
    }
    return model_from_object(Json::parse_file(path));
}

// Bounds the parameters in floating point first: the exact count of a slip would not fit in 64 bits.
double rough_count(const ModelSpec& m) {
    const double h = static_cast<double>(m.hidden_size), gates = m.gated_mlp ? 2 : 1;
    const auto mlp = [&](std::int64_t ffn) { return (gates + 1) * h * static_cast<double>(ffn); };
    const double attention = h * static_cast<double>(m.qkv_size() + m.query_size());
    const double experts =
        static_cast<double>(m.moe.experts) * (mlp(m.moe.ffn_hidden_size) + h) + mlp(m.moe.shared_ffn);
    const double latents = static_cast<double>(m.mla.q_lora) * (h + static_cast<double>(m.query_size())) +
                           static_cast<double>(m.mla.kv_lora) * (h + 2 * static_cast<double>(m.query_size()));
    return (attention + mlp(m.ffn_hidden_size) + experts + latents) * static_cast<double>(m.layers) +
           2 * h * static_cast<double>(m.vocab_size + m.position_rows());
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
    if (m.positions == Positions::rope && m.rotary_dim == 0 && m.head_dim % 2 != 0)
        refuse("head_dim", std::to_string(m.head_dim), "an even number: rotary positions turn pairs");
    if (m.rotary_dim > m.head_dim || m.rotary_dim % 2 != 0)
        refuse("rotary_dim", std::to_string(m.rotary_dim),
               fmt::format("an even number up to head_dim = {}: rotary positions turn pairs", m.head_dim));
    if (m.head_bias && m.tied_embeddings)
        refuse("head_bias", "true", "false with tied_embeddings: a bias on a tied head is not supported");
    if (m.post_norms && (m.is_parallel() || m.projection_biased() || m.mlp_biased()))
        refuse("post_norms", "true",
               "false with a parallel block, and with biases on what they normalise: neither is supported");
    require_sound_experts(m, refuse);
    require_sound_latents(m, refuse);
    if (rough_count(m) > static_cast<double>(largest_count))
        refuse("hidden_size", fmt::format("a model of {:.1e} parameters", rough_count(m)),
               fmt::format("at most {:.1e}", static_cast<double>(largest_count)));
}

ModelSpec read_model(const std::string& name_or_file) {
    if (names_a_file(name_or_file) || is_download(name_or_file))
        return model_at(name_or_file, name_or_file, Json(name_or_file));
    return preset_named(name_or_file, Json(name_or_file));
}

ModelSpec model_from_json(const Json& value) {
    if (!value.is_string()) return model_from_object(value);
    const std::string name = value.string();
    if (!names_a_file(name)) return preset_named(name, value);
    return model_at(name, beside(value.file(), name), value);
}

Json model_to_json(const ModelSpec& m) {
    Json out = Json::object();
    out.set("format", model_format)
        .set("name", m.name)
        .set("layers", m.layers)
        .set("hidden_size", m.hidden_size)
        .set("attention_heads", m.attention_heads)
        .set("kv_heads", m.kv_heads)
        .set("head_dim", m.head_dim)
        .set("ffn_hidden_size", m.ffn_hidden_size == 0 ? Json() : Json(m.ffn_hidden_size))
        .set("gated_mlp", m.gated_mlp)
        .set("vocab_size", m.vocab_size)
        .set("tied_embeddings", m.tied_embeddings)
        .set("positions", name_in(positions_names, m.positions))
        .set("max_positions", m.max_positions)
        .set("norm", name_in(norm_names, m.norm))
        .set("norm_epsilon", m.norm_epsilon)
        .set("activation", name_in(activation_names, m.activation))
        .set("bias", m.bias)
        .set("attention_bias", m.attention_bias)
        .set("rope_theta", m.rope_theta);
    write_rare_fields(m, out);
    return out;
}

std::vector<std::string> model_preset_names() {
    std::vector<std::string> names;
    for (const Preset& p : models_presets()) names.emplace_back(p.name);
    return names;
}

}  // namespace foretrain
