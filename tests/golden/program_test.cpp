// A program that a person can follow: two stages, two microbatches, two data ranks, ZeRO-1, a tied
// embedding. tests/golden/two_stages.txt holds its chunk-level text; this file holds its timeline,
// worked out by hand, against what `estimate` and `simulate` say.
//
// The machine is imagined so that the numbers are small: every kernel, fill and load takes 1 us,
// every message 2 us, every collective 3 us, whatever its size. Times in us.
//
//   Kernels of a pass. A layer forward: norm, qkv, attention, projection, add, norm, fc1, gelu, fc2,
//   add = 10. Backward: fc2 (2 products), gelu, fc1 (2), norm, projection (2), attention, qkv (2),
//   norm = 12.
//     stage 0: F = load, embedding, positions + 10 = 13;  B = 12 + positions, embedding = 14
//     stage 1: F = load + 10 + norm, logits, max, sum, loss = 16;  B = loss, 2 products, norm + 12 = 16
//
//   stage 0  F0 0-13   F1 13-26   (waits for B0's gradient)     B0 49-63   B1 81-95
//   stage 1  clears the loss 0-1; F0 15-31  B0 31-47  F1 47-63  B1 63-79
//     messages: F0 13-15, F1 26-28, B0 47-49, B1 79-81
//
//   Reductions, one after the other on their stream, each when its unit's last gradient is written:
//     stage 1, during B1: head (written at 65) 65-68, final_norm (67) 68-71, layer1 (79) 79-82,
//       then the loss 82-85, then it is ready for the tied embedding
//     stage 0, during B1: layer0 (93) 93-96, positions (94) 96-99, embedding (95) 99-102
//     tied embedding, both stages: 102-105
//
//   Optimizer, both stages, three units each: step, clear, step, clear, step, clear 105-111; the
//   gathers of the weights follow each step: 106-109, 109-112, 112-115. The step ends at 115.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "plan/program/verify.h"
#include "sim/estimate.h"
#include "sim/simulator.h"

