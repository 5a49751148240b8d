// The law of communication: the bytes that each rank is predicted to send in a step, by group and
// kind, are the bytes that its communicator counted where it copied them.
#include <gtest/gtest.h>

#include "exec/runtime.h"
#include "kernels/cpu/cpu_kernels.h"
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
        const CostModel cost(plan.cluster, plan.grid());
        const std::vector<WireCount> closed = Estimator(skeleton, cost).wire();
        for (std::size_t s = 0; s < closed.size(); ++s)
            ASSERT_EQ(closed[s], predicted(program, plan.grid().rank_in_stage(0, static_cast<std::int64_t>(s))));
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
