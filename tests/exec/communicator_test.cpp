// Thread communicators against a serial reference, bit for bit, with the bytes counted.
#include "exec/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "exec/cpu_device.h"
#include "exec/thread_communicator.h"

namespace foretrain {
namespace {

using std::chrono::milliseconds;

struct Rank {
    std::int64_t number;
    Communicator& group;
    CpuDevice& device;
    CpuStream& stream;
};

std::vector<std::int64_t> iota(std::int64_t count) {
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

// Runs `body` on every rank of one group, each with a device of its own; returns the errors.
std::vector<std::string> on_ranks(std::int64_t count, milliseconds limit, const std::function<void(Rank)>& body) {
    const KernelTable none{};
    ThreadWorld world(count, limit);
    std::vector<std::unique_ptr<CpuDevice>> devices;
    std::vector<std::string> errors(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    for (std::int64_t r = 0; r < count; ++r) devices.push_back(std::make_unique<CpuDevice>(none, &world.progress(r)));
    for (std::int64_t r = 0; r < count; ++r) {
        threads.emplace_back([&, r] {
            CpuDevice& device = *devices[static_cast<std::size_t>(r)];
            device.on_error([&world, r](std::int32_t, const std::exception_ptr& error) {
                try {
                    std::rethrow_exception(error);
                } catch (const std::exception& e) {
                    world.abort(r, e.what());
                }
            });
            const auto group = world.join(iota(count), r, 0);
            try {
                body({r, *group, device, device.make_stream("reduce", StreamUse::communication)});
                device.synchronize();
            } catch (const std::exception& e) {
                errors[static_cast<std::size_t>(r)] = e.what();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
    for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// Values whose sum depends on the order.
template <class T>
T value(std::int64_t rank, std::int64_t e) {
    return static_cast<T>(std::sin(static_cast<double>(rank * 7919 + e)) * 1000);
}

template <class T>
std::vector<T> values(std::int64_t rank, std::int64_t count) {
    std::vector<T> v;
    for (std::int64_t e = 0; e < count; ++e) v.push_back(value<T>(rank, e));
    return v;
}

template <class T>
std::vector<T> reduced(std::int64_t ranks, std::int64_t count, Reduction op) {
    std::vector<T> v = values<T>(0, count);
    for (std::int64_t r = 1; r < ranks; ++r)
        for (std::size_t e = 0; e < v.size(); ++e) {
            const T x = value<T>(r, static_cast<std::int64_t>(e));
            v[e] = op == Reduction::sum ? static_cast<T>(v[e] + x) : std::max(v[e], x);
        }
    return v;
}

Instruction collective(InstructionKind kind, DType type, std::int64_t count) {
    Instruction i;
    i.kind = kind;
    i.type = type;
    i.count = count;
    return i;
}

template <class T>
constexpr DType type_of = std::is_same_v<T, float>    ? DType::fp32
                          : std::is_same_v<T, double> ? DType::fp64
                                                      : DType::int32;

template <class T>
class Collectives : public ::testing::Test {};
using Types = ::testing::Types<float, double, std::int32_t>;
TYPED_TEST_SUITE(Collectives, Types);

TYPED_TEST(Collectives, AllToAllExchangesParts) {
    using T = TypeParam;
    for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
        constexpr std::int64_t count = 7;
        std::vector<Bytes> wire(static_cast<std::size_t>(ranks));
        expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
            const std::vector<T> mine = values<T>(me.number, ranks * count);
            std::vector<T> got(mine.size());
            me.group.all_to_all(me.stream, mine.data(), got.data(), count, type_of<T>);
            me.device.synchronize();
            for (std::int64_t r = 0; r < ranks; ++r)
                for (std::int64_t e = 0; e < count; ++e)
                    EXPECT_EQ(got[static_cast<std::size_t>(r * count + e)], value<T>(r, me.number * count + e));
            wire[static_cast<std::size_t>(me.number)] = me.group.wire(InstructionKind::all_to_all);
        }));
        for (std::int64_t r = 0; r < ranks; ++r)
            EXPECT_EQ(wire[static_cast<std::size_t>(r)],
                      wire_bytes(collective(InstructionKind::all_to_all, type_of<T>, count), ranks, r));
    }
}

TYPED_TEST(Collectives, RingShiftBringsWhatTheOneBeforeSends) {
    using T = TypeParam;
    for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
        constexpr std::int64_t count = 1003;
        std::vector<Bytes> wire(static_cast<std::size_t>(ranks));
        expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
            std::vector<T> here = values<T>(me.number, count), next(here.size());
            for (std::int64_t hop = 1; hop <= ranks; ++hop) {
                me.group.ring_shift(me.stream, here.data(), next.data(), count, type_of<T>);
                me.device.synchronize();
                EXPECT_EQ(next, values<T>((me.number + ranks - hop % ranks) % ranks, count));
                std::swap(here, next);
            }
            wire[static_cast<std::size_t>(me.number)] = me.group.wire(InstructionKind::ring_shift);
        }));
        for (std::int64_t r = 0; r < ranks; ++r)
            EXPECT_EQ(wire[static_cast<std::size_t>(r)],
                      wire_bytes(collective(InstructionKind::ring_shift, type_of<T>, count), ranks, r) * ranks);
    }
}

TYPED_TEST(Collectives, AllReduceIsTheSerialSum) {
    using T = TypeParam;
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
        for (const std::int64_t count : {1, 3, 7, 1000, 20011}) {
            for (const Reduction op : {Reduction::sum, Reduction::maximum}) {
                const std::vector<T> expected = reduced<T>(ranks, count, op);
                std::vector<Bytes> wire(static_cast<std::size_t>(ranks));
                expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
                    std::vector<T> mine = values<T>(me.number, count);
                    me.group.all_reduce(me.stream, mine.data(), count, type_of<T>, op);
                    me.device.synchronize();
                    EXPECT_EQ(mine, expected) << ranks << " ranks, " << count << " elements";
                    wire[static_cast<std::size_t>(me.number)] = me.group.wire(InstructionKind::all_reduce);
                }));
                const Instruction i = collective(InstructionKind::all_reduce, type_of<T>, count);
                for (std::int64_t r = 0; r < ranks; ++r)
                    EXPECT_EQ(wire[static_cast<std::size_t>(r)], wire_bytes(i, ranks, r)) << ranks << ' ' << count;
            }
        }
    }
}

