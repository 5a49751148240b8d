#include "tests/sim/support/devices.h"

namespace foretrain::support {

namespace {

DeviceSpec device(const char* name, double tera, double gigabytes, int multiprocessors) {
    DeviceSpec d;
    d.name = name;
    d.peak[DType::bf16] = FlopRate::tera(tera);
    d.memory = Bytes{80 * GiB};
    d.memory_bandwidth = Bandwidth::gigabytes(gigabytes);
    d.multiprocessors = multiprocessors;
    return d;
}

ClusterSpec node_of_eight(const char* name, DeviceSpec d, double nic_gigabytes, std::int64_t nodes) {
    ClusterSpec c;
    c.name = name;
    c.device = std::move(d);
    c.devices_per_node = 8;
    c.nodes = nodes;
    c.network.nics_per_node = 8;
    c.network.nic = Bandwidth::gigabytes(nic_gigabytes);
    return c;
}

}  // namespace

ClusterSpec a100_cluster(std::int64_t nodes) {
    DeviceSpec d = device("a100", 312, 2039, 108);
    d.calibration.gemm = {{.dtype = DType::bf16,
                           .efficiency = 1.2692,
                           .intensity = 36.6915,
                           .tile_overhead_us = 1.8872,
                           .wave_quantisation = 0.9039,
                           .p = 3.4224,
                           .launch_us = 3.0999,
                           .sustained = 0.08,
                           .split_cost = 0.4432,
                           .epilogue = 0.5662}};
    d.calibration.attention = {.kernel = "flash2",
                               .forward = {{{64, 0.65}, {128, 0.703}}, 1.9, 1.05, 3},
                               .backward = {{{64, 0.553}, {128, 0.584}}, 13, 2, 3},
                               .born = {}};
    d.calibration.memory_bound = {.launch_us = 3, .efficiency = 0.82, .overrides = {}, .born = {}};
    ClusterSpec c = node_of_eight("a100", d, 25, nodes);
    c.domain = {.ring_gbps = 240,
                .a_us = 8.35,
                .s_us = 0.886,
                .d = 0.427,
                .ramp_us = 24,
                .simple_s_us = 4.0,
                .simple_from = Bytes{MiB / 2},
                .pairwise_gbps = 241,
                .pairwise_a_us = 10.3,
                .pairwise_p_us = 0,
                .pairwise_ramp_us = 25.4,
                .born = {}};
    return c;
}

ClusterSpec h100_cluster(std::int64_t nodes) {
    DeviceSpec d = device("h100", 989, 3350, 132);
    d.calibration.gemm = {{.dtype = DType::bf16,
                           .efficiency = 1.0421,
                           .intensity = 22.0113,
                           .tile_overhead_us = 0.4331,
                           .wave_quantisation = 0.0036,
                           .p = 3.7477,
                           .launch_us = 2.2993,
                           .sustained = 0.12,
                           .split_cost = 3.0098,
                           .epilogue = 0.3397}};
    d.calibration.attention = {.kernel = "flash2",
                               .forward = {{{64, 0.31}, {128, 0.354}}, 3.3, 1.05, 3},
                               .backward = {{{64, 0.306}, {128, 0.323}}, 8.6, 2, 3},
                               .born = {}};
    d.calibration.memory_bound = {.launch_us = 3, .efficiency = 0.88, .overrides = {}, .born = {}};
    ClusterSpec c = node_of_eight("h100", d, 50, nodes);
    c.domain = {.ring_gbps = 371,
                .a_us = 4.5,
                .s_us = 0.853,
                .d = 0.427,
                .ramp_us = 7.2,
                .simple_s_us = 5.0,
                .simple_from = Bytes{MiB},
                .nvls_ranks = 5,
                .nvls_gbps = 332,
                .nvls_a_us = 13.5,
                .nvls_ramp_us = 46,
                .pairwise_gbps = 313,
                .pairwise_a_us = 5.8,
                .pairwise_p_us = 5.5,
                .pairwise_ramp_us = 0.45,
                .born = {}};
    c.network.constants.two_node_tree_gbps = 490;
    return c;
}

ClusterSpec round_cluster(std::int64_t nodes) {
    DeviceSpec d = device("round", 1, 1, 1);
    d.peak[DType::fp32] = FlopRate::tera(1);
    d.calibration.gemm = {{.dtype = DType::fp32, .tiles = {{1, 1}}, .splits = {1}}};
    d.calibration.attention = {
        .kernel = "cpu", .forward = {{{64, 0.5}}, 0, 1, 0}, .backward = {{{64, 0.5}}, 0, 1, 0}, .born = {}};
    d.calibration.memory_bound = {.launch_us = 0, .efficiency = 1, .overrides = {}, .born = {}};
    ClusterSpec c = node_of_eight("round", d, 1, nodes);
    c.domain.ring_gbps = 1;
    c.domain.pairwise_gbps = 1;
    c.network.constants = {.efficiency = 1, .hop_us = 0, .l1_us = 0, .k_us = 0, .ramp_us = 0, .p2p_us = 0, .born = {}};
    c.network.constants.p2p_efficiency = 1;
    return c;
}

ClusterSpec without_sustained(ClusterSpec cluster) {
    for (GemmConstants& g : cluster.device.calibration.gemm) g.sustained = 0;
    return cluster;
}

}  // namespace foretrain::support
