#include "sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "tests/sim/support/devices.h"
#include "tests/sim/support/program_builder.h"

namespace foretrain {
namespace {

using support::ProgramBuilder;
using enum InstructionKind;

// Start and end of an instruction in microseconds.
std::pair<double, double> when(const Trace& t, std::size_t stage, std::int32_t id) {
    for (const Span& s : t.ranks.at(stage).steps.at(0).spans)
        if (s.instruction == id) return {microseconds(s.start), microseconds(s.end)};
    ADD_FAILURE() << "no span of instruction " << id;
    return {};
}
using Us = std::pair<double, double>;

TEST(Simulator, StreamsOverlapAndAWaitJoinsThem) {
    ProgramBuilder b(1);
    const auto k1 = b.kernel(0, 3);
    const auto g = b.kernel(0, 5, {}, Stream::gather);
    const auto k2 = b.kernel(0, 1);                       // behind k1 only: 3 to 4
    const auto k3 = b.kernel(0, 2, {g});                  // behind g: 5 to 7
    const auto r = b.kernel(0, 4, {k1}, Stream::reduce);  // from 3 to 7
    const auto end = b.plain(0, step_end, {r});
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, k1), Us(0, 3));
    EXPECT_EQ(when(t, 0, g), Us(0, 5));
    EXPECT_EQ(when(t, 0, k2), Us(3, 4));
    EXPECT_EQ(when(t, 0, k3), Us(5, 7));
    EXPECT_EQ(when(t, 0, r), Us(3, 7));
    EXPECT_EQ(when(t, 0, end), Us(7, 7));
    EXPECT_EQ(step_time(t), Time{7'000'000});
    EXPECT_EQ(t.kind, "simulated");
}

TEST(Simulator, AStreamIsFirstInFirstOut) {
    ProgramBuilder b(1);
    const auto slow = b.kernel(0, 9, {}, Stream::gather);
    b.kernel(0, 1, {slow});             // holds its stream until 9
    const auto ready = b.kernel(0, 1);  // could run at 0, but stands behind
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, ready), Us(10, 11));
    EXPECT_EQ(step_time(t), Time{11'000'000}) << "without a step_end the step ends with the last instruction";
}

TEST(Simulator, RecordAndWaitTakeNoTime) {
    ProgramBuilder b(1);
    b.kernel(0, 2);
    const auto mark = b.plain(0, record);
    const auto hold = b.plain(0, wait, {mark}, Stream::reduce);
    const auto k = b.kernel(0, 1, {}, Stream::reduce);
    b.kernel(0, 3);
    const auto after = b.kernel(0, 1, {hold, k}, Stream::gather);
    b.plain(0, step_end);
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, k), Us(2, 3));
    EXPECT_EQ(when(t, 0, after), Us(3, 4));
    EXPECT_EQ(t.ranks[0].steps[0].spans.size(), 5U) << "record and wait have no span";
}

TEST(Simulator, AMessageStartsWhenBothSidesAreThere) {
    ProgramBuilder b(2);
    const auto k = b.kernel(0, 3);
    const auto s1 = b.send(0, 1, 2, {k});  // the receiver waits since 0: 3 to 5
    const auto s2 = b.send(0, 1, 2);       // ready at 5, the receiver at 15
    const auto r1 = b.recv(1, 0, 2);
    const auto k1 = b.kernel(1, 10, {r1});  // 5 to 15
    const auto r2 = b.recv(1, 0, 2, {k1});  // 15 to 17
    b.plain(0, step_end);
    const auto end = b.plain(1, step_end, {r2});
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, s1), Us(3, 5));
    EXPECT_EQ(when(t, 1, r1), Us(3, 5));
    EXPECT_EQ(when(t, 0, s2), Us(15, 17));
    EXPECT_EQ(when(t, 1, r2), Us(15, 17));
    EXPECT_EQ(when(t, 1, end), Us(17, 17));
    EXPECT_EQ(t.ranks[0].steps[0].duration, Time{3'000'000}) << "compute is done at 3; nobody waits for the message";
}