TYPED_TEST(Collectives, ReduceScatterThenAllGatherIsAllReduce) {
    using T = TypeParam;
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks) {
        for (const std::int64_t count : {1, 5, 3001}) {
            const std::vector<T> expected = reduced<T>(ranks, ranks * count, Reduction::sum);
            std::vector<std::array<Bytes, 2>> wire(static_cast<std::size_t>(ranks));
            expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
                std::vector<T> mine = values<T>(me.number, ranks * count);
                std::vector<T> shard(static_cast<std::size_t>(count));
                std::vector<T> whole(mine.size());
                me.group.reduce_scatter(me.stream, mine.data(), shard.data(), count, type_of<T>, Reduction::sum);
                me.group.all_gather(me.stream, shard.data(), whole.data(), count, type_of<T>);
                me.device.synchronize();
                EXPECT_EQ(whole, expected);
                wire[static_cast<std::size_t>(me.number)] = {me.group.wire(InstructionKind::reduce_scatter),
                                                             me.group.wire(InstructionKind::all_gather)};
            }));
            for (std::int64_t r = 0; r < ranks; ++r) {
                const auto& w = wire[static_cast<std::size_t>(r)];
                const DType type = type_of<T>;
                EXPECT_EQ(w[0], wire_bytes(collective(InstructionKind::reduce_scatter, type, count), ranks, r));
                EXPECT_EQ(w[1], wire_bytes(collective(InstructionKind::all_gather, type, count), ranks, r));
            }
        }
    }
}

// A shard that lies inside the whole, as ZeRO keeps its weights.
TEST(Collectives, InPlace) {
    const std::int64_t ranks = 3;
    const std::int64_t count = 100;
    const std::vector<double> expected = reduced<double>(ranks, ranks * count, Reduction::sum);
    expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
        std::vector<double> mine = values<double>(me.number, ranks * count);
        double* shard = mine.data() + me.number * count;
        me.group.reduce_scatter(me.stream, mine.data(), shard, count, DType::fp64, Reduction::sum);
        me.group.all_gather(me.stream, shard, mine.data(), count, DType::fp64);
        me.device.synchronize();
        EXPECT_EQ(mine, expected);
    }));
}

