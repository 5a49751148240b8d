#include "hardware/cluster_file.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file_name.h"
#include "hardware/device_file.h"
#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr const char* cluster_format = "foretrain.cluster/1";

// Figures that a single device or a single node can do without.
void require_links(const ClusterSpec& c, const Json& value) {
    const auto positive = [&](double x, const char* field, const char* reason) {
        if (x > 0) return;
        throw UserError({.file = value.file(),
                         .field = value.path().empty() ? field : value.path() + "." + field,
                         .found = "0, or left out",
                         .expected = reason});
    };
    if (c.devices_per_node > 1) {
        positive(c.domain.ring_gbps, "domain.ring_gbps", "the bandwidth between the devices of a node");
        positive(c.domain.pairwise_gbps, "domain.pairwise_gbps", "the bandwidth between two devices of a node");
    }
    if (c.domain.nvls_ranks > 0)
        positive(c.domain.nvls_gbps, "domain.nvls_gbps", "the bandwidth of the switch's own reduction");
    if (c.nodes > 1) {
        positive(c.network.nics_per_node, "network.nics_per_node", "at least 1 where there are several nodes");
        positive(c.network.nic.bytes_per_second, "network.nic_bytes_per_second",
                 "the line rate where there are several nodes");
    }
}

ClusterSpec cluster_from_object(const Json& value) {
    ClusterSpec c;
    c.default_framework = "megatron-lm";
    FieldReader in(value);
    if (const Json format = in.take("format"); !format.is_null()) format.one_of({cluster_format});
    visit(in, c);
    in.require("device");
    c.device = device_from_json(in.take("device"));
    const Json domain = in.take("domain");
    const Json network = in.take("network");
    in.finish();
    if (!domain.is_null()) {
        FieldReader inner(domain);
        visit(inner, c.domain);
        inner.finish();
    }
    if (!network.is_null()) {
        FieldReader inner(network);
        visit(inner, c.network);
        inner.finish();
    }
    if (c.name.empty()) c.name = c.device.name;
    require_links(c, value);
    return c;
}

// The preset whose device has this name: its links are those that this device is sold with.
std::optional<ClusterSpec> preset_with_device(const std::string& device) {
    for (const std::string& name : cluster_preset_names()) {
        ClusterSpec c = read_cluster(name);
        if (c.device.name == device) return c;
    }
    return std::nullopt;
}

// A node's total line rate as network cards: the preset's own cards where a whole number of them
// makes it up, else as many slower ones.
void set_node_rate(NetworkSpec& network, double bytes_per_second) {
    const double cards = bytes_per_second / network.nic.bytes_per_second;
    if (cards >= 1 && cards == std::floor(cards) && cards <= 1 << 16)
        network.nics_per_node = static_cast<int>(cards);
    else
        network.nic = {bytes_per_second / network.nics_per_node};
}

// {"gpu", "gpus", "gpus_per_node", "intra_node", "inter_node_gbps_per_node"}
ClusterSpec cluster_from_short_form(const Json& value) {
    value.only_keys({"format", "name", "gpu", "gpus", "gpus_per_node", "intra_node", "inter_node_gbps_per_node"});
    const Json gpu = value.at("gpu");
    std::optional<ClusterSpec> found = preset_with_device(gpu.string());
    if (!found) {
        const std::vector<std::string> names = device_preset_names();
        gpu.fail(gpu.found(), fmt::format("a device with a preset: {}", fmt::join(names, ", ")),
                 nearest(gpu.string().substr(0, 100), names));
    }
    ClusterSpec c = *found;
    if (value.has("name")) c.name = value.at("name").string();
    if (value.has("gpus_per_node"))
        c.devices_per_node = static_cast<int>(value.at("gpus_per_node").integer(1, 1 << 20));
    if (const Json link = value.get("intra_node"); !link.is_null()) {
        std::string general = c.domain.link;  // "nvlink3" is called "nvlink" too
        while (!general.empty() && general.back() >= '0' && general.back() <= '9') general.pop_back();
        link.one_of({c.domain.link, general});
    }
    if (const Json rate = value.get("inter_node_gbps_per_node"); !rate.is_null())
        set_node_rate(c.network, rate.number(1e-3, 1e7) * 1e9 / 8);
    const Json gpus = value.at("gpus");
    try {
        scale_to_devices(c, gpus.integer(1, std::int64_t{1} << 24));
    } catch (const UserError& e) {  // which does not know the file
        gpus.fail(e.text().found, e.text().expected, e.text().suggestion);
    }
    return c;
}

