#include "hardware/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_name.h"
#include "hardware/device_file.h"
#include "hardware/fields.h"
#include "hardware/links.h"
#include "hardware/measured.h"
#include "hardware/short_form.h"

namespace foretrain {

namespace {

constexpr const char* cluster_format = "foretrain.cluster/1";

// Figures that a single device or a single node can do without.
void require_links(const ClusterSpec& c, const Json& value) {
    const auto at_least = [&](double least, double x, const char* field, const char* reason) {
        if (x >= least) return;
        throw UserError({.file = value.file(),
                         .field = value.path().empty() ? field : value.path() + "." + field,
                         .found = x == 0 ? "0, or left out" : fmt::format("{:g}", x),
                         .expected = fmt::format("{}, {:g} or more", reason, least)});
    };
    if (c.devices_per_node > 1) {
        at_least(slowest_gbps, c.domain.ring_gbps, "domain.ring_gbps", "the bandwidth between the devices of a node");
        at_least(slowest_gbps, c.domain.pairwise_gbps, "domain.pairwise_gbps",
                 "the bandwidth between two devices of a node");
    }
    if (c.domain.nvls_ranks > 0)
        at_least(slowest_gbps, c.domain.nvls_gbps, "domain.nvls_gbps", "the bandwidth of the switch's own reduction");
    if (c.nodes > 1) {
        at_least(1, c.network.nics_per_node, "network.nics_per_node", "adapters where there are several nodes");
        at_least(slowest_gbps * 1e9, c.network.nic.bytes_per_second, "network.nic_bytes_per_second",
                 "the line rate where there are several nodes");
    }
}

// A link by its name in the table, and what the file states otherwise. A machine's own link ("threads")
// need not be in the table if its bandwidth is stated.
void read_domain(const Json& json, ClusterSpec& c) {
    if (const Json link = json.get("link"); !link.is_null() && !link.string().empty()) {
        if (const auto known = find_domain_constants(link.string()))
            c.domain = *known;
        else if (json.has("ring_gbps"))
            c.domain = {};
        else
            c.domain = domain_constants(link);  // refuses it
    }
    FieldReader in(json);
    visit(in, c.domain);
    const Json measured = in.take("measured_bus_gbps");
    in.finish();
    if (!measured.is_null()) set_measured(c.domain, measured, c.devices_per_node);
}

void read_network(const Json& json, ClusterSpec& c) {
    const Json fabric = json.get("fabric");
    if (!fabric.is_null() && !fabric.string().empty()) c.network.constants = network_constants(fabric);
    FieldReader in(json);
    visit(in, c.network);
    const Json measured = in.take("measured_bus_gbps");
    in.finish();
    if (!measured.is_null()) set_measured(c.network, measured);
}

ClusterSpec cluster_from_object(const Json& value) {
    ClusterSpec c;
    c.default_framework = "megatron-lm";
    FieldReader in(value);
    if (const Json format = in.take("format"); !format.is_null()) format.one_of({cluster_format});
    const Json like = in.take("like");
    if (!like.is_null()) {
        c = cluster_from_object(hardware_preset(like.string(), cluster_format, like));
        c.name.clear();
    }
    visit(in, c);
    in.take("aliases");  // by which a preset is found
    if (like.is_null()) in.require("device");
    if (const Json device = in.take("device"); !device.is_null()) c.device = device_from_json(device);
    const Json domain = in.take("domain");
    const Json network = in.take("network");
    in.finish();
    if (!domain.is_null()) read_domain(domain, c);
    if (!network.is_null()) read_network(network, c);
    if (!like.is_null() && !network.is_null() && !value.get("sources").has("network"))
        c.sources["network"] = fmt::format("stated in {}; all else: {}", value.file(), c.sources["network"]);
    if (c.name.empty()) {  // a file of its own is called by its name, an object in a plan by its devices
        const bool own_file = value.path().empty() && names_a_file(value.file());
        c.name = own_file ? std::filesystem::path(value.file()).stem().string() : c.device.name;
    }
    if (c.devices_per_tray > 0 && c.devices_per_node % c.devices_per_tray != 0)
        value.at("devices_per_tray").fail(std::to_string(c.devices_per_tray), "a divisor of devices_per_node");
    if (c.devices_per_whole_node > 0 && c.devices_per_whole_node < c.devices_per_node)
        value.at("devices_per_whole_node")
            .fail(std::to_string(c.devices_per_whole_node), fmt::format("at least the {} in use", c.devices_per_node));
    require_links(c, value);
    return c;
}

ClusterSpec cluster_from_any_object(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a cluster: an object, a preset's name or a file name");
    return is_short_form(value) ? cluster_from_short_form(value) : cluster_from_object(value);
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
    if (nodes < 1 || nodes > most_nodes)
        throw UserError(
            {.field = "nodes", .found = std::to_string(nodes), .expected = fmt::format("1 to {}", most_nodes)});
    if (nodes > 1 && !has_network(cluster))
        throw UserError({.field = "nodes",
                         .found = std::to_string(nodes),
                         .expected = fmt::format("1: the cluster {} describes no network", cluster.name)});
    cluster.nodes = nodes;
}

namespace {

// How many devices of each rack a job takes that does not fill racks: as many trays as make all racks
// alike, as few racks as that allows. 0 if that would leave more than half of each unused.
std::int64_t devices_of_a_rack(std::int64_t devices, std::int64_t rack, std::int64_t tray) {
    for (std::int64_t n = rack; 2 * n >= rack; n -= tray)
        if (devices % n == 0) return n;
    return 0;
}

// What is used of each node, `devices` of all that it has. A tray has its own NICs.
void use_of_a_node(ClusterSpec& cluster, std::int64_t devices) {
    const std::int64_t nics = cluster.network.nics_per_node, before = cluster.devices_per_node;
    const int whole = cluster.devices_of_node();
    if (cluster.devices_per_tray > 0 && nics > 0)
        cluster.network.nics_per_node = static_cast<int>(std::max<std::int64_t>(1, nics * devices / before));
    cluster.devices_per_node = static_cast<int>(devices);
    cluster.devices_per_whole_node = devices == whole ? 0 : whole;
}

}  // namespace

void scale_to_devices(ClusterSpec& cluster, std::int64_t devices) {
    if (cluster.devices_per_whole_node > 0) use_of_a_node(cluster, cluster.devices_per_whole_node);
    if (devices > cluster.devices_per_node && !has_network(cluster))
        throw UserError({.field = "gpus",
                         .found = std::to_string(devices),
                         .expected = fmt::format("at most the {} of one node: the cluster {} describes no network",
                                                 cluster.devices_per_node, cluster.name)});
    if (devices < 1) throw UserError({.field = "gpus", .found = std::to_string(devices), .expected = "at least 1"});
    if (devices < cluster.devices_per_node) {
        use_of_a_node(cluster, devices);
        cluster.nodes = 1;
        return;
    }
    if (cluster.devices_per_tray > 0)
        if (const auto n = devices_of_a_rack(devices, cluster.devices_per_node, cluster.devices_per_tray); n > 0)
            use_of_a_node(cluster, n);
    const std::int64_t per_node = cluster.devices_per_node;
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
