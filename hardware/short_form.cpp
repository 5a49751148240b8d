#include "hardware/short_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file_name.h"
#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "hardware/fields.h"
#include "hardware/links.h"

namespace foretrain {

namespace {

// The system that stands for machines with this device.
ClusterSpec system_of(const Json& gpu) {
    DeviceSpec device = device_from_json(gpu);
    if (device.system.empty()) gpu.fail(gpu.found(), "a device whose file names the \"system\" that it stands in");
    ClusterSpec c = read_cluster(device.system);
    c.device = std::move(device);
    c.name = c.device.name;
    if (gpu.path() == "gpu" && names_a_file(gpu.file())) c.name = std::filesystem::path(gpu.file()).stem().string();
    return c;
}

// A node's total line rate as network cards: the preset's own cards where a whole number of them
// makes it up, else as many slower or faster ones.
void set_node_rate(NetworkSpec& network, double bytes_per_second) {
    const double cards = bytes_per_second / network.nic.bytes_per_second;
    if (network.nics_per_node == 0)
        network.nics_per_node = 1;
    else if (cards >= 1 && cards == std::floor(cards) && cards <= network.nics_per_node)
        network.nics_per_node = static_cast<int>(cards);
    network.nic = {bytes_per_second / network.nics_per_node};
}

// "nvlink" and "pcie" are the system's own link of that kind, whichever its generation.
void set_link(ClusterSpec& c, const Json& link) {
    const std::string name = link.string();
    if (name == c.domain.link || ((name == "nvlink" || name == "pcie") && c.domain.link.starts_with(name))) return;
    if (name == "nvlink" && c.domain.link == "nvl72") return;
    c.domain = domain_constants(link);
    c.devices_per_tray = 0;
}

}  // namespace

ClusterSpec cluster_from_short_form(const Json& value) {
    value.only_keys({"format", "name", "gpu", "gpus", "gpus_per_node", "intra_node", "inter_node_gbps_per_node",
                     "fabric", "oversubscription", "leaf_nodes"});
    ClusterSpec c = system_of(value.at("gpu"));
    if (value.has("name")) c.name = value.at("name").string();
    if (const Json link = value.get("intra_node"); !link.is_null()) set_link(c, link);

    // Where racks are one domain, the form's nodes are their trays.
    const int system_node = c.devices_per_node;
    int per_node = system_node;
    if (const Json n = value.get("gpus_per_node"); !n.is_null()) per_node = static_cast<int>(n.integer(1, 1 << 20));
    const bool trays = c.devices_per_tray > 0 && per_node == c.devices_per_tray;
    if (!trays) c.devices_per_node = per_node;

    if (const Json fabric = value.get("fabric"); !fabric.is_null()) {
        const double two_nodes = c.network.constants.two_node_tree_gbps;
        c.network.constants = network_constants(fabric);
        c.network.constants.two_node_tree_gbps = two_nodes;
        c.network.fabric = fabric.string();
    }
    if (const Json rate = value.get("inter_node_gbps_per_node"); !rate.is_null()) {
        const double nodes = trays ? static_cast<double>(system_node) / per_node : 1;
        set_node_rate(c.network, rate.number(1e-3, 1e7) * 1e9 / 8 * nodes);
    } else if (!trays && system_node > 8) {  // a part of a rack keeps its part of the NICs
        c.network.nics_per_node = std::max(1, c.network.nics_per_node * per_node / system_node);
    }
    if (const Json o = value.get("oversubscription"); !o.is_null()) c.network.oversubscription = o.number(1, 1e4);
    if (const Json n = value.get("leaf_nodes"); !n.is_null()) c.network.leaf_nodes = n.integer(0, most_nodes);

    const Json gpus = value.at("gpus");
    try {
        scale_to_devices(c, gpus.integer(1, most_nodes));
    } catch (const UserError& e) {  // which does not know the file
        gpus.fail(e.text().found, e.text().expected, e.text().suggestion);
    }
    if (c.nodes > 1 && !value.has("inter_node_gbps_per_node"))
        value.get("inter_node_gbps_per_node")
            .fail("nothing",
                  fmt::format("the line rate that leaves each node, in Gb/s, as there are {} nodes", c.nodes));
    return c;
}

}  // namespace foretrain