ClusterSpec cluster_from_any_object(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a cluster: an object, a preset's name or a file name");
    return value.has("gpu") ? cluster_from_short_form(value) : cluster_from_object(value);
}

bool has_network(const ClusterSpec& cluster) {
    return cluster.network.nics_per_node != 0 && cluster.network.nic.bytes_per_second != 0;
}

}  // namespace

ClusterSpec read_cluster(const std::string& name_or_file) {
    if (names_a_file(name_or_file)) return cluster_from_any_object(Json::parse_file(name_or_file));
    return cluster_from_any_object(hardware_preset(name_or_file, cluster_format, Json(name_or_file)));
}

ClusterSpec cluster_from_json(const Json& value) {
    if (!value.is_string()) return cluster_from_any_object(value);
    const std::string name = value.string();
    if (names_a_file(name)) return cluster_from_any_object(Json::parse_file(beside(value.file(), name)));
    return cluster_from_any_object(hardware_preset(name, cluster_format, value));
}

Json cluster_to_json(const ClusterSpec& cluster) {
    ClusterSpec c = cluster;
    Json domain = Json::object();
    FieldWriter domain_writer(domain);
    visit(domain_writer, c.domain);
    Json network = Json::object();
    FieldWriter network_writer(network);
    visit(network_writer, c.network);
    Json out = Json::object();
    out.set("format", cluster_format);
    FieldWriter w(out);
    visit(w, c);
    return out.set("device", device_to_json(c.device))
        .set("domain", std::move(domain))
        .set("network", std::move(network));
}

void scale_to_nodes(ClusterSpec& cluster, std::int64_t nodes) {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    if (nodes < 1 || nodes > most)
        throw UserError({.field = "nodes", .found = std::to_string(nodes), .expected = fmt::format("1 to {}", most)});
    if (nodes > 1 && !has_network(cluster))
        throw UserError({.field = "nodes",
                         .found = std::to_string(nodes),
                         .expected = fmt::format("1: the cluster {} describes no network", cluster.name)});
    cluster.nodes = nodes;
}

void scale_to_devices(ClusterSpec& cluster, std::int64_t devices) {
    const std::int64_t per_node = cluster.devices_per_node;
    if (devices > per_node && !has_network(cluster))
        throw UserError({.field = "gpus",
                         .found = std::to_string(devices),
                         .expected = fmt::format("at most the {} of one node: the cluster {} describes no network",
                                                 per_node, cluster.name)});
    if (devices < 1) throw UserError({.field = "gpus", .found = std::to_string(devices), .expected = "at least 1"});
    if (devices < per_node) {
        cluster.devices_per_node = static_cast<int>(devices);
        cluster.nodes = 1;
        return;
    }
    if (devices % per_node != 0)
        throw UserError({.field = "gpus",
                         .found = std::to_string(devices),
                         .expected = fmt::format("whole nodes of {}, or fewer than one node", per_node),
                         .suggestion = fmt::format("{} or {}", devices / per_node * per_node,
                                                   (devices / per_node + 1) * per_node)});
    scale_to_nodes(cluster, devices / per_node);
}

std::vector<std::string> cluster_preset_names() { return hardware_preset_names(cluster_format); }

}  // namespace foretrain
