// How fast the simulator walks a program and the cost model answers.
#include <benchmark/benchmark.h>

#include "sim/simulator.h"
#include "tests/sim/support/devices.h"
#include "tests/sim/support/program_builder.h"

namespace foretrain {
namespace {

// About a million instructions: 1F1B over `stages` stages, 128 microbatches. time / items is the time
// for an instruction.
void simulate_pipeline(benchmark::State& state) {
    const std::int64_t stages = state.range(0), microbatches = 128;
    const Program program =
        support::one_forward_one_backward(stages, microbatches, 1'000'000 / (3 * stages * microbatches));
    const CostModel cost(support::round_cluster(8), program.grid);
    std::int64_t instructions = 0;
    for (const StageProgram& s : program.stages) instructions += static_cast<std::int64_t>(s.instructions.size());
    Simulator simulator;
    for (auto _ : state) benchmark::DoNotOptimize(simulator.simulate(program, cost));
    state.SetItemsProcessed(state.iterations() * instructions);
    state.counters["instruction"] = benchmark::Counter(static_cast<double>(state.iterations() * instructions),
                                                       benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(simulate_pipeline)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

void cost_of_gemm(benchmark::State& state) {
    const CostModel cost(support::h100_cluster(1), {});
    GemmArgs args{.m = 4096, .n = 4608, .k = 12288, .type = DType::bf16, .output = DType::bf16};
    for (auto _ : state) {
        args.m ^= 1;
        benchmark::DoNotOptimize(cost.kernel(args));
    }
}
BENCHMARK(cost_of_gemm);

void cost_of_collective(benchmark::State& state) {
    const CostModel cost(support::h100_cluster(16), {.tensor = 8, .data = 16});
    Bytes bytes{MiB};
    for (auto _ : state) {
        bytes += Bytes{1};
        benchmark::DoNotOptimize(cost.collective(InstructionKind::all_reduce, Axis::data, bytes));
    }
}
BENCHMARK(cost_of_collective);

void make_cost_model(benchmark::State& state) {
    const ClusterSpec cluster = support::h100_cluster(128);
    for (auto _ : state) benchmark::DoNotOptimize(CostModel(cluster, {.tensor = 8, .data = 16, .pipeline = 8}));
}
BENCHMARK(make_cost_model);

}  // namespace
}  // namespace foretrain

BENCHMARK_MAIN();
