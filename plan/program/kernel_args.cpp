// Kinds, operands and work of the kernels. Each kernel's operands are listed once, in `operands`:
// how many there are, how each is used and how many bytes move all follow from that list.
#include "plan/program/kernel_args.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace foretrain {

namespace {

template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// One operand: what the kernel does with it, and how many of its elements it touches. That is the
// whole tensor, but where `whole` says otherwise: of a table only some rows are looked up.
struct Operand {
    Access access = Access::read;
    std::int64_t elements = 0;
    DType type = DType::fp32;
    std::int64_t whole = elements;

    std::int64_t bytes() const { return elements * size_of(type) * (access == Access::update ? 2 : 1); }
};

struct Operands {
    std::array<Operand, 8> list{};
    int count = 0;

    Operands(std::initializer_list<Operand> operands) {
        for (const Operand& o : operands) add(o);
    }
    void add(Operand o) { list.at(static_cast<std::size_t>(count++)) = o; }
};

constexpr Access add_or_write(bool accumulate) { return accumulate ? Access::update : Access::write; }

// Small per-row results: wide enough for sums of exponentials, whatever the activations are.
constexpr DType row_type(DType type) { return type == DType::fp64 ? DType::fp64 : DType::fp32; }

constexpr Access R = Access::read, W = Access::write, U = Access::update;

// What one of several ranks has of n.
std::int64_t share(std::int64_t n, std::int64_t ranks) { return n / std::max<std::int64_t>(ranks, 1); }

Operands operands(const GemmArgs& a) {
    const std::int64_t g = a.groups;
    Operands o{
        {R, g * a.m * a.k, a.type}, {R, g * a.k * a.n, a.type}, {add_or_write(a.accumulate), g * a.m * a.n, a.output}};
    if (a.bias) o.add({R, g * a.n, a.type});
    return o;
}

Operands operands(const BiasGradientArgs& a) {
    return {{R, a.rows * a.width, a.type}, {add_or_write(a.accumulate), a.width, a.gradient}};
}

Operands operands(const NormForwardArgs& a) {
    const std::int64_t n = a.rows * a.width, rest = a.rows * a.rest;
    Operands o{{R, n + rest, a.type}, {W, n, a.type}, {R, a.width, a.type}};
    if (a.biased()) o.add({R, a.width, a.type});
    if (a.rest > 0) o.add({W, rest, a.type});
    return o;
}

Operands operands(const NormBackwardArgs& a) {
    const std::int64_t n = a.rows * a.width, rest = a.rows * a.rest;
    const Operand weight_gradient{add_or_write(a.accumulate), a.width, a.gradient};
    Operands o{{R, n, a.type}, {R, n, a.type, n + rest}};
    if (a.residual) o.add({R, n, a.type});
    o.add({R, a.width, a.type});
    o.add({W, n + rest, a.type});
    o.add(weight_gradient);
    if (a.biased()) o.add(weight_gradient);
    if (a.rest > 0) o.add({R, rest, a.type});
    return o;
}

Operands operands(const GeluArgs& a) {
    const std::int64_t n = a.rows * a.width;
    if (a.backward) return {{R, n, a.type}, {R, n, a.type}, {W, n, a.type}};
    return {{R, n, a.type}, {W, n, a.type}};
}

Operands operands(const SwigluArgs& a) {
    const std::int64_t n = a.rows * a.width;
    if (a.backward) return {{R, n, a.type}, {R, 2 * n, a.type}, {W, 2 * n, a.type}};
    return {{R, 2 * n, a.type}, {W, n, a.type}};
}

Operands operands(const RopeArgs& a) {  // the values in qkv are not touched
    const std::int64_t rows = a.batch * share(a.sequence, a.context);
    return {{U, rows * (a.heads + a.kv_heads) * a.turned(), a.type, rows * (a.heads + 2 * a.kv_heads) * a.head_dim}};
}

Operands operands(const QkNormArgs& a) {  // nor here
    const std::int64_t n = a.rows * (a.heads + a.kv_heads) * a.head_dim;
    const Operand qkv{U, n, a.type, n + a.rows * a.kv_heads * a.head_dim};
    const std::int64_t query = (a.per_head ? a.heads : 1) * a.head_dim,
                       key = (a.per_head ? a.kv_heads : 1) * a.head_dim;
    if (!a.backward) return {qkv, {W, n, a.type}, {R, query, a.type}, {R, key, a.type}};
    const Access add = add_or_write(a.accumulate);
    return {
        qkv, {R, n, a.type}, {R, query, a.type}, {R, key, a.type}, {add, query, a.gradient}, {add, key, a.gradient}};
}

// In bytes.
template <class Args>
Operand scores(const Args& a, Access access) {
    const std::int64_t keys = a.window > 0 ? std::min(a.window, a.sequence) : a.sequence;
    return {access, a.batch * a.heads * a.sequence * keys * a.score_bytes, DType::fp8};
}

Operands operands(const AttentionForwardArgs& a) {
    const std::int64_t rows = a.batch * a.sequence;
    Operands o{{R, rows * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim())), a.type},
               {W, rows * a.heads * a.value_dim(), a.type},
               {W, rows * a.heads, row_type(a.type)}};
    if (a.score_bytes > 0) o.add(scores(a, W));
    return o;
}

