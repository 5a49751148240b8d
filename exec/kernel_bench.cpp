#include "exec/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "exec/counter_random.h"

namespace foretrain {

namespace {

// Calls rotate through this much memory: more than the private caches of a core hold, so that
// operands are about as far away as in a step, which touches other tensors in between.
constexpr std::int64_t footprint = 12 * MiB;
constexpr std::int64_t arena_bytes = 96 * MiB;
constexpr std::int64_t most_sets = 256;
constexpr std::int64_t alignment = 256;
constexpr std::size_t fewest_calls = 5, most_calls = 2000;

// Numbers near one: nothing overflows, vanishes, or becomes denormal when it is used again and again.
template <class T>
void fill_with_numbers(std::byte* to, std::int64_t elements) {
    auto* x = reinterpret_cast<T*>(to);
    for (std::int64_t i = 0; i < elements; ++i)
        x[i] = static_cast<T>(0.25 + 0.5 * static_cast<double>((i * 2654435761LL >> 7) & 1023) / 1024);
}

void fill_operand(std::byte* to, const CaseOperand& o) {
    if (o.type == DType::fp64) return fill_with_numbers<double>(to, o.elements);
    if (o.type == DType::fp32) return fill_with_numbers<float>(to, o.elements);
    FORETRAIN_CHECK(o.type == DType::int32, "an operand type that is not measured");
    const CounterRandom random = CounterRandom::keyed(1, 2);
    auto* x = reinterpret_cast<std::int32_t*>(to);
    for (std::int64_t i = 0; i < o.elements; ++i)
        x[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), o.below));
}

double processor_us() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

// Each call from its start to the next one's start.
double median_us(const std::vector<Span>& spans, std::size_t calls) {
    std::vector<double> us;
    for (std::size_t i = 0; i + 1 < calls; ++i) us.push_back(microseconds(spans[i + 1].start - spans[i].start));
    return median(std::move(us));
}

}  // namespace

double median(std::vector<double> values) {
    FORETRAIN_CHECK(!values.empty(), "the median of nothing");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

KernelBench::KernelBench(const KernelTable& kernels, const MeasureOptions& options) : options_(options) {
    for (int c = 0; c < options.cores; ++c) {
        Core& core = cores_.emplace_back();
        core.device = std::make_unique<CpuDevice>(kernels);
        core.stream = &core.device->make_stream("calibrate");
        core.arena = core.device->allocate(Bytes{arena_bytes});
        core.spans.resize(most_calls + 1);
    }
}

void KernelBench::lay_out(Core& core, const std::vector<CaseOperand>& operands) const {
    std::int64_t set = 0;
    for (const CaseOperand& o : operands) set += round_up(o.bytes(), alignment);
    FORETRAIN_CHECK(2 * set <= arena_bytes, "a case larger than the arena");
    const std::int64_t sets = std::clamp<std::int64_t>(footprint / set, 2, most_sets);
    core.operands.assign(static_cast<std::size_t>(sets), {});
    std::byte* at = core.arena;
    for (auto& addresses : core.operands) {
        for (std::size_t o = 0; o < operands.size(); ++o) {
            fill_operand(at, operands[o]);
            addresses[o] = at;
            at += round_up(operands[o].bytes(), alignment);
        }
    }
}

void KernelBench::run(std::size_t calls, const Call& call) {
    // All is enqueued before anything begins: the host must not be what is measured.
    gate_.store(false);
    for (Core& core : cores_) {
        core.stream->enqueue([gate = &gate_] {
            while (!gate->load()) std::this_thread::yield();
        });
        core.stream->enqueue([at = &core.busy_begin] { *at = processor_us(); });
        for (std::size_t i = 0; i <= calls; ++i) {
            core.stream->begin(core.spans[i]);
            if (i < calls) call(core, i);
            core.stream->end(core.spans[i]);
        }
        core.stream->enqueue([at = &core.busy_end] { *at = processor_us(); });
    }
    gate_.store(true);
    for (Core& core : cores_) core.device->synchronize();
    for (Core& core : cores_) {
        const double busy = (core.busy_end - core.busy_begin) / static_cast<double>(calls);
        core.us = std::min(median_us(core.spans, calls + 1), busy);
    }
}

double KernelBench::repeat(const Call& call) {
    run(fewest_calls, call);
    const double first = std::max(cores_.front().us, 0.1);
    const double wanted = options_.seconds_per_case * 1e6 / first;
    run(std::clamp(static_cast<std::size_t>(wanted), fewest_calls, most_calls), call);
    double sum = 0;
    for (const Core& core : cores_) sum += core.us;
    return sum / static_cast<double>(cores_.size());
}

double KernelBench::measure(const KernelCase& kernel_case) {
    for (Core& core : cores_) lay_out(core, kernel_case.operands);
    const std::size_t count = kernel_case.operands.size();
    return repeat([&](Core& core, std::size_t i) {
        const auto& addresses = core.operands[i % core.operands.size()];
        core.stream->kernel(kernel_case.args, {.operand = {addresses.data(), count}, .tensor_rank = 0, .step = 1});
    });
}

double KernelBench::measure_fill(Bytes bytes) {
    for (Core& core : cores_) lay_out(core, {{bytes.value / 4, DType::fp32}});
    return repeat(
        [&](Core& core, std::size_t i) { core.stream->fill(core.operands[i % core.operands.size()][0], bytes); });
}

double KernelBench::measure_copy(Bytes bytes) {
    for (Core& core : cores_) lay_out(core, {{bytes.value / 4, DType::fp32}, {bytes.value / 4, DType::fp32}});
    return repeat([&](Core& core, std::size_t i) {
        const auto& addresses = core.operands[i % core.operands.size()];
        core.stream->copy(addresses[1], addresses[0], bytes);
    });
}

}  // namespace foretrain
