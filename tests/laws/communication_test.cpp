// The law of communication: the bytes that each rank is predicted to send in a step, by group and
// kind, are the bytes that its communicator counted where it copied them.
#include <gtest/gtest.h>

#include "exec/runtime.h"
#include "kernels/cpu/cpu_kernels.h"
#include "models/parameters.h"
#include "plan/program/lower.h"
#include "sim/estimate.h"
#include "tests/laws/support/plans.h"

namespace foretrain::test {
namespace {

// Of one rank, from its stage's instructions and its place in each group.
WireCount predicted(const Program& program, std::int64_t rank) {
    const std::int64_t stage = program.grid.coordinate(rank, Axis::pipeline);
    WireCount count;
    for (const Instruction& i : program.stages[static_cast<std::size_t>(stage)].instructions) {
        const Bytes bytes = wire_bytes(i, program.grid.size(i.axis), program.grid.coordinate(rank, i.axis));
        if (bytes.value > 0) count[wire_key(i.axis, i.kind)] += bytes;
    }
    return count;
}

std::vector<Plan> spreads() {
    std::vector<Plan> out;
    for (const bool llama : {false, true})
        for (const int zero : {0, 1, 2, 3})
            for (const auto& [tp, pp, dp] : {std::tuple{1, 1, 3}, {2, 2, 2}, {4, 1, 2}, {1, 4, 2}, {2, 1, 3}}) {
                Parallelism p;
                p.tensor = tp;
                p.pipeline = pp;
                p.data = dp;
                p.zero_stage = zero;
                p.sequence_parallel = tp > 1 && zero % 2 == 0;
                p.recompute.kind = zero == 1 ? Recompute::Kind::full : Recompute::Kind::none;
                out.push_back(small_plan(llama ? small_llama() : small_gpt(), p, 2 * dp));
                if (pp != 2) continue;
                p.virtual_pipeline = 2;
                out.push_back(small_plan(llama ? small_llama() : small_gpt(), p, 4 * dp));
            }
    for (const int zero : {1, 2, 3})
        for (const auto& [cp, tp, pp, dp, shard] :
             {std::tuple{1, 1, 1, 4, 2}, {1, 2, 1, 4, 2}, {2, 1, 1, 4, 4}, {2, 1, 2, 2, 2}, {1, 1, 1, 6, 3}}) {
            Parallelism p;
            p.context = cp;
            p.tensor = tp;
            p.pipeline = pp;
            p.data = dp;
            p.zero_stage = zero;
            p.zero_shard_size = shard;
            out.push_back(small_plan(zero == 2 ? small_gpt() : small_llama(), p, 2 * dp));
        }
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all})
        for (const auto& [cp, tp, pp, zero] : {std::tuple{2, 1, 1, 0}, {4, 1, 1, 1}, {2, 2, 2, 2}, {2, 1, 2, 3}}) {
            Parallelism p;
            p.context = cp;
            p.context_method = method;
            p.tensor = tp;
            p.pipeline = pp;
            p.zero_stage = zero;
            p.sequence_parallel = tp > 1;
            out.push_back(small_plan(small_llama(), p, 2));
        }
    return out;
}

TEST(Communication, CountedIsPredicted) {
    for (const Plan& plan : spreads()) {
        const Program program = lower(make_skeleton(plan));
        RunOptions options;
        options.kernels = &cpu_kernels();
        const Trace trace = run_program(program, options).trace;
        for (const RankTrace& rank : trace.ranks)
            ASSERT_EQ(rank.wire, predicted(program, rank.rank)) << describe(plan.parallelism) << " rank " << rank.rank;
        // And the closed form, which counts each stage's first rank.
        const Skeleton skeleton = make_skeleton(plan);
        const CostModel cost(plan);
        const std::vector<WireCount> closed = Estimator(skeleton, cost).wire();
        for (std::size_t s = 0; s < closed.size(); ++s)
            ASSERT_EQ(closed[s], predicted(program, plan.grid().rank_in_stage(0, static_cast<std::int64_t>(s))));
    }
}

