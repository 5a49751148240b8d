// Measures this machine and describes it as a cluster: the kernels one by one, the communicators,
// the memory. What `calibrate` writes is what predictions of runs on this machine rest on.
//
// Everything is measured as a run would meet it: on streams of the engine, on all cores at once,
// over operands that the caches have partly forgotten. A device is one core; the node holds them
// all. First a plain table of measurements, then constants fitted to it by least squares of the
// relative error, in the forms of hardware/kernel_time.h and hardware/collective_time.h.
//
//   Measurements m = measure_machine(cpu_kernels(), {.cores = 2});
//   ClusterSpec here = fit_machine(m, {.command = "foretrain-exec calibrate", .cpu = ..., .date = ...});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "hardware/cluster_spec.h"
#include "kernels/kernel_table.h"
#include "plan/program/program.h"

namespace foretrain {

struct KernelMeasurement {
    KernelArgs args;
    double us = 0;  // median over calls, mean over cores
};

// A fill or a copy, which predictions cost as the kernel kind `cast`.
struct TrafficMeasurement {
    Bytes bytes;  // read and written
    double us = 0;
};

// `bytes` is the whole array, as nccl-tests counts it; a message's is itself.
struct CollectiveMeasurement {
    InstructionKind kind = InstructionKind::all_reduce;
    std::int64_t ranks = 2;
    Bytes bytes;
    double us = 0;
};

struct Measurements {
    int cores = 1;
    std::vector<KernelMeasurement> kernels;
    std::vector<TrafficMeasurement> traffic;
    std::vector<CollectiveMeasurement> collectives;
    Bandwidth memory;   // of one core while all of them stream
    Bytes host_memory;  // of the machine
    Bytes resident;     // of a process that holds the engine and no arena
};

struct MeasureOptions {
    int cores = 1;                                     // of the machine; that many threads run at once
    double seconds_per_case = 0.03;                    // a case's calls are repeated for about this long
    std::function<void(const std::string&)> progress;  // a line for each group of cases
};

Measurements measure_machine(const KernelTable& kernels, const MeasureOptions& options);

// Who measured what, and when.
struct Birthplace {
    std::string command;
    std::string cpu;
    std::string date;
};

ClusterSpec fit_machine(const Measurements& measurements, const Birthplace& born);

}  // namespace foretrain
