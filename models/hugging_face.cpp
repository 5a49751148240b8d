#include "models/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "models/model_types.h"

namespace foretrain {

namespace {

// transformers keeps the path that the model was loaded from; else the file or its folder is named
// after the model.
std::string name_from(const Json& config) {
    if (const Json path = config.get("_name_or_path"); path.is_string() && !path.string().empty()) {
        const std::string name = std::filesystem::path(path.string()).filename().string();
        if (!name.empty() && name != ".") return name;
    }
    const std::filesystem::path file(config.file());
    if (file.stem() != "config") return file.stem().string();
    const std::string folder = file.parent_path().filename().string();
    return folder.empty() || folder == "." || folder == ".." ? config.at("model_type").string() : folder;
}

// What kind of model this is, as far as its keys and its name tell, where it is none that foretrain plans; "" of
// a type that may be a slip of the pen.
std::string kind_of(const Json& config) {
    constexpr const char* mixture = ", a mixture of experts of a type that is not supported yet";
    for (const char* experts : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"})
        if (config.has(experts)) return mixture;
    if (config.get("ffn_config").has("moe_num_experts")) return mixture;
    if (config.has("kv_lora_rank")) return ", with latent attention of a type that is not supported yet";
    const std::string type = config.at("model_type").string();
    const auto called = [&](std::initializer_list<std::string_view> parts) {
        return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return type.find(p) != type.npos; });
    };
    if (called({"moe", "mixtral", "deepseek", "dbrx", "jetmoe", "arctic"})) return mixture;
    if (called({"mamba", "rwkv", "jamba", "recurrent", "zamba"})) return ", a recurrent model, which is not supported";
    if (config.has("vision_config") || called({"vit", "clip", "_vl", "llava", "vision", "whisper", "wav2vec"}))
        return ", a model of images or sound, which is not supported";
    if (config.get("is_encoder_decoder").is_boolean() || type == "t5" || called({"bert", "mt5", "bart", "electra"}))
        return ", a model with an encoder, which is not supported";
    return "";
}

[[noreturn]] void refuse_type(const Json& config, const std::string& around) {
    const std::string type = config.at("model_type").string();
    const std::vector<std::string> types = supported_model_types();
    const std::string kind = kind_of(config);
    // Another class's nearest name is no way out of this one.
    config.at("model_type")
        .fail(fmt::format("\"{}\"{}{}", type, around, kind.empty() ? ", which is not supported" : kind),
              fmt::format("one of the {} types of language models that `foretrain models` lists", types.size()),
              kind.empty() ? nearest(type.substr(0, 100), types) : "");
}

bool ends_in_head(const std::string& architecture, bool sees) {
    for (const char* ending : {"ForCausalLM", "LMHeadModel", "LMHeadCustomModel"})
        if (architecture.ends_with(ending)) return true;
    return sees && architecture.ends_with("ForConditionalGeneration");
}

// Encoders, classifiers and reward models have the keys of a language model, but not its head.
void require_language_model(const Json& config) {
    if (config.has("is_encoder_decoder") && config.at("is_encoder_decoder").boolean())
        config.at("is_encoder_decoder").fail("true", "false: a decoder alone");
    for (const auto& [key, why] : {std::pair{"add_cross_attention", "false: cross-attention is not supported"},
                                   {"cross_attention_layers", "none: cross-attention is not supported"}})
        if (const Json value = config.get(key); value.is_array() || (value.is_boolean() && value.boolean()))
            value.fail(value.found(), why);
    if (const Json causal = config.get("is_causal"); causal.is_boolean() && !causal.boolean())
        causal.fail("false", "true: attention to later tokens is not supported");
    if (config.get("auto_map").has("AutoModelForCausalLM") || !config.has("architectures")) return;
    const std::vector<Json> architectures = config.at("architectures").items();
    for (const Json& a : architectures)
        if (ends_in_head(a.string(), config.has("vision_config"))) return;
    if (architectures.empty()) return;
    architectures.front().fail("\"" + architectures.front().string() + "\", which has no language-model head",
                               "an architecture that ends in ForCausalLM, or the key left out to plan the "
                               "language model of the same body");
}

ModelSpec read_text_model(const ModelType& type, const Json& config, const Json& outer) {
    ConfigReader reader(config, outer);
    ModelSpec m;
    type.read(reader, m);
    std::vector<std::string_view> known = type.ignorable;
    known.insert(known.end(), {"is_encoder_decoder", "add_cross_attention", "is_causal"});
    if (reader.has("quantization_config"))
        reader.note("its weights are stored quantised; planned in the precision of the training");
    reader.refuse_unread(known);
    m.note = reader.notes();
    return m;
}

// The text model inside a larger one.
ModelSpec read_nested(const Json& config, const Json& text) {
    const std::string type = config.at("model_type").string();
    const std::string inner = text.at("model_type").string();
    const ModelType* known = find_model_type(inner);
    if (known == nullptr) refuse_type(text, fmt::format(" inside \"{}\"", type));
    ModelSpec m = read_text_model(*known, text, config);
    const std::string note = fmt::format("the language model of a {}: the rest is not planned", type);
    m.note = m.note.empty() ? note : note + "; " + m.note;
    return m;
}

}  // namespace

std::vector<std::string> supported_model_types() {
    std::vector<std::string> names;
    for (const std::span<const ModelType> types : {llama_types(), gpt_types(), moe_types()})
        for (const ModelType& t : types) names.emplace_back(t.name);
    std::sort(names.begin(), names.end());
    return names;
}

ModelSpec model_from_hugging_face(const Json& config) {
    const ModelType* type = find_model_type(config.at("model_type").string());
    const Json text = config.get("text_config");
    ModelSpec m;
    if (text.has("model_type")) {
        m = read_nested(config, text);
    } else {
        if (type == nullptr) refuse_type(config, "");
        require_language_model(config);
        m = read_text_model(*type, config, Json());
    }
    m.name = name_from(config);
    return m;
}

}  // namespace foretrain
