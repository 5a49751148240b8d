// Times work as the engine would run it: on one stream for each core, all at once, each call over
// operands that the calls before have pushed out of the inner caches.
//
//   KernelBench bench(cpu_kernels(), {.cores = 2, .seconds_per_case = 0.03});
//   double us = bench.measure(kernel_case);
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "exec/calibrate.h"
#include "exec/calibrate_cases.h"
#include "exec/cpu_device.h"

namespace foretrain {

double median(std::vector<double> values);

class KernelBench {
public:
    KernelBench(const KernelTable& kernels, const MeasureOptions& options);

    // Microseconds a call, with what a stream needs between two: median over calls, mean over cores.
    // Where other programs hold the cores for longer than that, the processor time of a call.
    double measure(const KernelCase& kernel_case);
    double measure_fill(Bytes bytes);
    double measure_copy(Bytes bytes);  // of so many bytes each way

private:
    struct Core {
        std::unique_ptr<CpuDevice> device;
        CpuStream* stream = nullptr;
        std::byte* arena = nullptr;
        // Operands of call i: entry i modulo their number.
        std::vector<std::array<void*, Instruction::max_operands>> operands;
        std::vector<Span> spans;
        double busy_begin = 0, busy_end = 0;  // processor time of the stream's thread, microseconds
        double us = 0;
    };
    // Enqueues call number `i`.
    using Call = std::function<void(Core& core, std::size_t i)>;

    void lay_out(Core& core, const std::vector<CaseOperand>& operands) const;
    void run(std::size_t calls, const Call& call);
    double repeat(const Call& call);

    MeasureOptions options_;
    std::vector<Core> cores_;
    std::atomic<bool> gate_{false};
};

}  // namespace foretrain
