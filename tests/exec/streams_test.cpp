// Streams of the CPU device: order inside one, events across two, and what happens after an error.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "exec/cpu_device.h"

namespace foretrain {
namespace {

TEST(CpuStream, RunsInOrder) {
    const KernelTable none{};
    CpuDevice device(none);
    CpuStream& stream = device.make_stream("compute", StreamUse::compute);
    std::vector<int> seen;
    for (int i = 0; i < 1000; ++i) stream.enqueue([&seen, i] { seen.push_back(i); });
    device.synchronize();
    ASSERT_EQ(seen.size(), 1000u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

// Two streams take turns through events, many times: neither may ever overtake the other.
TEST(CpuStream, EventsOrderStreams) {
    const KernelTable none{};
    CpuDevice device(none);
    CpuStream& a = device.make_stream("a", StreamUse::compute);
    CpuStream& b = device.make_stream("b", StreamUse::communication);
    CpuEvent& a_done = device.make_event();
    CpuEvent& b_done = device.make_event();
    int value = 0;
    bool wrong = false;
    for (int i = 0; i < 500; ++i) {
        a.enqueue([&value, &wrong, i] {
            wrong = wrong || value != 2 * i;
            ++value;
        });
        a.record(a_done);
        b.wait(a_done);
        b.enqueue([&value, &wrong, i] {
            wrong = wrong || value != 2 * i + 1;
            ++value;
        });
        b.record(b_done);
        a.wait(b_done);
    }
    b_done.synchronize();
    EXPECT_EQ(value, 1000);
    device.synchronize();
    EXPECT_FALSE(wrong);
}

TEST(CpuStream, OverlapsWithAnother) {
    const KernelTable none{};
    CpuDevice device(none);
    CpuStream& a = device.make_stream("a", StreamUse::compute);
    CpuStream& b = device.make_stream("b", StreamUse::communication);
    std::atomic<int> met{0};
    // Each waits for the other: this ends only if both run at once.
    for (CpuStream* s : {&a, &b}) {
        s->enqueue([&met] {
            met.fetch_add(1);
            while (met.load() < 2) std::this_thread::yield();
        });
    }
    device.synchronize();
    EXPECT_EQ(met.load(), 2);
}

TEST(CpuStream, ErrorSurfacesAndReleases) {
    const KernelTable none{};
    RankProgress progress;
    CpuDevice device(none, &progress);
    std::atomic<int> reported{-1};
    device.on_error([&](std::int32_t instruction, const std::exception_ptr&) { reported = instruction; });
    CpuStream& a = device.make_stream("a", StreamUse::compute);
    CpuStream& b = device.make_stream("b", StreamUse::communication);
    CpuEvent& done = device.make_event();
    Span span{.instruction = 7, .start = {}, .end = {}};
    bool ran = false;
    b.wait(done);  // nothing recorded yet: passes
    a.begin(span);
    a.enqueue([] { throw std::runtime_error("no such element type"); });
    a.end(span);
    a.enqueue([&ran] { ran = true; });
    a.record(done);
    b.wait(done);
    done.synchronize();
    try {
        device.synchronize();
        FAIL() << "the error was lost";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "no such element type");
    }
    EXPECT_FALSE(ran);
    EXPECT_EQ(reported.load(), 7);
    EXPECT_EQ(progress.last_instruction.load(), 7);
}

TEST(CpuStream, SpansMeasureTheWorkBetween) {
    const KernelTable none{};
    CpuDevice device(none);
    CpuStream& stream = device.make_stream("compute", StreamUse::compute);
    Span span;
    const Time before = device.now();
    stream.begin(span);
    stream.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    stream.end(span);
    device.synchronize();
    EXPECT_GE(span.start, before);
    EXPECT_GE(seconds(span.end - span.start), 0.005);
    EXPECT_LE(span.end, device.now());
}

TEST(CpuDevice, ArenaIsPageAlignedAndZeroed) {
    const KernelTable none{};
    CpuDevice device(none);
    CpuStream& stream = device.make_stream("compute", StreamUse::compute);
    std::byte* arena = device.allocate(Bytes{100000});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena) % 4096, 0u);
    for (int i = 0; i < 100000; ++i) ASSERT_EQ(arena[i], std::byte{0});

    const std::vector<int> values{1, 2, 3};
    std::vector<int> back(3, 0);
    device.write(arena, values.data(), Bytes{12});
    stream.copy(arena + 64, arena, Bytes{12});
    stream.fill(arena, Bytes{12});
    const HostWork seven = [](void* host) { *static_cast<int*>(host) = 7; };
    stream.produce(arena + 64, Bytes{4}, seven);
    device.synchronize();
    device.read(back.data(), arena + 64, Bytes{12});
    EXPECT_EQ(back, (std::vector<int>{7, 2, 3}));
    EXPECT_EQ(arena[0], std::byte{0});
}

TEST(CpuDevice, UnfinishedWorkIsDroppedAtTheEnd) {
    const KernelTable none{};
    int ran = 0;
    {
        CpuDevice device(none);
        CpuStream& stream = device.make_stream("compute", StreamUse::compute);
        stream.enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
        for (int i = 0; i < 100; ++i) stream.enqueue([&ran] { ++ran; });
    }
    EXPECT_LE(ran, 100);
}

}  // namespace
}  // namespace foretrain
