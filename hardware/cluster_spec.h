// A cluster as numbers: one device, and nested levels of links around it.
//
// Level 0 is the node (the fast domain: NVLink, PCIe, or the threads of one process; all 72 GPUs of an
// NVL72 rack); level 1 is the network between nodes: a fat tree of which a leaf holds `leaf_nodes`
// nodes, thinner above the leaves by `oversubscription`. Bandwidths are per direction.
//
//   ClusterSpec c = read_cluster("dgx-h100");   // hardware/cluster_file.h
//   c.nodes = 2;  c.devices() == 16
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"
#include "hardware/calibration.h"

namespace foretrain {

// What is asked for a device by the hour, in US dollars; 0 to 0 where unknown.
struct PriceRange {
    double least = 0, most = 0;
    bool operator==(const PriceRange&) const = default;
};

struct DeviceSpec {
    std::string name;
    std::map<DType, FlopRate> peak;  // dense
    Bytes memory;                    // as the driver reports it
    Bandwidth memory_bandwidth;
    Bandwidth host_link;  // to host memory, each way, as copies reach it; 0: unknown
    int multiprocessors = 1;
    Bytes reserved;  // context, communicator buffers, library workspaces: not ours to use
    Calibration calibration;
    double power_watts = 0;  // most that it draws by itself; 0: unknown
    PriceRange price;
    std::string system;  // the cluster preset that it stands in where nothing else is said; may be empty
    std::map<std::string, std::string> sources;  // figure -> where it comes from

    // By which software's figures tell generations apart; at least 1.
    double dense_bf16_tera() const {
        const auto found = peak.find(DType::bf16);
        return found == peak.end() || found->second.tera() < 1 ? 1 : found->second.tera();
    }
    bool operator==(const DeviceSpec&) const = default;
};

// The links between nodes. Groups within a leaf have the full line rate. In a rail-optimised tree, where
// the i-th NICs of many nodes share a switch and collectives stay on their rail, a leaf holds as many
// nodes as that switch has ports down; in a plain one, that over the NICs of a node.
struct NetworkSpec {
    std::string fabric;  // "infiniband", "roce", "efa", ... (hardware/links.h); may be empty
    int nics_per_node = 0;
    Bandwidth nic;                // line rate of one, per direction
    double oversubscription = 1;  // above the leaves
    std::int64_t leaf_nodes = 0;  // 0: every node is a leaf of its own
    NetworkConstants constants;
    bool operator==(const NetworkSpec&) const = default;
};

// Ranks fill nodes in order: does every group of `span` neighbours, end to end, stand inside a node of so many devices?
constexpr bool stand_inside(std::int64_t span, std::int64_t devices_per_node) { return devices_per_node % span == 0; }

struct ClusterSpec {
    std::string name;
    DeviceSpec device;
    int devices_per_node = 1;
    int devices_per_whole_node = 0;  // where a job uses but a part of each node; 0: it uses all
    int devices_per_tray = 0;        // a rack whose domain may be used in trays of so many; 0: none
    std::int64_t nodes = 1;
    DomainConstants domain;  // inside a node
    NetworkSpec network;
    Bytes host_memory;                // per node
    double power_watts_per_node = 0;  // the whole node at most; 0: unknown
    PriceRange price;                 // per device, where this system's differs from the device's own
    std::string default_framework;    // "megatron-lm" for GPU presets, "foretrain" for a calibrated machine
    std::map<std::string, std::string> sources;

    bool operator==(const ClusterSpec&) const = default;

    std::int64_t devices() const { return nodes * devices_per_node; }
    bool holds_inside(std::int64_t span) const { return nodes == 1 || stand_inside(span, devices_per_node); }
    // Installed, in use or not.
    int devices_of_node() const { return devices_per_whole_node > 0 ? devices_per_whole_node : devices_per_node; }
};

}  // namespace foretrain