namespace foretrain::test {
namespace {

ClusterSpec imagined_machine() {
    constexpr double endless = 1e15;  // GB/s or TFLOP/s: sizes cost nothing
    ClusterSpec c;
    c.name = "imagined";
    c.nodes = 1;
    c.devices_per_node = 4;
    c.device.name = "imagined";
    c.device.peak[DType::bf16] = FlopRate::tera(endless);
    c.device.memory = Bytes{GiB};
    c.device.memory_bandwidth = Bandwidth::gigabytes(endless);
    c.device.calibration.gemm = {{.dtype = DType::bf16, .launch_us = 1, .tiles = {{1, 1}}, .splits = {1}}};
    c.device.calibration.attention.forward = {.efficiency = {{128, 1.0}}, .launch_us = 1};
    c.device.calibration.attention.backward = {.efficiency = {{128, 1.0}}, .launch_us = 1};
    c.device.calibration.memory_bound.launch_us = 1;
    c.domain.ring_gbps = c.domain.pairwise_gbps = endless;
    c.domain.a_us = 3;
    c.domain.pairwise_a_us = 2;
    c.domain.simple_from = Bytes{GiB};
    return c;
}

Plan two_stages() {
    Plan plan;
    plan.model = {.name = "golden",
                  .layers = 2,
                  .hidden_size = 8,
                  .attention_heads = 2,
                  .kv_heads = 2,
                  .head_dim = 4,
                  .ffn_hidden_size = 16,
                  .vocab_size = 16,
                  .tied_embeddings = true,
                  .positions = Positions::learned,
                  .max_positions = 4,
                  .norm = Norm::layernorm,
                  .activation = Activation::gelu};
    plan.cluster = imagined_machine();
    plan.framework = "foretrain";
    plan.training.global_batch_size = 4;
    plan.training.sequence_length = 4;
    plan.parallelism.pipeline = 2;
    plan.parallelism.data = 2;
    plan.parallelism.zero_stage = 1;
    return plan;
}

bool begins_backward(const KernelArgs& args) {
    const auto* gemm = std::get_if<GemmArgs>(&args);
    return kind_of(args) == KernelKind::loss_backward || (gemm != nullptr && gemm->role != GemmRole::forward);
}

// "B1 81-95": from the start of a pass's first kernel to the end of its last, a line each.
std::string passes(const Program& program, const Trace& trace, std::size_t stage) {
    std::string out;
    std::string label;
    Time start, end;
    const auto flush = [&] {
        if (!label.empty())
            out +=
                label + " " + std::to_string(start.value / 1000000) + "-" + std::to_string(end.value / 1000000) + "\n";
    };
    bool backward = false;
    for (const Span& span : trace.ranks[stage].steps[0].spans) {
        const Instruction& i = program.stages[stage].instructions[static_cast<std::size_t>(span.instruction)];
        if (i.kind != InstructionKind::kernel && i.kind != InstructionKind::load_batch) continue;
        if (i.kind == InstructionKind::load_batch) backward = false;  // a forward pass begins with it
        if (i.kind == InstructionKind::kernel)
            backward |= begins_backward(program.stages[stage].kernels[static_cast<std::size_t>(i.kernel)]);
        const std::string now = i.microbatch < 0 ? "step" : (backward ? "B" : "F") + std::to_string(i.microbatch);
        if (now != label) {
            flush();
            label = now;
            start = span.start;
        }
        end = span.end;
    }
    flush();
    return out;
}

std::string collectives(const Program& program, const Trace& trace, std::size_t stage) {
    std::string out;
    for (const Span& span : trace.ranks[stage].steps[0].spans) {
        const Instruction& i = program.stages[stage].instructions[static_cast<std::size_t>(span.instruction)];
        if (i.axis == Axis::none) continue;
        const std::string& tensor = program.stages[stage].buffers[static_cast<std::size_t>(i.operand[0])].name;
        out += std::string(name_of(i.kind)) + " " + tensor + " " + std::to_string(span.start.value / 1000000) + "-" +
               std::to_string(span.end.value / 1000000) + "\n";
    }
    return out;
}

TEST(Golden, ChunkProgramReadsAsWritten) {
    std::ifstream file(FORETRAIN_SOURCE_DIR "/tests/golden/two_stages.txt");
    std::stringstream written;
    written << file.rdbuf();
    const Program program = unroll(make_skeleton(two_stages()));
    EXPECT_EQ(to_text(program), written.str()) << "foretrain print --chunks changed; read it before you accept it";
    EXPECT_EQ(program_from_text(written.str()), program);
}

TEST(Golden, TimelineIsTheOneWorkedOutByHand) {
    const Plan plan = two_stages();
    const Skeleton skeleton = make_skeleton(plan);
    const CostModel cost(plan);
    const Program program = lower(skeleton);
    ASSERT_EQ(verify(program), std::nullopt);
    const Trace trace = simulate(program, cost);
    EXPECT_EQ(passes(program, trace, 0), "F0 0-13\nF1 13-26\nB0 49-63\nB1 81-95\nstep 105-110\n");
    EXPECT_EQ(passes(program, trace, 1), "F0 15-31\nB0 31-47\nF1 47-63\nB1 63-79\nstep 105-110\n");
    EXPECT_EQ(collectives(program, trace, 0),
              "send output#0 13-15\nsend output#1 26-28\nrecv output_gradient#0 47-49\nrecv output_gradient#1 79-81\n"
              "reduce_scatter layer0.gradient 93-96\nreduce_scatter positions.gradient 96-99\n"
              "reduce_scatter embedding.gradient 99-102\nall_reduce embedding.gradient_shard 102-105\n"
              "all_gather embedding.weight_shard 106-109\nall_gather positions.weight_shard 109-112\n"
              "all_gather layer0.weight_shard 112-115\n");
    EXPECT_EQ(collectives(program, trace, 1),
              "recv input#0 13-15\nsend input_gradient#0 47-49\nrecv input#1 26-28\n"
              "reduce_scatter head.gradient 65-68\nreduce_scatter final_norm.gradient 68-71\n"
              "reduce_scatter layer1.gradient 79-82\nsend input_gradient#1 79-81\nall_reduce loss 82-85\n"
              "all_reduce head.gradient_shard 102-105\nall_gather layer1.weight_shard 106-109\n"
              "all_gather final_norm.weight_shard 109-112\nall_gather head.weight_shard 112-115\n");
    EXPECT_EQ(step_time(trace), from_microseconds(115));
    EXPECT_EQ(Estimator(skeleton, cost).estimate().step, from_microseconds(115));
}

}  // namespace
}  // namespace foretrain::test
