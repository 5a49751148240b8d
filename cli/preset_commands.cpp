// `foretrain models` and `foretrain clusters`: what can be named on the command line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

#include "cli/options.h"
#include "cli/preset_show.h"
#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "hardware/links.h"
#include "models/hugging_face.h"
#include "models/model_file.h"
#include "models/parameters.h"
#include "reports/figures.h"
#include "reports/text_table.h"

namespace foretrain::cli {

namespace {

constexpr std::size_t columns = 100;

std::string number(std::int64_t n) { return fmt::format("{}", n); }

std::string list_of(const char* what, const std::vector<std::string>& names) {
    return wrapped(fmt::format("{}: {}", what, fmt::join(names, ", ")), 0, columns);
}

std::string_view name_of(Positions p) {
    switch (p) {
        case Positions::learned: return "learned";
        case Positions::rope: return "rope";
        case Positions::alibi: return "alibi";
        case Positions::none: return "none";
    }
    return "?";
}
std::string_view name_of(Norm n) { return n == Norm::layernorm ? "layernorm" : "rmsnorm"; }

std::string_view name_of(Activation a) {
    switch (a) {
        case Activation::gelu: return "GELU";
        case Activation::silu: return "SiLU";
        case Activation::relu: return "ReLU";
        case Activation::squared_relu: return "squared ReLU";
    }
    return "?";
}

std::string biases_of(const ModelSpec& m) {
    std::vector<std::string> places;
    for (const auto& [biased, place] : {std::pair{m.qkv_biased(), "q, k and v"},
                                        {m.projection_biased(), "projection"},
                                        {m.mlp_biased(), "MLP"},
                                        {m.head_bias, "head"}})
        if (biased) places.emplace_back(place);
    if (places.empty()) return "no";
    return m.bias && !m.head_bias ? "yes" : "of " + fmt::format("{}", fmt::join(places, ", "));
}

std::string window_of(const ModelSpec& m) {
    const SlidingWindow& w = m.sliding_window;
    if (w.full_every == 0) return fmt::format("{} tokens", w.size);
    return fmt::format("{} tokens, but on each layer whose number is a multiple of {}", w.size, w.full_every);
}

// What few models have, a line each.
void add_rare_rows(const ModelSpec& m, TextTable& t) {
    if (m.block != Block::sequential)
        t.row({"block", fmt::format("attention and MLP in parallel, behind {}",
                                    m.block == Block::parallel ? "a norm each" : "one norm")});
    if (m.query_key_norm != QueryKeyNorm::none)
        t.row({"query-key norm", m.query_key_norm == QueryKeyNorm::shared ? "one for all heads" : "one for each head"});
    if (m.post_norms) t.row({"post norms", "on the outputs of attention and MLP"});
    if (m.embedding_norm) t.row({"embedding", "normalised"});
    if (m.rotary_dim > 0) t.row({"rope", fmt::format("turns {} elements of {}", m.rotary_dim, m.head_dim)});
    if (m.sliding_window.size > 0) t.row({"sliding window", window_of(m)});
    if (m.attention_sinks) t.row({"sinks", "a learned score of each head beside its tokens'; not executed"});
    if (m.elementwise_scaling) t.row({"scaling", "some tensors are scaled or capped; not executed"});
}

std::string parameters_of(const ModelSpec& m) { return short_count(static_cast<double>(parameter_count(m))); }

std::string active_of(const ModelSpec& m) { return short_count(static_cast<double>(active_parameter_count(m))); }

// "2 of 8", of a layer.
std::string experts_of(const ModelSpec& m) { return fmt::format("{} of {}", m.moe.topk, m.moe.experts); }

std::int64_t width_of(const ModelSpec& m) { return m.has_experts() ? m.moe.ffn_hidden_size : m.ffn_hidden_size; }

std::string models_table() {
    TextTable t({"model", "total", "active", "layers", "hidden", "heads", "kv", "topk", "ffn", "vocab", "positions"});
    for (const std::string& name : sorted(model_preset_names)) {
        const ModelSpec m = read_model(name);
        t.row({name, parameters_of(m), m.has_experts() ? active_of(m) : "-", number(m.layers), number(m.hidden_size),
               number(m.attention_heads), m.is_latent() ? "mla" : number(m.kv_heads),
               m.has_experts() ? fmt::format("{}/{}", m.moe.topk, m.moe.experts) : "-", number(width_of(m)),
               number(m.vocab_size), std::string(name_of(m.positions))});
    }
    return t.text() +
           wrapped(
               "Parameters in total, and active ones, which a token meets: of the routed experts of a layer, those it "
               "is sent to. "
               "topk: of how many; ffn: the width of an MLP, or of one such expert; mla: latent attention.",
               0, columns) +
           "\n" + list_of("model_types of a Hugging Face config.json that are read", supported_model_types());
}

std::string attention_of(const ModelSpec& m) {
    const LatentAttention& a = m.mla;
    if (!m.is_latent())
        return fmt::format("{} heads of {}, {} key-value head{}", m.attention_heads, m.head_dim, m.kv_heads,
                           m.kv_heads == 1 ? "" : "s");
    return fmt::format("{} heads of {} + {} with rope, values of {}; latents of {}{}", m.attention_heads, a.qk_nope,
                       a.qk_rope, a.v_dim, a.kv_lora, a.q_lora > 0 ? fmt::format(", queries' of {}", a.q_lora) : "");
}

std::string activation_of(const ModelSpec& m) {
    return fmt::format("{}{}", name_of(m.activation), m.gated_mlp ? ", gated" : "");
}

std::string routed_of(const ModelSpec& m) {
    const MixtureOfExperts& moe = m.moe;
    std::string s = fmt::format("{}, each {} wide, {}", experts_of(m), moe.ffn_hidden_size, activation_of(m));
    if (m.expert_layers() < m.layers) s += fmt::format(", in {} of {} layers", m.expert_layers(), m.layers);
    if (moe.capacity_factor > 0) s += fmt::format("; capacity {:.3g}", moe.capacity_factor);
    return s + (moe.pad_to_capacity ? ", always full" : "");
}

// "46.70 B parameters (46 702 792 704), 12.88 B of them active"
std::string counts_of(const ModelSpec& m) {
    return fmt::format("{} parameters ({}){}", parameters_of(m), grouped(static_cast<double>(parameter_count(m))),
                       m.has_experts() ? fmt::format(", {} of them active", active_of(m)) : "");
}

std::string model_text(const ModelSpec& m) {
    TextTable t({"", ""}, 2);
    t.row({"layers", number(m.layers)});
    t.row({"hidden size", number(m.hidden_size)});
    t.row({"attention", attention_of(m)});
    if (m.expert_layers() < m.layers) t.row({"MLP", fmt::format("{}, {}", m.ffn_hidden_size, activation_of(m))});
    if (m.has_experts()) t.row({"experts", routed_of(m)});
    if (m.moe.shared_ffn > 0)
        t.row({"shared experts", fmt::format("{}{}", m.moe.shared_ffn, m.moe.shared_gate ? ", behind a gate" : "")});
    t.row({"vocabulary", fmt::format("{}{}", m.vocab_size, m.tied_embeddings ? ", tied embeddings" : "")});
    t.row({"positions", fmt::format("{}, up to {}", name_of(m.positions), m.max_positions)});
    t.row({"norm",
           fmt::format("{}{}", name_of(m.norm), m.norm == Norm::layernorm && !m.norm_bias ? " without bias" : "")});
    t.row({"biases", biases_of(m)});
    add_rare_rows(m, t);
    return fmt::format("{}: {}\n{}", m.name, counts_of(m), t.text(2)) +
           (m.note.empty() ? "" : wrapped("note: " + m.note, 2, columns));
}

Json model_json(const ModelSpec& m) {
    Json out = model_to_json(m).set("parameters", parameter_count(m));
    return m.has_experts() ? out.set("active_parameters", active_parameter_count(m)) : out;
}

std::string price_of(const PriceRange& p) {
    if (p.most <= 0) return "-";
    return p.least == p.most ? fmt::format("{:.2f}", p.most) : fmt::format("{:.2f}-{:.2f}", p.least, p.most);
}

PriceRange price(const ClusterSpec& c) { return c.price.most > 0 ? c.price : c.device.price; }

std::string network_of(const NetworkSpec& n) {
    if (n.nics_per_node == 0) return "-";
    return fmt::format("{} x {:.0f} Gb/s {}", n.nics_per_node, n.nic.gigabytes() * 8, n.fabric);
}

// Of 16-bit training: bf16 where the device has it.
std::string dense_peak(const DeviceSpec& device) {
    for (const DType type : {DType::bf16, DType::fp16})
        if (const auto peak = device.peak.find(type); peak != device.peak.end())
            return fmt::format("{:.4g}{}", peak->second.tera(), type == DType::bf16 ? " " : "*");
    return "- ";
}

// What fits a line; `show` has the rest.
std::string clusters_table() {
    TextTable t({"cluster", "device", "GPUs", "GiB", "TFLOP/s ", "GB/s", "link", "network", "USD/h"}, 2);
    for (const std::string& name : sorted(cluster_preset_names)) {
        const ClusterSpec c = read_cluster(name);
        const NetworkSpec& n = c.network;
        t.row({name, c.device.name, number(c.devices_per_node), fmt::format("{:.0f}", gibibytes(c.device.memory)),
               dense_peak(c.device), fmt::format("{:.0f}", c.device.memory_bandwidth.gigabytes()),
               fmt::format("{:.0f}", c.domain.ring_gbps),
               n.nics_per_node == 0 ? "-"
                                    : fmt::format("{}x{:.0f} {}", n.nics_per_node, n.nic.gigabytes() * 8,
                                                  n.fabric == "infiniband" ? "IB" : n.fabric),
               price_of(price(c))});
    }
    return t.text() +
           wrapped(
               "GPUs of a node; TFLOP/s dense in bf16 (* fp16); GB/s of a GPU's memory; link: GB/s in a ring "
               "inside a node; network adapters of a node, each in Gb/s, IB for infiniband; USD an hour and "
               "GPU. `foretrain clusters show NAME` has sources, half-widths and the rest.",
               0, columns) +
           "\n" + list_of("devices", sorted(device_preset_names)) + list_of("links", domain_links()) +
           list_of("fabrics", fabrics());
}

std::string sources_text(const std::map<std::string, std::string>& sources) {
    std::string s;
    for (const auto& [figure_name, source] : sources) s += wrapped(figure_name + ": " + source, 4, columns);
    return s;
}

std::string power_of(const ClusterSpec& c) {
    std::string s = fmt::format("{:.0f} W a device", c.device.power_watts);
    if (c.power_watts_per_node > 0) s += fmt::format(", {:.1f} kW a node", c.power_watts_per_node * 1e-3);
    return s;
}

// Where the constants come from, and how far each part can be trusted.
std::string constants_text(const ClusterSpec& c) {
    std::string s;
    const auto line = [&](std::string_view part, double spread, const BirthCertificate& born) {
        if (born.source.empty()) return;
        s += wrapped(
            fmt::format("{}: {}{}", part, spread > 0 ? fmt::format("+-{:.0f} %; ", 100 * spread) : "", born.source), 4,
            columns);
    };
    const Calibration& k = c.device.calibration;
    for (const GemmConstants& g : k.gemm) line(fmt::format("{} GEMM", foretrain::name_of(g.dtype)), g.spread, g.born);
    line("attention", k.attention.spread, k.attention.born);
    line("memory-bound kernels", k.memory_bound.spread, k.memory_bound.born);
    line("links in a node", c.domain.spread, c.domain.born);
    line("network", c.network.constants.spread, c.network.constants.born);
    return s;
}

std::string oversubscription_of(const NetworkSpec& n) {
    if (n.oversubscription == 1) return "not oversubscribed";
    return fmt::format("{}oversubscribed {:.3g} times",
                       n.leaf_nodes > 0 ? fmt::format("beyond {} nodes ", n.leaf_nodes) : "", n.oversubscription);
}

std::string cluster_text(const ClusterSpec& c) {
    std::vector<std::string> peaks;
    for (const auto& [type, rate] : c.device.peak)
        peaks.push_back(fmt::format("{} {:.4g}", foretrain::name_of(type), rate.tera()));
    TextTable t({"", ""}, 2);
    t.row({"devices",
           fmt::format("{} node{} of {} {}", c.nodes, c.nodes == 1 ? "" : "s", c.devices_per_node, c.device.name)});
    t.row({"dense peak", fmt::format("{} TFLOP/s", fmt::join(peaks, ", "))});
    t.row({"memory", fmt::format("{}, {:.0f} GB/s; {} reserved", figure(c.device.memory),
                                 c.device.memory_bandwidth.gigabytes(), figure(c.device.reserved))});
    t.row({"in a node", fmt::format("{}{:.0f} GB/s in a ring", c.domain.link.empty() ? "" : c.domain.link + ", ",
                                    c.domain.ring_gbps)});
    if (c.network.nics_per_node > 0)
        t.row({"network", fmt::format("{} a node, {}", network_of(c.network), oversubscription_of(c.network))});
    if (c.device.power_watts > 0) t.row({"power", power_of(c)});
    if (price(c).most > 0) t.row({"price", fmt::format("{} USD an hour and device", price_of(price(c)))});
    t.row({"framework", c.default_framework});
    std::string s = c.name + "\n" + t.text(2);
    if (!c.device.sources.empty() || !c.sources.empty()) s += "  sources\n";
    s += sources_text(c.device.sources) + sources_text(c.sources);
    const std::string constants = constants_text(c);
    return constants.empty() ? s : s + "  constants (+-: four times of five)\n" + constants;
}

}  // namespace

int run_models(const Arguments& arguments, Console& console) {
    return show(Presets<ModelSpec>{"models", "model", "NAME|FILE|DIR", model_preset_names, read_model, models_table,
                                   model_text, model_json},
                arguments, console);
}

int run_clusters(const Arguments& arguments, Console& console) {
    return show(Presets<ClusterSpec>{"clusters", "cluster", "NAME|FILE", cluster_preset_names, read_cluster,
                                     clusters_table, cluster_text, cluster_to_json},
                arguments, console);
}

}  // namespace foretrain::cli