// With two stages the next one is the previous one: what goes each way must not be mixed up.
TEST(Simulator, MessagesBothWaysBetweenTwoStages) {
    ProgramBuilder b(2);
    const auto back = b.recv(0, 1, 4, {}, true);  // stage 0: a gradient from the next stage
    const auto wrap = b.recv(0, 1, 1);            // and an activation from the previous one, also stage 1
    const auto k = b.kernel(1, 2);
    const auto wrap_sent = b.send(1, 0, 1, {k});       // 2 to 3
    const auto back_sent = b.send(1, 0, 4, {}, true);  // 0 to 4
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, back), Us(0, 4));
    EXPECT_EQ(when(t, 1, back_sent), Us(0, 4));
    EXPECT_EQ(when(t, 0, wrap), Us(2, 3));
    EXPECT_EQ(when(t, 1, wrap_sent), Us(2, 3));
}

TEST(Simulator, TheEmbeddingPairMeetsAcrossStages) {
    ProgramBuilder b(3);
    const auto k0 = b.kernel(0, 8);
    const auto k2 = b.kernel(2, 3);
    const auto first = b.all_reduce_embedding(0, 2, {k0});
    const auto last = b.all_reduce_embedding(2, 2, {k2});
    b.kernel(1, 1);  // the middle stage has no part in it
    const Trace t = simulate(b.program, b.cost());
    // two ranks of a node: 2 steps of half the array at 1 GB/s
    EXPECT_EQ(when(t, 0, first), Us(8, 10));
    EXPECT_EQ(when(t, 2, last), Us(8, 10));
    EXPECT_EQ(t.ranks[1].steps[0].duration, Time{1'000'000});
}

TEST(Simulator, OtherGroupsAreSymmetricAndDoNotWait) {
    ProgramBuilder b(2, 4);
    b.kernel(0, 5, {}, Stream::gather);
    const auto late = b.all_gather_data(0, 1000);
    const auto early = b.all_gather_data(1, 1000);  // the other stage is another group
    const Trace t = simulate(b.program, b.cost());
    EXPECT_EQ(when(t, 0, late), Us(5, 17));  // 3 steps of 4000 bytes
    EXPECT_EQ(when(t, 1, early), Us(0, 12));
}

TEST(Simulator, ADeadlockNamesWhatIsStuck) {
    ProgramBuilder b(2);
    const auto r0 = b.recv(0, 1, 1, {}, true);  // both sides wait for the other to begin
    b.send(0, 1, 1, {r0});
    const auto r1 = b.recv(1, 0, 1);
    b.send(1, 0, 1, {r1}, true);
    try {
        simulate(b.program, b.cost());
        FAIL();
    } catch (const InternalError& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("stage 0, recv_next: instruction 0 (recv, peer 1) waits for its other side"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("stage 1, send_prev: instruction 1 (send, peer 0) waits for instruction 0"),
                  std::string::npos)
            << text;
    }
}

TEST(Simulator, WhatCannotBeRightIsRefused) {
    ProgramBuilder alone(2);
    alone.send(0, 1, 1);
    EXPECT_THROW(simulate(alone.program, alone.cost()), InternalError) << "nobody receives";
    ProgramBuilder unequal(2);
    unequal.send(0, 1, 1);
    unequal.recv(1, 0, 2);
    EXPECT_THROW(simulate(unequal.program, unequal.cost()), InternalError);
    ProgramBuilder chunk(1);
    chunk.plain(0, forward_chunk);
    EXPECT_THROW(simulate(chunk.program, chunk.cost()), InternalError) << "not lowered";
    ProgramBuilder ahead(1);
    ahead.kernel(0, 1);
    ahead.program.stages[0].instructions[0].add_wait({0, Stream::compute});
    EXPECT_THROW(simulate(ahead.program, ahead.cost()), InternalError);
}

