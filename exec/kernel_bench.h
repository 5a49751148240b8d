// Times work as the engine would run it: on one stream for each core, all at once. Before each call
// its operands are out of the inner caches, except the one that the kernel before would have just
// written.
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

    // Microseconds a call: median over calls, mean over cores, with what a stream needs between two
    // instructions. A call that another program interrupts counts by its processor time.
    double measure(const KernelCase& kernel_case);
    double measure_fill(Bytes bytes);
    double measure_copy(Bytes bytes);  // of so many bytes each way

    // Share of the time so far that other programs had the processors.
    double taken_by_others() const { return elapsed_ > 0 ? 1 - used_ / elapsed_ : 0; }

private:
    struct Core {
        std::unique_ptr<CpuDevice> device;
        CpuStream* stream = nullptr;
        std::byte* arena = nullptr;
        // Operands of call i: entry i modulo their number.
        std::vector<std::array<void*, Instruction::max_operands>> operands;
        std::vector<Span> spans;
        std::vector<double> busy;  // processor time of each call, microseconds
        double processor_before = 0;
    };
    // Enqueues call number `i`.
    using Call = std::function<void(Core& core, std::size_t i)>;

    void lay_out(Core& core, const std::vector<CaseOperand>& operands) const;
    double run(std::size_t calls, int hot, Bytes hot_bytes, const Call& call);
    double repeat(int hot, Bytes hot_bytes, const Call& call);

    MeasureOptions options_;
    std::vector<Core> cores_;
    std::atomic<bool> gate_{false};
    double between_ = 0;             // two instructions, microseconds
    double elapsed_ = 0, used_ = 0;  // over all calls: wall and processor time, microseconds
};

}  // namespace foretrain