Operands operands(const AttentionBackwardArgs& a) {
    const std::int64_t rows = a.batch * a.sequence;
    const std::int64_t qkv = rows * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.value_dim()));
    const std::int64_t context = rows * a.heads * a.value_dim();
    Operands o{{R, context, a.type},
               {R, qkv, a.type},
               {R, context, a.type},
               {R, rows * a.heads, row_type(a.type)},
               {W, qkv, a.type}};
    if (a.score_bytes > 0) o.add(scores(a, R));
    return o;
}

Operands operands(const RingAttentionArgs& a) {
    const std::int64_t rows = a.batch * share(a.sequence, a.context);
    const std::int64_t queries = rows * a.heads * a.head_dim, context = rows * a.heads * a.value_dim();
    const std::int64_t pairs = rows * a.kv_heads * (a.head_dim + a.value_dim());
    const Access add = add_or_write(a.step > 0);
    const Operand qkv{R, queries, a.type, queries + pairs}, kv{R, pairs, a.type};
    const Operand lse{R, rows * a.heads, row_type(a.type)};
    if (!a.backward) return {qkv, kv, {add, context, a.type}, {add, rows * a.heads, row_type(a.type)}};
    return {{R, context, a.type}, qkv, kv, {R, context, a.type}, lse, {add, queries, a.type, queries + pairs},
            {W, pairs, a.type}};
}

Operands operands(const KeyValueArgs& a) {  // the queries in qkv are not touched
    const std::int64_t pairs = a.rows * a.kv_heads * (a.head_dim + a.value_dim());
    const std::int64_t qkv = pairs + a.rows * a.heads * a.head_dim;
    if (a.unpack) return {{R, pairs, a.type}, {W, pairs, a.type, qkv}};
    return {{R, pairs, a.type, qkv}, {W, pairs, a.type}};
}

Operands operands(const RelayoutArgs& a) {
    const std::int64_t n = a.batch * share(a.sequence, a.context) * a.width;
    return {{R, n, a.type}, {W, n, a.type}};
}

Operands operands(const EmbeddingArgs& a) {
    const std::int64_t looked_up = a.tokens * a.width, table = a.rows * a.width;
    const Operand tokens{R, a.tokens, DType::int32};
    if (!a.backward) return {tokens, {R, looked_up, a.type, table}, {W, looked_up, a.type}};
    const Operand add{U, looked_up, a.gradient, table};
    const Operand zero_and_add{W, table + 2 * looked_up, a.gradient, table};
    return {tokens, {R, looked_up, a.type}, a.accumulate ? add : zero_and_add};
}

Operands operands(const PositionsArgs& a) {
    const std::int64_t n = a.tokens * a.width, used = std::min(a.tokens, a.sequence) * a.width;
    const std::int64_t table = a.table_rows * a.width;
    if (!a.backward) return {{U, n, a.type}, {R, used, a.type, table}};
    if (a.accumulate) return {{R, n, a.type}, {U, used, a.gradient, table}};
    return {{R, n, a.type}, {W, table, a.gradient}};
}

Operands operands(const ResidualAddArgs& a) {
    const std::int64_t n = a.rows * a.width;
    Operands o{{R, n, a.type}, {R, n, a.type}, {W, n, a.type}};
    if (a.bias) o.add({R, a.width, a.type});
    if (a.bias2) o.add({R, a.width, a.type});
    return o;
}

Operands operands(const AccumulateArgs& a) { return {{R, a.elements, a.from}, {U, a.elements, a.to}}; }

Operands operands(const CastArgs& a) { return {{R, a.elements, a.from}, {W, a.elements, a.to}}; }

Operands operands(const LossArgs& a) {
    const DType row = row_type(a.type);
    const Operand logits{R, a.tokens * a.columns, a.type}, targets{R, a.tokens, DType::int32};
    switch (a.part) {
        case LossArgs::Part::maximum: return {logits, {W, a.tokens, row}};
        case LossArgs::Part::sum: return {logits, {R, a.tokens, row}, targets, {W, 2 * a.tokens, row}};
        case LossArgs::Part::forward:
            return {{R, a.tokens, row}, {R, 2 * a.tokens, row}, {W, a.tokens, row}, {U, 1, DType::fp64}};
        case LossArgs::Part::backward:
            return {logits, {R, a.tokens, row}, targets, {W, a.tokens * a.columns, a.gradient}};
    }
    return {};
}

