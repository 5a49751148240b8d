#include "exec/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <thread>

#include "base/counter_random.h"
#include "base/error.h"

namespace foretrain {

namespace {

// Calls rotate through this much memory: more than the caches of a core hold, so that operands are
// about as far away as in a step, which touches other tensors in between.
constexpr std::int64_t footprint = 32 * MiB;
constexpr std::int64_t arena_bytes = 96 * MiB;
constexpr std::int64_t most_sets = 1024;
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

// Reads what the kernel before would have written.
void touch(const void* operand, std::int64_t bytes) {
    const auto* at = static_cast<const volatile std::byte*>(operand);
    for (std::int64_t i = 0; i < bytes; i += 64) static_cast<void>(at[i]);
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
        core.stream = &core.device->make_stream("calibrate", StreamUse::compute);
        core.arena = core.device->allocate(Bytes{arena_bytes});
        core.spans.resize(most_calls);
        core.busy.resize(most_calls);
    }
    // Nothing, many times: from one begin to the next, less what the clock for busy time costs.
    CpuStream& stream = *cores_.front().stream;
    std::vector<Span>& spans = cores_.front().spans;
    for (Span& span : spans) {
        stream.begin(span);
        stream.enqueue([] {});
        stream.end(span);
    }
    stream.synchronize();
    std::vector<double> us;
    for (std::size_t i = 0; i + 1 < spans.size(); ++i) us.push_back(microseconds(spans[i + 1].start - spans[i].start));
    between_ = median(std::move(us));
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

double KernelBench::run(std::size_t calls, int hot, Bytes hot_bytes, const Call& call) {
    // All is enqueued before anything begins: the host must not be what is measured.
    gate_.store(false);
    for (Core& core : cores_) {
        core.stream->enqueue([gate = &gate_] {
            while (!gate->load()) std::this_thread::yield();
        });
        for (std::size_t i = 0; i < calls; ++i) {
            if (hot >= 0) {
                const void* operand = core.operands[i % core.operands.size()][static_cast<std::size_t>(hot)];
                core.stream->enqueue([operand, bytes = hot_bytes.value] { touch(operand, bytes); });
            }
            core.stream->enqueue([at = &core.processor_before] { *at = processor_us(); });
            core.stream->begin(core.spans[i]);
            call(core, i);
            core.stream->end(core.spans[i]);
            core.stream->enqueue(
                [at = &core.busy[i], before = &core.processor_before] { *at = processor_us() - *before; });
        }
    }
    gate_.store(true);
    for (Core& core : cores_) core.device->synchronize();
    double sum = 0;
    for (const Core& core : cores_) {
        std::vector<double> us;
        for (std::size_t i = 0; i < calls; ++i) {
            const double wall = microseconds(core.spans[i].end - core.spans[i].start);
            us.push_back(std::min(wall, core.busy[i]));
            elapsed_ += wall;
            used_ += us.back();
        }
        sum += median(std::move(us));
    }
    return sum / static_cast<double>(cores_.size());
}

double KernelBench::repeat(int hot, Bytes hot_bytes, const Call& call) {
    const double first = std::max(run(fewest_calls, hot, hot_bytes, call), 0.5);
    const double wanted = options_.seconds_per_case * 1e6 / first;
    const auto calls = std::clamp(static_cast<std::size_t>(wanted), fewest_calls, most_calls);
    return run(calls, hot, hot_bytes, call) + between_;
}

double KernelBench::measure(const KernelCase& kernel_case) {
    for (Core& core : cores_) lay_out(core, kernel_case.operands);
    const std::size_t count = kernel_case.operands.size();
    const Bytes hot_bytes{
        kernel_case.hot < 0 ? 0 : kernel_case.operands[static_cast<std::size_t>(kernel_case.hot)].bytes()};
    return repeat(kernel_case.hot, hot_bytes, [&](Core& core, std::size_t i) {
        const auto& addresses = core.operands[i % core.operands.size()];
        core.stream->kernel(kernel_case.args, {.operand = {addresses.data(), count}, .tensor_rank = 0, .step = 1});
    });
}

double KernelBench::measure_fill(Bytes bytes) {
    for (Core& core : cores_) lay_out(core, {{bytes.value / 4, DType::fp32}});
    return repeat(0, bytes, [&](Core& core, std::size_t i) {
        core.stream->fill(core.operands[i % core.operands.size()][0], bytes);
    });
}

double KernelBench::measure_copy(Bytes bytes) {
    for (Core& core : cores_) lay_out(core, {{bytes.value / 4, DType::fp32}, {bytes.value / 4, DType::fp32}});
    return repeat(0, bytes, [&](Core& core, std::size_t i) {
        const auto& addresses = core.operands[i % core.operands.size()];
        core.stream->copy(addresses[1], addresses[0], bytes);
    });
}

}  // namespace foretrain
