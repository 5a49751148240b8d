#include "exec/calibrate_cases.h"

#include <utility>

namespace foretrain {

namespace {

// Tokens of a microbatch on one rank, and hidden size.
struct Size {
    std::int64_t tokens, hidden;
};
constexpr Size sizes[] = {{128, 128}, {256, 256}, {512, 512}};

class Cases {
public:
    explicit Cases(DType type) : type_(type) {}

    std::vector<KernelCase> take() && { return std::move(cases_); }

    void gemms() {
        constexpr Size shapes[] = {{128, 128}, {512, 128}, {256, 256}, {128, 512}, {512, 384}, {256, 768}};
        for (const auto [t, h] : shapes) {
            linear(t, 3 * h, h);           // query, key, value
            linear(t, h, 4 * h);           // second of the MLP
            input_gradient(t, h, 4 * h);   // first of the MLP
            weight_gradient(t, 4 * h, h);  // the same
        }
        linear(128, 4096, 128);  // a head
        weight_gradient(256, 2048, 256);
        linear(512, 32, 64);  // shards of tensor parallelism are narrow
        input_gradient(512, 64, 32);
    }

    void rows() {
        for (const auto [t, h] : sizes) {
            const std::int64_t n = t * h;
            add(BiasGradientArgs{.rows = t, .width = 4 * h, .type = type_, .gradient = type_},
                {real(4 * n), real(4 * h)});
            add(NormForwardArgs{.rows = t, .width = h, .type = type_}, {real(n), real(n), real(h), real(h)});
            add(NormForwardArgs{.rows = t, .width = h, .rms = true, .type = type_}, {real(n), real(n), real(h)});
            add(NormBackwardArgs{.rows = t, .width = h, .type = type_, .gradient = type_},
                {real(n), real(n), real(n), real(h), real(n), real(h), real(h)});
            add(NormBackwardArgs{.rows = t, .width = h, .rms = true, .type = type_, .gradient = type_},
                {real(n), real(n), real(n), real(h), real(n), real(h)});
            add(GeluArgs{.rows = t, .width = 4 * h, .type = type_}, {real(4 * n), real(4 * n)});
            add(GeluArgs{.rows = t, .width = 4 * h, .backward = true, .type = type_},
                {real(4 * n), real(4 * n), real(4 * n)});
            add(SwigluArgs{.rows = t, .width = 2 * h, .type = type_}, {real(4 * n), real(2 * n)});
            add(SwigluArgs{.rows = t, .width = 2 * h, .backward = true, .type = type_},
                {real(2 * n), real(4 * n), real(4 * n)});
            add(ResidualAddArgs{.rows = t, .width = h, .bias = true, .type = type_},
                {real(n), real(n), real(n), real(h)}, 1);
            add(ResidualAddArgs{.rows = t, .width = h, .type = type_}, {real(n), real(n), real(n)}, 1);
        }
    }

    void attention() {
        for (const std::int64_t head_dim : {16, 32, 64, 128}) {
            for (const auto& [sequence, batch] :
                 {std::pair<std::int64_t, std::int64_t>{128, 1}, {128, 4}, {256, 2}, {512, 1}}) {
                const std::int64_t heads = 4;
                const std::int64_t rows = batch * sequence;
                const std::int64_t context = rows * heads * head_dim;
                add(AttentionForwardArgs{batch, sequence, heads, heads, head_dim, type_},
                    {real(3 * context), real(context), real(rows * heads)});
                add(AttentionBackwardArgs{batch, sequence, heads, heads, head_dim, type_},
                    {real(context), real(3 * context), real(context), real(rows * heads), real(3 * context)});
            }
            add(RopeArgs{.batch = 1, .sequence = 256, .heads = 4, .kv_heads = 4, .head_dim = head_dim, .type = type_},
                {real(256 * 12 * head_dim)});
            const std::int64_t queries = 256 * 4 * head_dim;
            add(KeyValueArgs{256, 4, 4, head_dim, false, type_}, {real(3 * queries), real(2 * queries)});
            add(KeyValueArgs{256, 4, 4, head_dim, true, type_}, {real(2 * queries), real(3 * queries)});
            add(RelayoutArgs{RelayoutArgs::Part::split_heads, 1, 512, 12 * head_dim, 2, type_},
                {real(3 * queries), real(3 * queries)});
            add(RelayoutArgs{RelayoutArgs::Part::join_sequence, 1, 512, 12 * head_dim, 2, type_},
                {real(3 * queries), real(3 * queries)});
            QkNormArgs norm{.rows = 256, .heads = 4, .kv_heads = 4, .head_dim = head_dim, .type = type_};
            norm.gradient = type_;
            add(norm, {real(256 * 12 * head_dim), real(256 * 8 * head_dim), real(head_dim), real(head_dim)});
            norm.backward = true;
            add(norm, {real(256 * 12 * head_dim), real(256 * 8 * head_dim), real(head_dim), real(head_dim),
                       real(head_dim), real(head_dim)});
        }
    }