TEST(Simulator, StragglersSlowTheirKernelsOnly) {
    ProgramBuilder b(2);
    const auto k = b.kernel(0, 4);
    b.send(0, 1, 2, {k});
    const auto r = b.recv(1, 0, 2);
    SimulateOptions options;
    options.slowdown = {1.5, 1};
    EXPECT_EQ(when(simulate(b.program, b.cost(), options), 1, r), Us(6, 8));
}

TEST(Simulator, MemoryInHostOrderAndOverTime) {
    ProgramBuilder b(1);
    b.program.stages[0].region_bytes[static_cast<std::size_t>(Region::weights)] = Bytes{1000};
    b.program.stages[0].region_bytes[static_cast<std::size_t>(Region::activations)] = Bytes{60};
    const auto x = b.buffer(0, 10), y = b.buffer(0, 50);
    b.lifetime(0, alloc, x);
    b.kernel(0, 3);
    b.lifetime(0, alloc, y);
    b.lifetime(0, InstructionKind::free, x);
    b.kernel(0, 4);
    b.lifetime(0, InstructionKind::free, y);
    SimulateOptions options;
    std::vector<std::vector<MemorySample>> memory;
    options.memory = &memory;
    const Trace t = simulate(b.program, b.cost(), options);
    EXPECT_EQ(t.ranks[0].live_peak, Bytes{1060});
    EXPECT_EQ(t.ranks[0].allocated.at("activations"), Bytes{60});
    const std::vector<MemorySample> expected{
        {Time{0}, Bytes{1010}}, {Time{3'000'000}, Bytes{1050}}, {Time{7'000'000}, Bytes{1000}}};
    ASSERT_EQ(memory.size(), 1U);
    EXPECT_EQ(memory[0], expected);
}

TEST(Simulator, CountsWhatTheFirstRankOfAStageSends) {
    ProgramBuilder b(2, 4);
    b.all_gather_data(0, 1000);
    b.all_gather_data(0, 500);
    b.send(0, 1, 3);
    b.recv(1, 0, 3);
    b.all_reduce_embedding(0, 2);
    b.all_reduce_embedding(1, 2);
    const Trace t = simulate(b.program, b.cost());
    // shards go to three others; a message is sent once; of an all-reduce by two each half goes once
    const WireCount first{
        {"data.all_gather", Bytes{18000}}, {"pipeline.send", Bytes{3000}}, {"embedding.all_reduce", Bytes{2000}}};
    EXPECT_EQ(t.ranks[0].wire, first);
    EXPECT_EQ(t.ranks[1].wire, (WireCount{{"embedding.all_reduce", Bytes{2000}}}));
    EXPECT_EQ(t.ranks[0].rank, 0);
    EXPECT_EQ(t.ranks[1].rank, 4);
}

// With equal stages and free messages 1F1B takes (microbatches + stages - 1) passes each way.
TEST(Simulator, OneForwardOneBackwardTakesItsClosedForm) {
    Simulator simulator;  // reused: a larger program before a smaller one leaves nothing behind
    for (const auto& [stages, microbatches] : {std::pair{8, 32}, {1, 3}, {4, 8}, {2, 1}, {4, 2}}) {
        const Program p = support::one_forward_one_backward(stages, microbatches, 5);
        const CostModel cost(support::round_cluster(1), p.grid);
        const Trace t = simulator.simulate(p, cost);
        EXPECT_EQ(step_time(t), Time{(microbatches + stages - 1) * 15 * std::int64_t{1'000'000}});
        EXPECT_EQ(t.ranks[0].steps, simulate(p, cost).ranks[0].steps);
    }
}

