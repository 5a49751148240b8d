#include "models/model_types.h"

#include <fmt/format.h>

#include <utility>

namespace foretrain {

namespace {

// The file's own list of layers, where it has one: which of them attend fully.
SlidingWindow pattern_of(const Json& layer_types, std::int64_t size, std::int64_t layers) {
    const std::vector<Json> items = layer_types.items();
    std::int64_t windowed = 0, every = 0;
    std::vector<bool> full;
    for (const Json& item : items) {
        full.push_back(item.one_of({"sliding_attention", "full_attention"}) == 1);
        windowed += full.back() ? 0 : 1;
        if (full.back() && every == 0) every = static_cast<std::int64_t>(full.size());
    }
    if (static_cast<std::int64_t>(items.size()) != layers)
        layer_types.fail(fmt::format("{} entries", items.size()), fmt::format("one for each of {} layers", layers));
    if (windowed == 0) return {};
    for (std::size_t i = 0; i < full.size(); ++i)
        if (full[i] != (every > 0 && static_cast<std::int64_t>(i + 1) % every == 0))
            layer_types.fail("layers in another order", "full attention on every n-th layer, or on none");
    return {size, every};
}

}  // namespace

const ModelType* find_model_type(std::string_view name) {
    for (const std::span<const ModelType> types : {llama_types(), gpt_types(), moe_types()})
        for (const ModelType& t : types)
            if (t.name == name) return &t;
    return nullptr;
}

std::int64_t even_head_dim(ConfigReader& c, ConfigReader::Key heads, const ModelSpec& m) {
    if (m.hidden_size % m.attention_heads != 0)
        c.get(heads).fail(fmt::format("{}", m.attention_heads),
                          fmt::format("a divisor of the hidden size {}", m.hidden_size));
    return m.hidden_size / m.attention_heads;
}

void read_sizes(ConfigReader& c, ModelSpec& m, const ClassDefaults& d) {
    m.hidden_size = c.size("hidden_size", d.hidden_size);
    m.layers = c.size("num_hidden_layers", d.layers);
    m.attention_heads = c.size("num_attention_heads", d.attention_heads);
    const bool all_heads = d.kv_heads == 0 || c.given("num_key_value_heads");  // null means so too
    m.kv_heads = c.size_or("num_key_value_heads", all_heads ? m.attention_heads : d.kv_heads);
    m.head_dim = c.has("head_dim") || d.head_dim > 0 ? c.size_or("head_dim", d.head_dim)
                                                     : even_head_dim(c, "num_attention_heads", m);
    m.ffn_hidden_size = c.size("intermediate_size", d.ffn_hidden_size);
    m.vocab_size = c.size("vocab_size", d.vocab_size);
    m.max_positions = c.size_or("max_position_embeddings", d.max_positions);
}

void read_activation(ConfigReader& c, ModelSpec& m, const std::vector<ConfigReader::Key>& keys, Activation otherwise) {
    static const std::vector<std::string> names{"gelu",        "gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                                                "gelu_python",  // told apart by rounding only
                                                "silu",        "swish",    "relu",      "relu2",
                                                "relu_squared"};
    using enum Activation;
    constexpr Activation activations[] = {gelu, gelu, gelu, gelu, gelu, silu, silu, relu, squared_relu, squared_relu};
    const ConfigReader::Key key = c.one_of(keys);
    m.activation = c.has(key) ? activations[c.at(key).one_of(names)] : otherwise;
}

void read_rope(ConfigReader& c, ModelSpec& m, const std::vector<ConfigReader::Key>& share, double otherwise) {
    const Json all = c.get("rope_parameters");  // where transformers 5 keeps what has to do with rope
    m.positions = Positions::rope;
    const ConfigReader::Key theta = c.one_of({"rope_theta", "rotary_emb_base"});
    if (c.has(theta))
        m.rope_theta = c.at(theta).number(1, largest_theta);
    else if (all.has("rope_theta"))
        m.rope_theta = all.at("rope_theta").number(1, largest_theta);
    const ConfigReader::Key key = share.empty() ? "partial_rotary_factor" : c.one_of(share);
    double part = otherwise;
    if (c.has(key))
        part = c.at(key).number(0, 1);
    else if (all.has("partial_rotary_factor"))
        part = all.at("partial_rotary_factor").number(0, 1);
    if (part >= 1) return;
    m.rotary_dim = static_cast<std::int64_t>(static_cast<double>(m.head_dim) * part);
    if (m.rotary_dim == 0) m.positions = Positions::none;
}

void read_gated(ConfigReader& c, ModelSpec& m, Activation otherwise, const std::vector<ConfigReader::Key>& keys) {
    m.gated_mlp = true;
    read_activation(c, m, keys, otherwise);
}

void read_rms(ConfigReader& c, ModelSpec& m, double epsilon) {
    m.norm = Norm::rmsnorm;
    m.norm_epsilon = c.epsilon_or("rms_norm_eps", epsilon);
}

void read_layernorm(ConfigReader& c, ModelSpec& m, ConfigReader::Key key) {
    m.norm = Norm::layernorm;
    m.norm_epsilon = c.epsilon_or(key, 1e-5);
}

void read_attention_biases(ConfigReader& c, ModelSpec& m, ConfigReader::Key key) {
    m.attention_bias = m.projection_bias = c.flag_or(key, false);
}

void read_sliding_window(ConfigReader& c, ModelSpec& m, std::int64_t otherwise, std::int64_t full_every) {
    const std::int64_t size = c.size_or("sliding_window", c.given("sliding_window") ? 0 : otherwise);
    full_every = c.size_or(c.one_of({"sliding_window_pattern", "_sliding_window_pattern"}), full_every);
    if (size == 0) return;
    m.sliding_window = {size, full_every};
    if (c.has("layer_types")) m.sliding_window = pattern_of(c.at("layer_types"), size, m.layers);
}

// Qwen's window is off unless asked for, and then on the upper layers.
void read_upper_window(ConfigReader& c, ModelSpec& m) {
    const std::int64_t from = c.has("max_window_layers") ? c.at("max_window_layers").integer(0, largest_layers) : 0;
    if (c.flag_or("use_sliding_window", false) && from < m.layers)
        c.at("use_sliding_window").fail("true", "false: a window on the upper layers only is not supported");
    c.get("sliding_window");
    if (c.has("layer_types") && pattern_of(c.at("layer_types"), 1, m.layers).size > 0)
        c.at("layer_types").fail("layers with a window", "full attention where use_sliding_window is false");
}

}  // namespace foretrain
