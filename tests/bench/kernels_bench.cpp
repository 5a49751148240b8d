// One thread's rate of the kernels at the shapes of GPT-2 124M: hidden 768, 12 heads of 64, one
// sequence of 1024. Rates follow from work(): the same count that the cost model uses.
//
//   build/tests/bench_kernels --benchmark_filter=gemm
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace foretrain {
namespace {

// `bytes` holds the size of each operand. Values are small and not all alike; int32 operands read as
// token 0 or so, which is valid.
void measure(benchmark::State& state, const KernelArgs& args, const std::vector<std::int64_t>& bytes) {
    std::vector<std::vector<float>> memory;
    std::vector<void*> operands;
    for (std::int64_t size : bytes) {
        std::vector<float> values(static_cast<std::size_t>(size / 4));
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>((i * 2654435761U) >> 16 & 1023U) * 1e-3F - 0.5F;
        memory.push_back(std::move(values));
    }
    for (auto& m : memory) operands.push_back(m.data());
    for (auto _ : state) {
        launch(cpu_kernels(), args, {.operand = operands});
        benchmark::ClobberMemory();
    }
    const Work w = work(args);
    const auto rate = [&](std::int64_t amount) {
        return benchmark::Counter(static_cast<double>(amount) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
    };
    state.counters["GFLOP/s"] = rate(w.flops.value);
    state.counters["GB/s"] = rate(w.bytes.value);
}

constexpr std::int64_t tokens = 1024, hidden = 768, heads = 12, head_dim = 64, vocabulary = 50304;

void add(const std::string& name, const KernelArgs& args, std::vector<std::int64_t> elements) {
    for (std::int64_t& n : elements) n *= 4;
    benchmark::RegisterBenchmark(name.c_str(), [args, elements](benchmark::State& s) {
        measure(s, args, elements);
    })->Unit(benchmark::kMillisecond);
}

// A layer of `in` to `out` features: its forward and both of its gradients.
void add_linear(const std::string& name, std::int64_t in, std::int64_t out) {
    const std::int64_t x = tokens * in, w = in * out, y = tokens * out;
    add("gemm/forward/" + name, GemmArgs{.m = tokens, .n = out, .k = in, .transpose_b = true, .bias = true},
        {x, w, y, out});
    add("gemm/input_gradient/" + name, GemmArgs{.m = tokens, .n = in, .k = out}, {y, w, x});
    add("gemm/weight_gradient/" + name,
        GemmArgs{.m = out, .n = in, .k = tokens, .transpose_a = true, .accumulate = true}, {y, x, w});
}

void add_all() {
    add_linear("attention_out", hidden, hidden);
    add_linear("qkv", hidden, 3 * hidden);
    add_linear("ffn_in", hidden, 4 * hidden);
    add_linear("ffn_out", 4 * hidden, hidden);
    add("gemm/forward/head", GemmArgs{.m = tokens, .n = vocabulary, .k = hidden, .transpose_b = true},
        {tokens * hidden, hidden * vocabulary, tokens * vocabulary});

    const std::int64_t n = tokens * hidden, lse = tokens * heads;
    add("attention/forward", AttentionForwardArgs{1, tokens, heads, heads, head_dim}, {3 * n, n, lse});
    add("attention/backward", AttentionBackwardArgs{1, tokens, heads, heads, head_dim}, {n, 3 * n, n, lse, 3 * n});
    add("norm/forward", NormForwardArgs{.rows = tokens, .width = hidden}, {n, n, hidden, hidden});
    add("norm/backward", NormBackwardArgs{.rows = tokens, .width = hidden}, {n, n, n, hidden, n, hidden, hidden});
    add("rms/forward", NormForwardArgs{.rows = tokens, .width = hidden, .rms = true}, {n, n, hidden});
    add("gelu/forward", GeluArgs{.rows = tokens, .width = 4 * hidden}, {4 * n, 4 * n});
    add("gelu/backward", GeluArgs{.rows = tokens, .width = 4 * hidden, .backward = true}, {4 * n, 4 * n, 4 * n});
    add("swiglu/forward", SwigluArgs{.rows = tokens, .width = 4 * hidden}, {8 * n, 4 * n});
    add("swiglu/backward", SwigluArgs{.rows = tokens, .width = 4 * hidden, .backward = true}, {4 * n, 8 * n, 8 * n});
    add("rope", RopeArgs{1, tokens, heads, heads, head_dim}, {3 * n});
    add("residual_add", ResidualAddArgs{.rows = tokens, .width = hidden, .bias = true}, {n, n, n, hidden});
    add("bias_gradient", BiasGradientArgs{.rows = tokens, .width = 4 * hidden}, {4 * n, 4 * hidden});
    const std::int64_t logits = tokens * vocabulary;
    using Part = LossArgs::Part;
    add("loss/max", LossArgs{Part::maximum, tokens, vocabulary, 50257}, {logits, tokens});
    add("loss/sum", LossArgs{Part::sum, tokens, vocabulary, 50257}, {logits, tokens, tokens, 2 * tokens});
    add("loss/backward", LossArgs{Part::backward, tokens, vocabulary, 50257}, {logits, tokens, tokens, logits});
    const std::int64_t parameters = 12 * hidden * hidden;
    add("adamw", AdamwArgs{.elements = parameters}, {parameters, parameters, parameters, parameters});
}

}  // namespace
}  // namespace foretrain

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    foretrain::add_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
