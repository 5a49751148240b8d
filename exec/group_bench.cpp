#include "exec/group_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "base/error.h"
#include "exec/cpu_device.h"
#include "exec/thread_communicator.h"

namespace foretrain {

namespace {

constexpr std::int64_t footprint = 12 * MiB;  // as in kernel_bench.cpp
constexpr std::size_t fewest = 6, most = 200;
constexpr std::chrono::microseconds computing{200};  // before each: threads that wait have gone to sleep

void compute() {
    const auto until = std::chrono::steady_clock::now() + computing;
    while (std::chrono::steady_clock::now() < until) {
    }
}

// Two ranks of one process, and their arenas.
struct Pair {
    Pair(const KernelTable& kernels, Bytes bytes) : world(2, std::chrono::seconds(60)) {
        stride = round_up(bytes.value, 4096);
        sets = static_cast<std::size_t>(std::clamp<std::int64_t>(footprint / (2 * stride), 2, 64));
        for (std::size_t r = 0; r < 2; ++r) {
            device[r] = std::make_unique<CpuDevice>(kernels, &world.progress(static_cast<std::int64_t>(r)));
            compute_stream[r] = &device[r]->make_stream("compute");
            arena[r] = device[r]->allocate(Bytes{2 * stride * static_cast<std::int64_t>(sets)});
            group[r] = world.join({0, 1}, static_cast<std::int64_t>(r), 0);
        }
    }
    // The `which`-th of the two arrays of call i.
    std::byte* array(std::size_t rank, std::size_t i, std::size_t which) {
        return arena[rank] + static_cast<std::int64_t>(2 * (i % sets) + which) * stride;
    }
    void synchronize() {
        for (auto& d : device) d->synchronize();
    }

    ThreadWorld world;
    std::array<std::unique_ptr<Communicator>, 2> group;
    std::array<std::unique_ptr<CpuDevice>, 2> device;  // after the groups: their streams use them
    std::array<CpuStream*, 2> compute_stream{};
    std::array<std::byte*, 2> arena{};
    std::int64_t stride = 0;
    std::size_t sets = 0;
};

// Below the median: a rank that another program holds up makes both wait, and is no property of the link.
double lower_quartile(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 4];
}

// Runs a few calls to learn how long they take, then as many as the time allows.
template <class Run>
double repeat(double seconds_for_all, Run run) {
    const double first = lower_quartile(run(fewest));
    const double wanted = 1e6 * seconds_for_all / (first + static_cast<double>(computing.count()));
    return lower_quartile(run(std::clamp(static_cast<std::size_t>(wanted), fewest, most)));
}

void enqueue(Communicator& group, CpuStream& stream, InstructionKind kind, std::byte* whole, std::byte* part,
             std::int64_t count) {
    switch (kind) {
        case InstructionKind::all_reduce: group.all_reduce(stream, whole, count, DType::fp32, Reduction::sum); return;
        case InstructionKind::reduce_scatter:
            group.reduce_scatter(stream, whole, part, count / 2, DType::fp32, Reduction::sum);
            return;
        case InstructionKind::all_gather: group.all_gather(stream, part, whole, count / 2, DType::fp32); return;
        default: FORETRAIN_CHECK(false, "not a collective");
    }
}

}  // namespace

double measure_collective(const KernelTable& kernels, InstructionKind kind, Bytes bytes, double seconds_for_all) {
    Pair pair(kernels, bytes);
    std::array<std::vector<Span>, 2> spans{std::vector<Span>(most), std::vector<Span>(most)};
    return repeat(seconds_for_all, [&](std::size_t calls) {
        for (std::size_t i = 0; i < calls; ++i) {
            for (std::size_t r = 0; r < 2; ++r) {
                CpuStream& stream = *pair.compute_stream[r];
                stream.enqueue(compute);
                stream.begin(spans[r][i]);
                enqueue(*pair.group[r], stream, kind, pair.array(r, i, 0), pair.array(r, i, 1), bytes.value / 4);
                stream.end(spans[r][i]);
            }
        }
        pair.synchronize();
        std::vector<double> us;
        for (std::size_t i = 0; i < calls; ++i) {
            const Time both_here = std::max(spans[0][i].start, spans[1][i].start);
            us.push_back(microseconds(std::max(spans[0][i].end, spans[1][i].end) - both_here));
        }
        return us;
    });
}

double measure_message(const KernelTable& kernels, Bytes bytes, double seconds_for_all) {
    Pair pair(kernels, bytes);
    CpuStream& send = pair.device[0]->make_stream("send");
    CpuStream& recv = pair.device[1]->make_stream("recv");
    CpuEvent& computed = pair.device[0]->make_event();
    CpuEvent& received = pair.device[1]->make_event();
    std::array<std::vector<Span>, 2> spans{std::vector<Span>(most), std::vector<Span>(most)};
    return repeat(seconds_for_all, [&](std::size_t calls) {
        for (std::size_t i = 0; i < calls; ++i) {
            CpuStream& sender = *pair.compute_stream[0];
            sender.begin(spans[0][i]);
            sender.enqueue(compute);
            sender.end(spans[0][i]);
            sender.record(computed);
            send.wait(computed);
            pair.group[0]->send(send, pair.array(0, i, 0), bytes.value / 4, DType::fp32, 1);

            pair.group[1]->recv(recv, pair.array(1, i, 0), bytes.value / 4, DType::fp32, 0);
            recv.record(received);
            CpuStream& receiver = *pair.compute_stream[1];
            receiver.wait(received);
            receiver.begin(spans[1][i]);
            receiver.end(spans[1][i]);
            // The sender goes on only then: messages must not queue up behind each other.
            pair.group[1]->send(receiver, pair.array(1, i, 1), 1, DType::fp32, 0);
            pair.group[0]->recv(sender, pair.array(0, i, 1), 1, DType::fp32, 1);
        }
        pair.synchronize();
        std::vector<double> us;
        for (std::size_t i = 0; i < calls; ++i) us.push_back(microseconds(spans[1][i].start - spans[0][i].end));
        return us;
    });
}

}  // namespace foretrain
