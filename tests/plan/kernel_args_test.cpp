#include "plan/program/kernel_args.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/error.h"

namespace foretrain {
namespace {

constexpr DType bf16 = DType::bf16, fp32 = DType::fp32, fp64 = DType::fp64;

// One call of every kind, no field at its default.
std::vector<KernelArgs> every_kind() {
    using Part = LossArgs::Part;
    std::vector<KernelArgs> calls{
        GemmArgs{3, 5, 7, true, true, true, true, GemmRole::weight_gradient, bf16, fp64, DType::nvfp4, 4},
        BiasGradientArgs{3, 5, false, bf16, fp64},
        NormForwardArgs{3, 5, true, 1e-6, bf16, true, 2},
        NormBackwardArgs{3, 5, true, false, false, 0.1, bf16, fp64, true, 2},
        RopeArgs{2, 3, 4, 2, 8, 500000.5, true, bf16, 6, 3},
        AttentionForwardArgs{2, 3, 4, 2, 8, bf16, 2, 5, 6},
        AttentionBackwardArgs{2, 3, 4, 2, 8, bf16, 2, 5, 6},
        RelayoutArgs{RelayoutArgs::Part::split_sequence, 2, 12, 8, 2, bf16},
        ResidualAddArgs{3, 5, true, bf16, true},
        AccumulateArgs{9, bf16, fp64},
        CastArgs{9, fp64, bf16},
        PermuteArgs{9, 18, 5, bf16, true},
        AdamwArgs{9, 3e-4, 0.8, 1.0 / 3, 1e-300, 0.05, true, bf16, bf16, fp64},
    };
    for (bool backward : {false, true}) {
        calls.push_back(GeluArgs{3, 5, backward, bf16, Pointwise::squared_relu, true});
        calls.push_back(SwigluArgs{3, 5, backward, bf16, Pointwise::relu, true});
        calls.push_back(QkNormArgs{3, 4, 2, 8, true, false, backward, false, 0.1, bf16, fp64});
        calls.push_back(RingAttentionArgs{2, 12, 4, 2, 8, 3, 2, backward, bf16, 6});
        calls.push_back(KeyValueArgs{3, 4, 2, 8, backward, bf16, 6});
        calls.push_back(RouterArgs{3, 8, 2, backward, bf16});
        calls.push_back(LatentPackArgs{3, 4, 8, 6, 5, backward, bf16});
        calls.push_back(EmbeddingArgs{3, 5, 7, backward, false, bf16, fp64});
        calls.push_back(PositionsArgs{3, 5, 7, 9, true, backward, false, bf16, fp64, 5});
    }
    for (Part part : {Part::maximum, Part::sum, Part::forward, Part::backward})
        calls.push_back(LossArgs{part, 3, 5, 7, 1.0 / 3, bf16, fp64});
    return calls;
}

TEST(KernelArgs, TextReadsBackExactlyForEveryKind) {
    std::set<KernelKind> kinds;
    for (const KernelArgs& call : every_kind()) {
        kinds.insert(kind_of(call));
        EXPECT_EQ(kernel_args_from_text(to_text(call)), call) << to_text(call);
    }
    EXPECT_EQ(kinds.size(), kernel_kind_names.size());
}

// Products side by side are as much work as one after the other.
TEST(KernelArgs, GroupsAreSoManyProducts) {
    GemmArgs one{3, 5, 7, false, true, false, true, GemmRole::forward, bf16, bf16};
    const Work work_of_one = work(one);
    one.groups = 6;
    EXPECT_EQ(work(one).flops, work_of_one.flops * 6);
    EXPECT_EQ(work(one).bytes, work_of_one.bytes * 6);
}

TEST(KernelArgs, ValuesOfAnotherWidth) {
    AttentionForwardArgs a{2, 16, 4, 4, 8, bf16};
    AttentionBackwardArgs b{2, 16, 4, 4, 8, bf16};
    const Flops alike = work(a).flops, back = work(b).flops;
    a.v_head_dim = b.v_head_dim = 8;
    EXPECT_EQ(work(a).flops, alike);
    a.v_head_dim = b.v_head_dim = 4;
    EXPECT_EQ(work(a).flops, Flops{alike.value * 3 / 4});  // scores in full, context by half
    EXPECT_EQ(work(b).flops, Flops{back.value * 4 / 5});   // 3 of 5 in full, 2 by half
    EXPECT_EQ(operand_elements(a, 0), 2 * 16 * 4 * (8 + 8 + 4));
    EXPECT_EQ(operand_elements(a, 1), 2 * 16 * 4 * 4);
}

// All steps of all ranks do what one kernel over the whole sequence does.
TEST(KernelArgs, TheStepsOfARingMakeUpTheWhole) {
    for (const bool backward : {false, true}) {
        const RingAttentionArgs step{2, 24, 4, 2, 8, 3, 1, backward, bf16};
        const KernelArgs whole = backward ? KernelArgs(AttentionBackwardArgs{2, 24, 4, 2, 8, bf16})
                                          : KernelArgs(AttentionForwardArgs{2, 24, 4, 2, 8, bf16});
        EXPECT_EQ(work(step).flops * (3 * 3), work(whole).flops);
    }
    const KernelArgs first = RingAttentionArgs{
        .batch = 2, .sequence = 24, .heads = 4, .kv_heads = 2, .head_dim = 8, .context = 3, .step = 0};
    const KernelArgs later = RingAttentionArgs{
        .batch = 2, .sequence = 24, .heads = 4, .kv_heads = 2, .head_dim = 8, .context = 3, .step = 2};
    EXPECT_EQ(operand_access(first, 2), Access::write);
    EXPECT_EQ(operand_access(later, 2), Access::update);
    EXPECT_EQ(operand_elements(first, 0), 2 * 8 * (4 + 2 * 2) * 8);  // the queries' keys and values too
    EXPECT_EQ(operand_elements(first, 1), 2 * 8 * 2 * 2 * 8);
}

TEST(KernelArgs, OperandsAreWholeTensors) {
    const KernelArgs lookup = EmbeddingArgs{.tokens = 3, .rows = 5, .width = 7, .type = bf16};
    EXPECT_EQ(operand_elements(lookup, 1), 5 * 7);  // the table, though three rows are looked up
    EXPECT_EQ(operand_type(lookup, 0), DType::int32);
    const KernelArgs rope = RopeArgs{.batch = 2, .sequence = 3, .heads = 4, .kv_heads = 2, .head_dim = 8};
    EXPECT_EQ(operand_elements(rope, 0), 2 * 3 * (4 + 2 * 2) * 8);  // the values too, though they stay
    const KernelArgs position =
        PositionsArgs{.tokens = 3, .sequence = 5, .table_rows = 9, .width = 7, .backward = true};
    EXPECT_EQ(operand_elements(position, 1), 9 * 7);
}

TEST(KernelArgs, TextIsOneLineOfFields) {
    const KernelArgs call = GemmArgs{.m = 4, .n = 5, .k = 6, .transpose_b = true, .type = bf16};
    EXPECT_EQ(to_text(call),
              "gemm m=4 n=5 k=6 transpose_a=false transpose_b=true accumulate=false bias=false role=forward type=bf16 "
              "output=fp32");
    EXPECT_EQ(to_text(GemmArgs{.m = 4, .n = 5, .k = 6, .type = bf16, .quantised = DType::mxfp8}),
              "gemm m=4 n=5 k=6 transpose_a=false transpose_b=false accumulate=false bias=false role=forward type=bf16 "
              "output=fp32 quantised=mxfp8");
    EXPECT_THROW(kernel_args_from_text("gemm m=4 n=5 k=6 quantised=bf16"), UserError);
    EXPECT_EQ(to_text(NormForwardArgs{.rows = 1, .width = 2, .epsilon = 0.1}),
              "norm_forward rows=1 width=2 rms=false epsilon=0.1 type=fp32");
    // What few models use is printed where they do.
    EXPECT_EQ(to_text(GeluArgs{1, 2, false, bf16, Pointwise::relu}),
              "gelu_forward rows=1 width=2 function=relu type=bf16");
    EXPECT_EQ(to_text(AttentionForwardArgs{1, 8, 2, 2, 4, bf16, 4}),
              "attention_forward batch=1 sequence=8 heads=2 kv_heads=2 head_dim=4 type=bf16 window=4");
    EXPECT_EQ(kernel_args_from_text("  gelu_backward  rows=4 "), KernelArgs(GeluArgs{.rows = 4, .backward = true}));
}

TEST(KernelArgs, WrongTextNamesKernelFieldAndValue) {
    const auto error = [](const char* text) -> UserErrorText {
        try {
            kernel_args_from_text(text);
        } catch (const UserError& e) {
            return e.text();
        }
        return {};
    };
    EXPECT_EQ(error("gem m=1").suggestion, "gemm");
    EXPECT_EQ(error("").field, "kernel");
    EXPECT_EQ(error("rope teta=3").suggestion, "theta");
    EXPECT_EQ(error("gelu_forward backward=true").found, "\"backward\"");
    EXPECT_EQ(error("cast from=fp31").field, "cast.from");
    EXPECT_EQ(error("gelu_forward function=tanh").field, "gelu_forward.function");
    EXPECT_EQ(error("gemm role=backward").field, "gemm.role");
    for (const char* text : {"gemm m", "gemm m=", "gemm m=1x", "gemm m=-1", "gemm m=1.5", "gemm m=9223372036854775808",
                             "gemm m=1 m=1", "gemm bias=1", "rope theta=inf", "rope theta=nan", "rope theta=1e999"})
        EXPECT_THROW(kernel_args_from_text(text), UserError) << text;
}

TEST(KernelArgs, GemmWork) {
    GemmArgs a{.m = 10, .n = 20, .k = 30, .type = bf16, .output = fp32};
    EXPECT_EQ(work(a).flops, Flops{12000});
    EXPECT_EQ(work(a).bytes, Bytes{2 * 300 + 2 * 600 + 4 * 200});
    a.accumulate = true;  // C is read too
    a.bias = true;
    EXPECT_EQ(work(a).flops, Flops{12000});
    EXPECT_EQ(work(a).bytes, Bytes{2 * 300 + 2 * 600 + 8 * 200 + 2 * 20});
}

TEST(KernelArgs, NormWork) {
    EXPECT_EQ(work(NormForwardArgs{.rows = 10, .width = 20}).bytes, Bytes{4 * (200 + 200 + 20 + 20)});
    EXPECT_EQ(work(NormForwardArgs{.rows = 10, .width = 20}).flops, Flops{8 * 200});
    EXPECT_EQ(work(NormForwardArgs{.rows = 10, .width = 20, .rms = true}).bytes, Bytes{4 * (200 + 200 + 20)});
    EXPECT_EQ(work(NormBackwardArgs{.rows = 10, .width = 20, .type = bf16}).bytes,
              Bytes{2 * (4 * 200 + 20) + 2 * 4 * (20 + 20)});
}

// Of 16 queries with a window of 4, in the continuous count 4 * 16 - 4 * 4 / 2 pairs.
TEST(KernelArgs, AWindowLeavesFewerPairs) {
    EXPECT_EQ(work(AttentionForwardArgs{1, 16, 1, 1, 8, bf16, 4}).flops, Flops{2 * 2 * (4 * 16 - 8) * 8});
    EXPECT_EQ(work(AttentionBackwardArgs{1, 16, 1, 1, 8, bf16, 4}).flops, Flops{5 * 2 * (4 * 16 - 8) * 8});
    for (std::int64_t none : {0, 16, 100})
        EXPECT_EQ(work(AttentionForwardArgs{1, 16, 1, 1, 8, bf16, none}).flops, Flops{2 * 16 * 16 * 8});
}

TEST(KernelArgs, AttentionWorkCountsTheCausalHalf) {
    // 2 x 4 heads, 16 x 16 scores of 8: two products of 2 * 16 * 16 * 8, halved.
    EXPECT_EQ(work(AttentionForwardArgs{2, 16, 4, 2, 8, bf16}).flops, Flops{2 * 4 * (2 * 2 * 16 * 16 * 8) / 2});
    EXPECT_EQ(work(AttentionBackwardArgs{2, 16, 4, 2, 8, bf16}).flops, Flops{2 * 4 * (5 * 2 * 16 * 16 * 8) / 2});
    // 32 rows; qkv is (4 + 2*2) * 8 wide, context 4 * 8, lse 4 in fp32.
    EXPECT_EQ(work(AttentionForwardArgs{2, 16, 4, 2, 8, bf16}).bytes, Bytes{32 * (2 * 64 + 2 * 32 + 4 * 4)});
    EXPECT_EQ(work(AttentionForwardArgs{2, 16, 4, 2, 8, fp64}).bytes, Bytes{32 * 8 * (64 + 32 + 4)});
    EXPECT_EQ(work(AttentionBackwardArgs{2, 16, 4, 2, 8, bf16}).bytes, Bytes{32 * (2 * (64 + 64 + 32 + 32) + 4 * 4)});
}

std::string accesses(const KernelArgs& args) {
    std::string text;
    for (int i = 0; i < operand_count(args); ++i) text += "rwu"[static_cast<int>(operand_access(args, i))];
    return text;
}

TEST(KernelArgs, OperandsAsTheHeaderSays) {
    using Part = LossArgs::Part;
    EXPECT_EQ(accesses(GemmArgs{}), "rrw");
    EXPECT_EQ(accesses(GemmArgs{.accumulate = true, .bias = true}), "rrur");
    EXPECT_EQ(accesses(BiasGradientArgs{}), "ru");
    EXPECT_EQ(accesses(BiasGradientArgs{.accumulate = false}), "rw");
    EXPECT_EQ(accesses(NormForwardArgs{}), "rwrr");
    EXPECT_EQ(accesses(NormForwardArgs{.rms = true}), "rwr");
    EXPECT_EQ(accesses(NormBackwardArgs{}), "rrrrwuu");
    EXPECT_EQ(accesses(NormBackwardArgs{.rms = true, .accumulate = false}), "rrrrww");
    EXPECT_EQ(accesses(NormBackwardArgs{.rms = true, .residual = false}), "rrrwu");
    EXPECT_EQ(accesses(GeluArgs{}), "rw");
    EXPECT_EQ(accesses(GeluArgs{.backward = true}), "rrw");
    EXPECT_EQ(accesses(SwigluArgs{.backward = true}), "rrw");
    EXPECT_EQ(accesses(RopeArgs{}), "u");
    EXPECT_EQ(accesses(QkNormArgs{}), "uwrr");
    EXPECT_EQ(accesses(QkNormArgs{.backward = true}), "urrruu");
    EXPECT_EQ(accesses(AttentionForwardArgs{}), "rww");
    EXPECT_EQ(accesses(AttentionBackwardArgs{}), "rrrrw");
    EXPECT_EQ(accesses(EmbeddingArgs{}), "rrw");
    EXPECT_EQ(accesses(EmbeddingArgs{.backward = true}), "rru");
    EXPECT_EQ(accesses(EmbeddingArgs{.backward = true, .accumulate = false}), "rrw");
    EXPECT_EQ(accesses(PositionsArgs{}), "ur");
    EXPECT_EQ(accesses(PositionsArgs{.backward = true}), "ru");
    EXPECT_EQ(accesses(ResidualAddArgs{.bias = true}), "rrwr");
    EXPECT_EQ(accesses(AccumulateArgs{}), "ru");
    EXPECT_EQ(accesses(CastArgs{}), "rw");
    EXPECT_EQ(accesses(LossArgs{.part = Part::maximum}), "rw");
    EXPECT_EQ(accesses(LossArgs{.part = Part::sum}), "rrrw");
    EXPECT_EQ(accesses(LossArgs{.part = Part::forward}), "rrwu");
    EXPECT_EQ(accesses(LossArgs{.part = Part::backward}), "rrrw");
    EXPECT_EQ(accesses(AdamwArgs{}), "uruu");
    EXPECT_EQ(accesses(AdamwArgs{.master = true}), "wruuu");
    EXPECT_THROW(operand_access(GemmArgs{}, 3), InternalError);
}

TEST(KernelArgs, SparseTablesCountTheRowsTouched) {
    EXPECT_EQ(work(EmbeddingArgs{.tokens = 3, .rows = 1000, .width = 8}).bytes, Bytes{4 * (3 + 24 + 24)});
    EXPECT_EQ(work(EmbeddingArgs{.tokens = 3, .rows = 1000, .width = 8, .backward = true}).bytes,
              Bytes{4 * (3 + 24 + 48)});
    EXPECT_EQ(work(PositionsArgs{.tokens = 6, .sequence = 3, .table_rows = 100, .width = 8}).bytes,
              Bytes{4 * (2 * 48 + 24)});
    EXPECT_EQ(work(AdamwArgs{.elements = 10}).bytes, Bytes{4 * 10 * 7});
}

}  // namespace
}  // namespace foretrain
