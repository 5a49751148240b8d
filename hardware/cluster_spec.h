// A cluster as numbers: one device, and nested levels of links around it.
//
// Level 0 is the node (the fast domain: NVLink, or the threads of one process); level 1 is the
// network between nodes. Bandwidths are per direction.
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

struct DeviceSpec {
    std::string name;
    std::map<DType, FlopRate> peak;  // dense
    Bytes memory;                    // as the driver reports it
    Bandwidth memory_bandwidth;
    int multiprocessors = 1;
    Bytes reserved;  // context, communicator buffers, library workspaces: not ours to use
    Calibration calibration;
    std::map<std::string, std::string> sources;  // figure -> where it comes from
    bool operator==(const DeviceSpec&) const = default;
};

// The links between nodes.
struct NetworkSpec {
    int nics_per_node = 0;
    Bandwidth nic;  // line rate of one, per direction
    double oversubscription = 1;
    NetworkConstants constants;
    bool operator==(const NetworkSpec&) const = default;
};

struct ClusterSpec {
    std::string name;
    DeviceSpec device;
    int devices_per_node = 1;
    std::int64_t nodes = 1;
    DomainConstants domain;  // inside a node
    NetworkSpec network;
    Bytes host_memory;                 // per node
    std::string default_framework;     // "megatron-lm" for GPU presets, "foretrain" for a calibrated machine
    std::map<std::string, std::string> sources;

    bool operator==(const ClusterSpec&) const = default;

    std::int64_t devices() const { return nodes * devices_per_node; }
};

}  // namespace foretrain