TEST(Messages, ArriveInOrderAndAreCounted) {
    const std::int64_t ranks = 4;  // a ring
    expect_no_errors(on_ranks(ranks, milliseconds(10000), [&](Rank me) {
        CpuStream& receiver = me.device.make_stream("recv", StreamUse::communication);
        std::vector<std::vector<float>> out, in;
        for (int m = 0; m < 50; ++m) {
            out.push_back(values<float>(me.number + 10 * m, 17 + m));
            in.emplace_back(out.back().size());
        }
        const std::int64_t next = (me.number + 1) % ranks;
        const std::int64_t previous = (me.number + ranks - 1) % ranks;
        std::int64_t bytes = 0;
        for (std::size_t m = 0; m < out.size(); ++m) {
            const auto count = static_cast<std::int64_t>(out[m].size());
            me.group.send(me.stream, out[m].data(), count, DType::fp32, next);
            me.group.recv(receiver, in[m].data(), count, DType::fp32, previous);
            bytes += 4 * count;
        }
        me.device.synchronize();
        for (int m = 0; m < 50; ++m)
            EXPECT_EQ(in[static_cast<std::size_t>(m)], values<float>(previous + 10 * m, 17 + m));
        EXPECT_EQ(me.group.wire(InstructionKind::send), Bytes{bytes});
        EXPECT_EQ(me.group.wire(InstructionKind::recv), Bytes{});
    }));
}

TEST(Failures, AKilledRankEndsTheOthersFast) {
    const auto start = std::chrono::steady_clock::now();
    const auto errors = on_ranks(4, milliseconds(60000), [](Rank me) {
        static float data[4][64];
        if (me.number == 2) me.stream.enqueue([] { throw RunError("disk on fire"); });
        me.group.all_reduce(me.stream, data[me.number], 64, DType::fp32, Reduction::sum);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 5);
    for (std::size_t r = 0; r < 4; ++r) {
        if (r == 2) {
            EXPECT_EQ(errors[r], "disk on fire");
        } else {
            EXPECT_EQ(errors[r], "rank 2 failed: disk on fire");
        }
    }
}

TEST(Failures, AHangNamesWhoIsMissing) {
    const auto errors = on_ranks(3, milliseconds(200), [](Rank me) {
        static float data[3][64];
        if (me.number != 1) me.group.all_reduce(me.stream, data[me.number], 64, DType::fp32, Reduction::sum);
    });
    EXPECT_NE((errors[0] + errors[2]).find("waiting in all_reduce for rank 1 (last began no instruction)"),
              std::string::npos)
        << errors[0];
}

TEST(Failures, MembersThatDisagreeAreNamed) {
    const auto errors = on_ranks(2, milliseconds(60000), [](Rank me) {
        static float data[2][64];
        me.group.all_reduce(me.stream, data[me.number], me.number == 0 ? 64 : 32, DType::fp32, Reduction::sum);
    });
    EXPECT_NE(errors[0].find("all_reduce of 32 fp32"), std::string::npos) << errors[0];
    EXPECT_NE(errors[0].find("all_reduce of 64 fp32"), std::string::npos) << errors[0];
}

TEST(Failures, ALongWaitIsNoHangWhileOthersMove) {
    const auto errors = on_ranks(2, milliseconds(200), [](Rank me) {
        static float data[2][64];
        static Span spans[10];
        if (me.number == 1) {
            for (Span& span : spans) {  // a second of work in instructions of 100 ms
                me.stream.begin(span);
                me.stream.enqueue([] { std::this_thread::sleep_for(milliseconds(100)); });
                me.stream.end(span);
            }
        }
        me.group.all_reduce(me.stream, data[me.number], 64, DType::fp32, Reduction::sum);
    });
    expect_no_errors(errors);
}

}  // namespace
}  // namespace foretrain