Operands operands(const AdamwArgs& a) {
    const Operand moment{U, a.elements, a.optimizer};
    Operands o{{a.master ? W : U, a.elements, a.type}, {R, a.elements, a.gradient}, moment, moment};
    if (a.master) o.add({U, a.elements, a.optimizer});
    return o;
}

Operands operands(const RouterArgs& a) {
    const Operand in{R, a.rows * a.experts, DType::fp32}, out{W, a.rows * a.experts, DType::fp32};
    if (!a.backward) return {in, out, out};
    return {in, in, in, {W, a.rows * a.experts, a.type}};
}

Operands operands(const PermuteArgs& a) {
    const Operand from{R, a.from * a.width, a.type}, to{W, a.to * a.width, a.type};
    if (a.weighed) return {from, {R, to.elements, a.type}, to};
    return {from, to};
}

Operands operands(const LatentPackArgs& a) {
    const Access parts = a.unpack ? W : R, packed = a.unpack ? R : W;
    const std::int64_t heads = a.rows * a.heads, qk = a.nope + a.rope;
    const Operand q{parts, heads * qk, a.type}, kv{parts, heads * (a.nope + a.v_dim), a.type},
        k_rope{parts, a.rows * a.rope, a.type}, qkv{packed, heads * (2 * qk + a.v_dim), a.type};
    if (a.unpack) return {qkv, q, kv, k_rope};
    return {q, kv, k_rope, qkv};
}

// FLOPs. Outside the GEMMs an exponential, hyperbolic tangent, root or division counts one, as an
// addition does: these kernels are bound by memory, and nothing is read off the third digit.

std::int64_t flops(const GemmArgs& a) { return 2 * a.groups * a.m * a.n * a.k; }
std::int64_t flops(const BiasGradientArgs& a) { return a.rows * a.width; }
std::int64_t flops(const NormForwardArgs& a) { return a.rows * a.width * (a.rms ? 4 : 8); }
std::int64_t flops(const NormBackwardArgs& a) { return a.rows * a.width * (a.rms ? 12 : 18); }
std::int64_t flops(const GeluArgs& a) { return a.rows * a.width * (a.backward ? 15 : 7); }
std::int64_t flops(const SwigluArgs& a) { return a.rows * a.width * (a.backward ? 11 : 5); }
std::int64_t flops(const RopeArgs& a) { return 3 * a.batch * a.sequence * (a.heads + a.kv_heads) * a.turned(); }
std::int64_t flops(const QkNormArgs& a) {
    return a.rows * (a.heads + a.kv_heads) * a.head_dim * (a.backward ? (a.rms ? 12 : 18) : (a.rms ? 4 : 8));
}

// Scores and context are two products of 2 s^2 head_dim each (the second of the values' width), of which the causal
// mask leaves one half: 2 s^2 head_dim a head. That is what the kernel executes but for its diagonal tiles, which it
// computes whole. A window w leaves w s - w^2 / 2 pairs. The softmax is not counted.
std::int64_t twice_pairs(std::int64_t s, std::int64_t window) {
    return window > 0 && window < s ? window * (2 * s - window) : s * s;
}
std::int64_t flops(const AttentionForwardArgs& a) {
    return a.batch * a.heads * twice_pairs(a.sequence, a.window) * (a.head_dim + a.value_dim());
}
// Five such products instead of two: the scores again, and the gradients of P, V, Q and K.
std::int64_t flops(const AttentionBackwardArgs& a) {
    return a.batch * a.heads * twice_pairs(a.sequence, a.window) * (3 * a.head_dim + 2 * a.value_dim());
}

// All steps of all ranks make up the whole; they are alike, as each rank's chunks see equally many keys.
std::int64_t flops(const RingAttentionArgs& a) {
    const std::int64_t tokens = share(a.sequence, a.context);
    const std::int64_t width = a.backward ? 3 * a.head_dim + 2 * a.value_dim() : a.head_dim + a.value_dim();
    return a.batch * a.heads * twice_pairs(tokens, 0) * width;
}
std::int64_t flops(const KeyValueArgs&) { return 0; }
std::int64_t flops(const RelayoutArgs&) { return 0; }

