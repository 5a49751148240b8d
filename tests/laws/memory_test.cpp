// The law of memory: what the skeleton states in closed form, what lowering lays out and what the
// engine allocates are the same bytes, region by region, at least the live peak; and the operating
// system, which knows nothing of regions, counts the same within 2 % or 64 MiB.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "exec/runtime.h"
#include "kernels/cpu/cpu_kernels.h"
#include "plan/check.h"
#include "plan/program/lower.h"
#include "sim/estimate.h"
#include "tests/laws/support/plans.h"

namespace foretrain::test {
namespace {

Trace run(const Program& program, std::int64_t steps = 1) {
    RunOptions options;
    options.kernels = &cpu_kernels();
    options.steps = steps;
    return run_program(program, options).trace;
}

// What differs between the closed form and what the engine's devices handed out; empty if nothing.
std::string difference(const std::vector<StageMemory>& memory, const Trace& trace) {
    for (const RankTrace& rank : trace.ranks) {
        const StageMemory& m = memory[static_cast<std::size_t>(rank.stage)];
        const auto allocated = [&](const char* region) { return rank.allocated.at(region); };
        const std::tuple<const char*, Bytes, Bytes> roles[] = {
            {"weights", m.weights, allocated("weights")},
            {"gradients", m.gradients, allocated("gradients")},
            {"optimizer", m.optimizer, allocated("optimizer")},
            {"activations", m.activations, allocated("activations")},
            {"workspace", m.workspace, allocated("transients")},
            {"communication", m.communication,
             allocated("communication") + allocated("gathered") + allocated("staging")},
            {"live peak", m.live_peak, rank.live_peak}};
        for (const auto& [role, predicted, measured] : roles)
            if (predicted != measured)
                return "rank " + std::to_string(rank.rank) + " " + role + ": " + std::to_string(measured.value) +
                       " measured, " + std::to_string(predicted.value) + " predicted";
    }
    return "";
}

// Random plans small enough to run here.
std::vector<Plan> runnable_plans(int count) {
    std::mt19937 random(3);
    std::vector<Plan> out;
    while (static_cast<int>(out.size()) < count) {
        Plan plan = random_plan(random);
        if (plan.world() > 8 || plan.framework != "foretrain" || plan.model.hidden_size > 64 ||
            plan.parallelism.micro_batch_size * plan.training.sequence_length * plan.microbatches() > 512 ||
            plan.model.vocab_size > 2000)
            continue;
        plan.training.precision = out.size() % 2 == 0 ? DType::fp32 : DType::fp64;
        if (check_runnable(plan).empty()) out.push_back(plan);
    }
    return out;
}

TEST(Memory, ClosedFormIsLayoutIsAllocated) {
    double least = 1;
    std::vector<Plan> plans = runnable_plans(40);
    for (const int zero : {1, 2, 3}) {
        Parallelism p;
        p.data = 6;
        p.zero_stage = zero;
        p.zero_shard_size = 3;
        plans.push_back(small_plan(small_llama(), p, 12));
    }
    for (const Plan& plan : plans) {
        const Skeleton skeleton = make_skeleton(plan);
        const CostModel cost(plan);
        const std::vector<StageMemory> memory = Estimator(skeleton, cost).memory();
        const Program program = lower(skeleton);
        const Trace trace = run(program);
        ASSERT_EQ(difference(memory, trace), "") << describe(plan.parallelism);
        for (const RankTrace& rank : trace.ranks) {
            const StageMemory& m = memory[static_cast<std::size_t>(rank.stage)];
            ASSERT_EQ(m.allocated(), program.stages[static_cast<std::size_t>(rank.stage)].arena());
            ASSERT_LE(m.live_peak, m.allocated());
            least = std::min(least, static_cast<double>(m.live_peak.value) / static_cast<double>(m.allocated().value));
        }
    }
    std::printf("least live peak / allocated: %.3f\n", least);
}

// An engine that holds more than was predicted, and one that keeps a tensor longer.
TEST(MemoryMutation, IsCaught) {
    Parallelism p;
    p.pipeline = 2;
    const Plan plan = small_plan(small_gpt(), p);
    const Skeleton skeleton = make_skeleton(plan);
    const CostModel cost(plan);
    const std::vector<StageMemory> memory = Estimator(skeleton, cost).memory();
    const Program program = lower(skeleton);
    ASSERT_EQ(difference(memory, run(program)), "");

    Program larger = program;
    larger.stages[1].region_bytes[static_cast<std::size_t>(Region::transients)] += Bytes{256};
    EXPECT_NE(difference(memory, run(larger)), "");

    Program keeps = program;  // the first transient that is freed is freed at the end instead
    std::vector<Instruction>& code = keeps.stages[0].instructions;
    const auto freed = std::find_if(code.begin(), code.end(), [&](const Instruction& i) {
        return i.kind == InstructionKind::free &&
               keeps.stages[0].buffers[static_cast<std::size_t>(i.operand[0])].region == Region::transients;
    });
    ASSERT_NE(freed, code.end());
    const Instruction late = *freed;
    freed->kind = InstructionKind::record;
    code.insert(code.end() - 1, late);
    for (Instruction& i : code)
        if (i.kind == InstructionKind::alloc && i.operand[0] == late.operand[0] && i.microbatch > 0)
            i.kind = InstructionKind::record;
    for (auto i = code.begin(); i != code.end() - 2; ++i)
        if (i->kind == InstructionKind::free && i->operand[0] == late.operand[0]) i->kind = InstructionKind::record;
    EXPECT_NE(difference(memory, run(keeps)), "");
}

// Runs in a process of its own, so that its peak is the run's.
Bytes resident_growth(const Program& program) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const Bytes before = peak_resident();
        run(program, 2);
        const std::int64_t growth = (peak_resident() - before).value;
        const bool written = write(ends[1], &growth, sizeof growth) == sizeof growth;
        _exit(written ? 0 : 1);
    }
    std::int64_t growth = 0;
    EXPECT_EQ(read(ends[0], &growth, sizeof growth), static_cast<ssize_t>(sizeof growth));
    int status = 0;
    waitpid(child, &status, 0);
    close(ends[0]);
    close(ends[1]);
    return Bytes{growth};
}

TEST(Memory, TheOperatingSystemAgrees) {
    for (const int zero : {0, 3}) {
        Parallelism p;
        p.data = 2;
        p.zero_stage = zero;
        p.micro_batch_size = 2;
        Plan plan = small_plan(small_gpt(), p, 4);
        plan.model.hidden_size = 512;
        plan.model.head_dim = 128;
        plan.model.ffn_hidden_size = 2048;
        plan.model.vocab_size = 8192;
        plan.model.max_positions = 256;
        plan.training.sequence_length = 128;
        plan.training.precision = DType::fp32;
        const Program program = lower(make_skeleton(plan));
        Bytes predicted;
        for (const StageProgram& stage : program.stages) predicted += stage.arena() * p.data;
        const Bytes resident = resident_growth(program);
        const double slack = std::max(64.0 * MiB, 0.02 * static_cast<double>(predicted.value));
        EXPECT_NEAR(static_cast<double>(resident.value), static_cast<double>(predicted.value), slack)
            << "ZeRO-" << zero;
        std::printf("ZeRO-%d: allocated %.1f MiB, resident %.1f MiB\n", zero,
                    static_cast<double>(predicted.value) / MiB, static_cast<double>(resident.value) / MiB);
    }
}

}  // namespace
}  // namespace foretrain::test