// Six replicas, by threes: each sends 2/3 of the gradients to those that it shares with, and 2/3 of the weights;
// of its own third, the half that the rank with the same third adds up, and the half that it adds up itself.
TEST(Communication, ASubgroupsBytesAreThoseOfItsShards) {
    ModelSpec m = small_llama();
    m.hidden_size = m.ffn_hidden_size = 48;  // every tensor is a multiple of six elements: nothing is padded
    m.head_dim = 6;
    const auto sent = [&m](int zero, std::int64_t shard, const char* key) {
        Parallelism p;
        p.data = 6;
        p.zero_stage = zero;
        p.zero_shard_size = shard;
        const Plan plan = small_plan(m, p, 12);  // two microbatches
        const Skeleton skeleton = make_skeleton(plan);
        const WireCount wire = Estimator(skeleton, CostModel(plan)).wire().at(0);
        const auto found = wire.find(key);
        return found == wire.end() ? std::int64_t{0} : found->second.value;
    };
    const std::int64_t all = 8 * parameter_count(m);
    for (const std::int64_t shard : {0, 3}) {
        const char* scatter = shard == 0 ? "replica.reduce_scatter" : "shard.reduce_scatter";
        const char* gather = shard == 0 ? "replica.all_gather" : "shard.all_gather";
        const std::int64_t n = shard == 0 ? 6 : shard;
        EXPECT_EQ(sent(1, shard, scatter), all / n * (n - 1)) << shard;
        EXPECT_EQ(sent(2, shard, scatter), 2 * all / n * (n - 1)) << shard;
        EXPECT_EQ(sent(1, shard, gather), all / n * (n - 1)) << shard;
        EXPECT_EQ(sent(1, shard, "replicate.all_reduce"), shard == 0 ? 0 : all / n) << shard;
        EXPECT_EQ(sent(2, shard, "replicate.all_reduce"), shard == 0 ? 0 : all / n) << "once a step";
        EXPECT_EQ(sent(3, shard, "replicate.all_reduce"), shard == 0 ? 0 : all / n) << "once a step";
        EXPECT_GT(sent(3, shard, gather), 2 * sent(1, shard, gather)) << "every microbatch";
    }
}

// What context ranks exchange, by hand: in fp64, a microbatch of 2 samples of 24 tokens, 4 layers of 8 heads
// over 4 key-value heads of 4 elements each.
TEST(Communication, ContextBytesAreThoseOfKeysAndValuesOrOfHeads) {
    const auto sent = [](std::int64_t ranks, ContextMethod method, Recompute recompute, const char* key) {
        Parallelism p;
        p.context = ranks;
        p.context_method = method;
        p.micro_batch_size = 2;
        p.recompute = recompute;
        const WireCount count = predicted(lower(make_skeleton(small_plan(small_llama(), p, 2))), 0);
        return count.at(key).value;
    };
    for (const std::int64_t c : {2, 3, 4}) {
        const std::int64_t tokens = 2 * 24 / c, block = 2 * tokens * 4 * 4 * 8;  // keys and values
        // Forward once around, backward again and their gradients as far; recompute as forward.
        EXPECT_EQ(sent(c, ContextMethod::ring, {}, "context.ring_shift"), 4 * (c - 1) * 3 * block);
        EXPECT_EQ(sent(c, ContextMethod::ring, {Recompute::Kind::full, 0}, "context.ring_shift"),
                  4 * (c - 1) * 4 * block);
        if (c == 3) continue;  // heads do not divide
        // Queries, keys and values and the context; backward the context, its gradient and theirs. All but a
        // rank's own part leaves it.
        const std::int64_t heads = tokens * 8 * 4 * 8, all = tokens * (8 + 2 * 4) * 4 * 8;
        EXPECT_EQ(sent(c, ContextMethod::all_to_all, {}, "context.all_to_all"),
                  4 * ((all + heads) + (2 * heads + all)) * (c - 1) / c);
    }
}

TEST(Communication, OneContextRankMovesNoContextBytes) {
    for (const Plan& plan : spreads()) {
        if (plan.parallelism.context > 1) continue;
        for (const auto& [key, bytes] : predicted(lower(make_skeleton(plan)), 0))
            EXPECT_FALSE(key.starts_with("context")) << key << " " << bytes.value;
    }
}

TEST(Communication, OneTensorRankMovesNoTensorBytes) {
    for (const Plan& plan : spreads()) {
        if (plan.parallelism.tensor > 1) continue;
        for (const auto& [key, bytes] : predicted(lower(make_skeleton(plan)), 0))
            EXPECT_FALSE(key.starts_with("tensor")) << key << " " << bytes.value;
    }
}

TEST(CommunicationMutation, IsCaught) {
    Parallelism p;
    p.data = 2;
    Program program = lower(make_skeleton(small_plan(small_gpt(), p)));
    RunOptions options;
    options.kernels = &cpu_kernels();
    const Trace trace = run_program(program, options).trace;
    ASSERT_EQ(trace.ranks[0].wire, predicted(program, 0));
    for (Instruction& i : program.stages[0].instructions)
        if (i.kind == InstructionKind::all_reduce) {
            --i.count;
            break;
        }
    EXPECT_NE(trace.ranks[0].wire, predicted(program, 0));
}

}  // namespace
}  // namespace foretrain::test