std::int64_t flops(const EmbeddingArgs& a) { return a.backward ? a.tokens * a.width : 0; }
std::int64_t flops(const PositionsArgs& a) { return a.tokens * a.width; }
std::int64_t flops(const ResidualAddArgs& a) { return a.rows * a.width * (1 + (a.bias ? 1 : 0) + (a.bias2 ? 1 : 0)); }
std::int64_t flops(const AccumulateArgs& a) { return a.elements; }
std::int64_t flops(const CastArgs&) { return 0; }

std::int64_t flops(const LossArgs& a) {
    switch (a.part) {
        case LossArgs::Part::maximum: return a.tokens * a.columns;
        case LossArgs::Part::sum: return 3 * a.tokens * a.columns;
        case LossArgs::Part::forward: return 4 * a.tokens;
        case LossArgs::Part::backward: return 3 * a.tokens * a.columns;
    }
    return 0;
}

std::int64_t flops(const AdamwArgs& a) { return 16 * a.elements; }
std::int64_t flops(const RouterArgs& a) { return 5 * a.rows * a.experts; }
std::int64_t flops(const PermuteArgs& a) { return std::max<std::int64_t>(a.from - a.to, 0) * a.width; }
std::int64_t flops(const LatentPackArgs& a) { return 6 * a.rows * a.heads * a.rope; }

KernelKind loss_kind(LossArgs::Part part) {
    switch (part) {
        case LossArgs::Part::maximum: return KernelKind::loss_max;
        case LossArgs::Part::sum: return KernelKind::loss_sum;
        case LossArgs::Part::forward: return KernelKind::loss_forward;
        case LossArgs::Part::backward: return KernelKind::loss_backward;
    }
    return KernelKind::loss_max;
}

Operands operands_of(const KernelArgs& args) {
    return std::visit([](const auto& a) { return operands(a); }, args);
}

Operand operand(const KernelArgs& args, int index) {
    const Operands o = operands_of(args);
    FORETRAIN_CHECK(index >= 0 && index < o.count, std::string(name_of(kind_of(args))) + " has no such operand");
    return o.list[static_cast<std::size_t>(index)];
}

}  // namespace

KernelKind kind_of(const KernelArgs& args) {
    using K = KernelKind;
    return std::visit(
        Overloaded{
            [](const GemmArgs&) { return K::gemm; },
            [](const BiasGradientArgs&) { return K::bias_gradient; },
            [](const NormForwardArgs&) { return K::norm_forward; },
            [](const NormBackwardArgs&) { return K::norm_backward; },
            [](const GeluArgs& a) { return a.backward ? K::gelu_backward : K::gelu_forward; },
            [](const SwigluArgs& a) { return a.backward ? K::swiglu_backward : K::swiglu_forward; },
            [](const RopeArgs&) { return K::rope; },
            [](const QkNormArgs& a) { return a.backward ? K::qk_norm_backward : K::qk_norm_forward; },
            [](const AttentionForwardArgs&) { return K::attention_forward; },
            [](const AttentionBackwardArgs&) { return K::attention_backward; },
            [](const RingAttentionArgs& a) {
                return a.backward ? K::ring_attention_backward : K::ring_attention_forward;
            },
            [](const KeyValueArgs& a) { return a.unpack ? K::key_value_unpack : K::key_value_pack; },
            [](const RelayoutArgs&) { return K::relayout; },
            [](const EmbeddingArgs& a) { return a.backward ? K::embedding_backward : K::embedding_forward; },
            [](const PositionsArgs& a) { return a.backward ? K::positions_backward : K::positions_forward; },
            [](const ResidualAddArgs&) { return K::residual_add; },
            [](const AccumulateArgs&) { return K::accumulate; },
            [](const CastArgs&) { return K::cast; },
            [](const LossArgs& a) { return loss_kind(a.part); },
            [](const AdamwArgs&) { return K::adamw; },
            [](const RouterArgs& a) { return a.backward ? K::router_backward : K::router_forward; },
            [](const PermuteArgs&) { return K::permute; },
            [](const LatentPackArgs& a) { return a.unpack ? K::latent_unpack : K::latent_pack; },
        },
        args);
}

Work work(const KernelArgs& args) {
    Work w;
    w.flops = Flops{std::visit([](const auto& a) { return flops(a); }, args)};
    const Operands o = operands_of(args);
    for (int i = 0; i < o.count; ++i) w.bytes += Bytes{o.list[static_cast<std::size_t>(i)].bytes()};
    return w;
}

int operand_count(const KernelArgs& args) { return operands_of(args).count; }

Access operand_access(const KernelArgs& args, int index) { return operand(args, index).access; }
std::int64_t operand_elements(const KernelArgs& args, int index) { return operand(args, index).whole; }
DType operand_type(const KernelArgs& args, int index) { return operand(args, index).type; }

}  // namespace foretrain