// A random program, and its times as a longest path: relax start >= end of what stands before on the
// stream, of the waits, and start of the other side, until nothing changes.
Program random_program(std::mt19937& random, std::int64_t stages) {
    ProgramBuilder b(stages);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    for (int i = 0; i < 200; ++i) {
        const auto s = static_cast<std::int64_t>(below(static_cast<std::size_t>(stages)));
        const auto after = [&](std::int64_t stage) {
            const auto size = b.program.stages[static_cast<std::size_t>(stage)].instructions.size();
            ProgramBuilder::Ids ids;
            for (std::size_t w = size == 0 ? 0 : below(3); w > 0; --w)
                ids.push_back(static_cast<std::int32_t>(size - 1 - below(std::min<std::size_t>(size, 12))));
            return ids;
        };
        const auto us = static_cast<std::int64_t>(below(6));
        if (const std::size_t what = below(4); what == 0 && stages > 1) {
            const std::int64_t peer = (s + 1) % stages;
            const bool backwards = below(2) == 0;
            // Issued on both sides at the same point of the global order, so that nothing deadlocks.
            b.send(s, peer, us, after(s), backwards);
            b.recv(peer, s, us, after(peer), backwards);
        } else if (what == 1) {
            b.plain(s, record, after(s), static_cast<Stream>(below(3)));
        } else {
            b.kernel(s, us, after(s), static_cast<Stream>(below(3)));
        }
    }
    return std::move(b.program);
}

struct Place {
    std::size_t stage = 0, id = 0;
};

std::vector<std::vector<std::int64_t>> longest_paths(const Program& p, const CostModel& cost) {
    std::map<std::array<std::int64_t, 3>, std::vector<Place>> sends, recvs;  // by (from, to, direction)
    std::vector<std::vector<std::int64_t>> start(p.stages.size());
    for (std::size_t s = 0; s < p.stages.size(); ++s) {
        start[s].resize(p.stages[s].instructions.size());
        for (std::size_t i = 0; i < start[s].size(); ++i) {
            const Instruction& in = p.stages[s].instructions[i];
            const auto here = static_cast<std::int64_t>(s);
            if (in.kind == send) sends[{here, in.peer, in.stream == Stream::send_prev}].push_back({s, i});
            if (in.kind == recv) recvs[{in.peer, here, in.stream == Stream::recv_next}].push_back({s, i});
        }
    }
    const auto end = [&](std::size_t s, std::size_t i) {
        return start[s][i] +
               cost.instruction(p.stages[s].instructions[i], p.stages[s].kernels, p.stages[s].stage).value;
    };
    bool changed = true;
    const auto raise = [&](Place at, std::int64_t to) {
        if (start[at.stage][at.id] >= to) return;
        start[at.stage][at.id] = to;
        changed = true;
    };
    while (changed) {
        changed = false;
        for (std::size_t s = 0; s < p.stages.size(); ++s) {
            std::array<std::int64_t, stream_count> free_at{};
            for (std::size_t i = 0; i < start[s].size(); ++i) {
                const Instruction& in = p.stages[s].instructions[i];
                auto& lane = free_at[static_cast<std::size_t>(in.stream)];
                raise({s, i}, lane);
                for (std::size_t w = 0; w < in.waits; ++w)
                    raise({s, i}, end(s, static_cast<std::size_t>(in.wait[w].instruction)));
                lane = end(s, i);
            }
        }
        for (const auto& [channel, sent] : sends)
            for (std::size_t k = 0; k < sent.size(); ++k) {
                const Place a = sent[k], b = recvs[channel].at(k);
                raise(a, start[b.stage][b.id]);
                raise(b, start[a.stage][a.id]);
            }
    }
    return start;
}

TEST(Simulator, AgreesWithLongestPaths) {
    std::mt19937 random(7);
    Simulator simulator;
    for (int round = 0; round < 300; ++round) {
        const Program p = random_program(random, 1 + round % 5);
        const CostModel cost(support::round_cluster(1), p.grid);
        const auto start = longest_paths(p, cost);
        const Trace t = simulator.simulate(p, cost);
        for (const RankTrace& rank : t.ranks)
            for (const Span& span : rank.steps[0].spans)
                ASSERT_EQ(span.start.value,
                          start[static_cast<std::size_t>(rank.stage)][static_cast<std::size_t>(span.instruction)])
                    << "round " << round << ", stage " << rank.stage << ", instruction " << span.instruction;
    }
}

}  // namespace
}  // namespace foretrain