    void tables() {
        for (const auto [t, h] : sizes) {
            const std::int64_t rows = 1024;
            const CaseOperand tokens{t, DType::int32, 64};
            add(EmbeddingArgs{.tokens = t, .rows = rows, .width = h, .type = type_, .gradient = type_},
                {tokens, real(rows * h), real(t * h)});
            add(
                PositionsArgs{
                    .tokens = t, .sequence = t, .table_rows = t, .width = h, .type = type_, .gradient = type_},
                {real(t * h), real(t * h)});
            for (const bool accumulate : {false, true}) {
                add(EmbeddingArgs{t, rows, h, true, accumulate, type_, type_}, {tokens, real(t * h), real(rows * h)},
                    1);
                add(PositionsArgs{t, t, t, h, false, true, accumulate, type_, type_}, {real(t * h), real(t * h)});
            }
        }
    }

    void loss() {
        for (const auto& [t, columns] : {std::pair<std::int64_t, std::int64_t>{128, 1024}, {256, 4096}, {512, 512}}) {
            LossArgs args{.tokens = t,
                          .columns = columns,
                          .vocabulary = columns,
                          .scale = 1.0 / 4096,
                          .type = type_,
                          .gradient = type_};
            const CaseOperand targets{t, DType::int32, 64};
            const CaseOperand logits = real(t * columns);
            args.part = LossArgs::Part::maximum;
            add(args, {logits, real(t)});
            args.part = LossArgs::Part::sum;
            add(args, {logits, real(t), targets, real(2 * t)});
            args.part = LossArgs::Part::forward;
            add(args, {real(t), real(2 * t), real(t), {1, DType::fp64}});
            args.part = LossArgs::Part::backward;
            add(args, {logits, real(t), targets, logits});
        }
    }

    void flat() {
        for (const std::int64_t n : {1 << 14, 1 << 17, 1 << 20}) {
            add(AccumulateArgs{n, type_, type_}, {real(n), real(n)});
            add(AdamwArgs{.elements = n, .type = type_, .gradient = type_, .optimizer = type_},
                {real(n), real(n), real(n), real(n)}, -1);
        }
    }

private:
    CaseOperand real(std::int64_t elements) const { return {elements, type_}; }

    void add(KernelArgs args, std::vector<CaseOperand> operands, int hot = 0) {
        cases_.push_back({std::move(args), std::move(operands), hot});
    }

    void linear(std::int64_t t, std::int64_t out, std::int64_t in) {
        add(GemmArgs{.m = t, .n = out, .k = in, .transpose_b = true, .bias = true, .type = type_, .output = type_},
            {real(t * in), real(out * in), real(t * out), real(out)});
    }
    void input_gradient(std::int64_t t, std::int64_t in, std::int64_t out) {
        add(GemmArgs{.m = t, .n = in, .k = out, .role = GemmRole::input_gradient, .type = type_, .output = type_},
            {real(t * out), real(out * in), real(t * in)});
    }
    void weight_gradient(std::int64_t t, std::int64_t out, std::int64_t in) {
        add(GemmArgs{.m = out,
                     .n = in,
                     .k = t,
                     .transpose_a = true,
                     .accumulate = true,
                     .role = GemmRole::weight_gradient,
                     .type = type_,
                     .output = type_},
            {real(t * out), real(t * in), real(out * in)});
    }

    DType type_;
    std::vector<KernelCase> cases_;
};

}  // namespace

std::vector<KernelCase> gemm_cases(DType type) {
    Cases cases(type);
    cases.gemms();
    return std::move(cases).take();
}

std::vector<KernelCase> other_cases(DType type) {
    Cases cases(type);
    cases.rows();
    cases.attention();
    cases.tables();
    cases.loss();
    cases.flat();
    return std::move(cases).take();
}

}  // namespace foretrain
