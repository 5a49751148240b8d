// The arguments of every kernel. The cost model and the kernel receive the same object, so that
// work is counted once: `work(args)` gives the FLOPs and the bytes of memory traffic.
//
// Tensors are dense and row-major. Each struct names its operands in order, with their shapes;
// `const` ones are only read. `type` is the element type of activations and weights, `gradient`
// that of gradients. Small per-row results (lse, maxima) are fp32, or fp64 when type is fp64.
//
//   KernelArgs call = GemmArgs{.m = 4096, .n = 12288, .k = 4096, .transpose_b = true, .type = DType::bf16};
//   Work w = work(call);      // w.flops == 2 m n k
//   to_text(call)             // "gemm m=4096 n=12288 k=4096 ... type=bf16"; from_text parses it back
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/dtype.h"
#include "base/kernel_kind.h"
#include "base/units.h"

namespace foretrain {

struct Work {
    Flops flops;
    Bytes bytes;  // read and written, each operand once
};

// What a GEMM is for; the arithmetic is the same, the measured efficiency is not.
enum class GemmRole : std::uint8_t { forward, input_gradient, weight_gradient };

// C = op(A) op(B) [+ C] [+ bias].  Operands: const A, const B, C (m, n), const bias (n) if `bias`.
// A is (m, k), or (k, m) if transpose_a; B is (k, n), or (n, k) if transpose_b. With `groups` there are as many
// such products of one size, their operands side by side: those of a rank's experts. Predicted, never executed.
struct GemmArgs {
    std::int64_t m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    bool accumulate = false;
    bool bias = false;
    GemmRole role = GemmRole::forward;
    DType type = DType::fp32;    // of A, B and bias
    DType output = DType::fp32;  // of C
    // What A and B become on the way in, where they do: the product then computes in it.
    std::optional<DType> quantised = std::nullopt;
    DType computes() const { return quantised.value_or(type); }
    std::int64_t groups = 1;
    bool operator==(const GemmArgs&) const = default;
};

// Operands: const dy (rows, width), db (width): db [+]= sum over rows.
struct BiasGradientArgs {
    std::int64_t rows = 0, width = 0;
    bool accumulate = true;
    DType type = DType::fp32, gradient = DType::fp32;
    bool operator==(const BiasGradientArgs&) const = default;
};

// LayerNorm, or RMSNorm if `rms`. RMSNorm has no bias, LayerNorm has one unless `unbiased`.
// Operands: const x (rows, width), y (rows, width), const weight (width), const bias (width) if biased(). Of a
// latent of keys and values x has `rest` more columns, which go unchanged into one more operand (rows, rest):
// predicted, never executed.
struct NormForwardArgs {
    std::int64_t rows = 0, width = 0;
    bool rms = false;
    double epsilon = 1e-5;
    DType type = DType::fp32;
    bool unbiased = false;
    std::int64_t rest = 0;
    bool biased() const { return !rms && !unbiased; }
    bool operator==(const NormForwardArgs&) const = default;
};

// Statistics are recomputed from x. Operands: const dy, const x, [const residual] (all (rows, width)),
// const weight (width), dx (rows, width) = gradient through the norm [+ residual],
// dweight (width), dbias (width) if biased(); weight gradients accumulate if `accumulate`. With a `rest` x and dx
// have as many columns more, and the gradient of those is one more operand, const drest (rows, rest).
struct NormBackwardArgs {
    std::int64_t rows = 0, width = 0;
    bool rms = false;
    bool residual = true;  // the operand of that name is there
    bool accumulate = true;
    double epsilon = 1e-5;
    DType type = DType::fp32, gradient = DType::fp32;
    bool unbiased = false;
    std::int64_t rest = 0;
    bool biased() const { return !rms && !unbiased; }
    bool operator==(const NormBackwardArgs&) const = default;
};

// What the activation kernels apply to each element. GELU in its tanh form; squared_relu is relu(x)^2.
enum class Pointwise : std::uint8_t { gelu, silu, relu, squared_relu };

// GELU, or another function in its place. If `backward`: operands const dy, const x, dx; else const x, y;
// all (rows, width).
struct GeluArgs {
    std::int64_t rows = 0, width = 0;
    bool backward = false;
    DType type = DType::fp32;
    Pointwise function = Pointwise::gelu;
    bool routed = false;  // of experts, where other frameworks weigh it in the same kernel
    bool operator==(const GeluArgs&) const = default;
};

// y = silu(gate) * up, or another function in silu's place. x is (rows, 2 width): each row holds width
// gates, then width ups. Forward: const x, y (rows, width). Backward: const dy (rows, width), const x,
// dx (rows, 2 width).
struct SwigluArgs {
    std::int64_t rows = 0, width = 0;
    bool backward = false;
    DType type = DType::fp32;
    Pointwise function = Pointwise::silu;
    bool routed = false;  // as in GeluArgs
    bool operator==(const SwigluArgs&) const = default;
};

// Rotary positions on the queries and keys of a packed qkv, in place. The rows are
// (batch, sequence), or of each sequence what this one of `context` ranks holds of it
// (base/context_split.h); a row holds kv_heads groups of (group query heads, one key head, one value
// head), each head_dim wide, where group = heads / kv_heads. With r the first elements of a head that
// turn (all of head_dim unless `rotary_dim` says fewer), pairs (i, i + r/2) turn by
// position * theta^(-2i/r); `backward` turns the other way. Operand: qkv.
struct RopeArgs {
    std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
    double theta = 10000;
    bool backward = false;
    DType type = DType::fp32;
    std::int64_t rotary_dim = 0;  // 0: head_dim
    std::int64_t context = 1;
    std::int64_t turned() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    bool operator==(const RopeArgs&) const = default;
};

// A norm over each query and key head of a packed qkv (layout of RopeArgs), in place; LayerNorm
// without bias, or RMSNorm if `rms`. One weight for all heads, or one for each if `per_head`.
// Forward: qkv, raw = the queries and keys before (rows, heads + kv_heads, head_dim), const query_weight,
// const key_weight. Backward: dqkv, const raw, const query_weight, const key_weight, dquery_weight,
// dkey_weight; weight gradients accumulate if `accumulate`.
struct QkNormArgs {
    std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
    bool per_head = false;
    bool rms = true;
    bool backward = false;
    bool accumulate = true;
    double epsilon = 1e-6;
    DType type = DType::fp32, gradient = DType::fp32;
    bool operator==(const QkNormArgs&) const = default;
};

// Causal attention over a packed qkv (layout of RopeArgs) without the s x s matrix. With a `window`
// a query sees its own position and the window - 1 before it.
// Operands: const qkv (batch*sequence, (heads + 2 kv_heads) head_dim), context (batch*sequence,
// heads*head_dim), lse (batch*sequence, heads). Scale 1/sqrt(head_dim).
// Other frameworks' attention that is not fused keeps `score_bytes` of each score, masked or not, in one more
// operand: predicted, never executed. So are heads whose values are of another width than queries and keys,
// v_head_dim: qkv rows then hold heads head_dim + kv_heads (head_dim + v_head_dim), context rows heads v_head_dim.
struct AttentionForwardArgs {
    std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
    DType type = DType::fp32;
    std::int64_t window = 0;       // 0: none
    std::int64_t score_bytes = 0;  // 0: fused
    std::int64_t v_head_dim = 0;   // 0: head_dim
    std::int64_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const AttentionForwardArgs&) const = default;
};

// Operands: const dcontext, const qkv, const context, const lse, dqkv; const scores where they were kept.
struct AttentionBackwardArgs {
    std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
    DType type = DType::fp32;
    std::int64_t window = 0;
    std::int64_t score_bytes = 0;
    std::int64_t v_head_dim = 0;
    std::int64_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const AttentionBackwardArgs&) const = default;
};

// One step of causal attention around a ring of `context` ranks, which share out each sequence as
// base/context_split.h says. In step k the queries of rank r meet the keys and values of rank r - k,
// packed in kv: rows of kv_heads times a key and a value. The results are those of all steps so far.
// Forward: const qkv (batch*sequence/context, as above), const kv (batch*sequence/context, 2 kv_heads
// head_dim), context, lse (as above). Backward, with context and lse of all steps: const dcontext, const
// qkv, const kv, const context, const lse, dqkv (of which only the queries), dkv of this step alone.
struct RingAttentionArgs {
    std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t context = 1, step = 0;
    bool backward = false;
    DType type = DType::fp32;
    std::int64_t v_head_dim = 0;  // as in AttentionForwardArgs
    std::int64_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const RingAttentionArgs&) const = default;
};

// Keys and values of a packed qkv on their own, or back into it. Operands: const qkv, kv (both as in
// RingAttentionArgs); if `unpack`: const kv, qkv.
struct KeyValueArgs {
    std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
    bool unpack = false;
    DType type = DType::fp32;
    std::int64_t v_head_dim = 0;  // as in AttentionForwardArgs
    std::int64_t value_dim() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
    bool operator==(const KeyValueArgs&) const = default;
};

// What stands around an all-to-all of `context` ranks, which turns a split by tokens into one by heads and
// back: c contiguous parts, one for or from each rank. With w = width / c and s of a sequence:
//   split_heads:    (batch s/c, c w) -> (c, batch s/c, w)           join_heads: the other way
//   join_sequence:  (c, batch, s/c, w) -> (batch, s, w)             split_sequence: the other way
// where part i holds the tokens that base/context_split.h gives rank i. Operands: const x, y.
struct RelayoutArgs {
    enum class Part : std::uint8_t { split_heads, join_heads, join_sequence, split_sequence };
    Part part = Part::split_heads;
    std::int64_t batch = 0, sequence = 0, width = 0, context = 1;
    DType type = DType::fp32;
    bool operator==(const RelayoutArgs&) const = default;
};

// Rows of a vocabulary-parallel table: tensor rank r holds rows [r*rows, (r+1)*rows) of the whole.
// Forward: const tokens (tokens, int32), const table (rows, width), y (tokens, width); y is zero
// where the token lies on another rank.
// Backward: const tokens, const dy, dtable (rows, width); zeroed first unless `accumulate`; sums are
// taken in token order.
struct EmbeddingArgs {
    std::int64_t tokens = 0, rows = 0, width = 0;
    bool backward = false;
    bool accumulate = true;
    DType type = DType::fp32, gradient = DType::fp32;
    bool operator==(const EmbeddingArgs&) const = default;
};

// Learned positions: token row i of this rank is token (first + i) mod (sequence / context) of what the
// context rank holds of a sequence (base/context_split.h), where first = tensor_rank * tokens if
// `split_tokens` (sequence parallelism), else 0.
// Forward: x (tokens, width) += table row; operands x, const table (table_rows, width).
// Backward: const dx, dtable (table_rows, width); zeroed first unless `accumulate`.
struct PositionsArgs {
    std::int64_t tokens = 0, sequence = 0, table_rows = 0, width = 0;
    bool split_tokens = false;
    bool backward = false;
    bool accumulate = true;
    DType type = DType::fp32, gradient = DType::fp32;
    std::int64_t context = 1;
    bool operator==(const PositionsArgs&) const = default;
};

// y = x + r [+ bias over rows [+ another]].  Operands: const x, const r, y (all (rows, width)), const bias
// if `bias`, const bias2 if `bias2`.  y may be x or r.
struct ResidualAddArgs {
    std::int64_t rows = 0, width = 0;
    bool bias = false;
    DType type = DType::fp32;
    bool bias2 = false;
    bool operator==(const ResidualAddArgs&) const = default;
};

// y += x.  Operands: const x (n), y (n).
struct AccumulateArgs {
    std::int64_t elements = 0;
    DType from = DType::fp32, to = DType::fp32;
    bool operator==(const AccumulateArgs&) const = default;
};

// y = x in another type.  Operands: const x (n), y (n).
struct CastArgs {
    std::int64_t elements = 0;
    DType from = DType::fp32, to = DType::fp32;
    bool operator==(const CastArgs&) const = default;
};

// Vocabulary-parallel cross-entropy over logits (tokens, columns), in four kernels with reductions
// over the tensor group between them. Tensor rank r holds columns [r*columns, (r+1)*columns) of the
// vocabulary; those at or beyond `vocabulary` are padding and count nothing.
//   loss_max:      const logits, maximum (tokens)                        -> all-reduce max
//   loss_sum:      const logits, const maximum, const targets (tokens, int32), sums (2, tokens)
//                  sums[0] = sum of exp(logit - maximum); sums[1] = target logit - maximum or 0
//                                                                        -> all-reduce sum
//   loss_forward:  const maximum, const sums, lse (tokens) = maximum + log(sums[0]),
//                  loss (1, fp64) += sum over tokens of log(sums[0]) - sums[1]
//   loss_backward: const logits, const lse, const targets, dlogits (tokens, columns)
//                  dlogits = (exp(logit - lse) - [target]) * scale; may overwrite logits
struct LossArgs {
    enum class Part : std::uint8_t { maximum, sum, forward, backward };
    Part part = Part::maximum;
    std::int64_t tokens = 0, columns = 0, vocabulary = 0;
    double scale = 1;              // of the gradient: 1 / (tokens of the global batch)
    DType type = DType::fp32;      // of the logits read
    DType gradient = DType::fp32;  // of dlogits
    bool operator==(const LossArgs&) const = default;
};

// One AdamW step over a flat run of parameters; bias correction from the step counter.
// Operands: parameter (n, type), const gradient (n), momentum (n), variance (n),
// master (n, optimizer) if `master` (then parameter is written from it).
struct AdamwArgs {
    std::int64_t elements = 0;
    double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
    bool master = false;
    DType type = DType::fp32, gradient = DType::fp32, optimizer = DType::fp32;
    bool operator==(const AdamwArgs&) const = default;
};

// The `topk` experts of each token and their weights, from the router's logits. Forward: const logits, scores,
// probabilities (all (rows, experts), fp32); scores are of all experts, probabilities 0 but for the chosen ones.
// Backward: const logits, const scores, const probabilities, dlogits (rows, experts). Predicted, never executed.
struct RouterArgs {
    std::int64_t rows = 0, experts = 0, topk = 0;
    bool backward = false;
    DType type = DType::fp32;  // of dlogits
    bool operator==(const RouterArgs&) const = default;
};

// Rows in another order or number: a copy of each token for each expert that it visits, what comes back of them
// summed up, the rows of each sender sorted by expert, or each row times its weight. Operands: const x (from, width),
// y (to, width); on the way back of a `weighed` row also what was weighed, const w (to, width), before y. Predicted,
// never executed.
struct PermuteArgs {
    std::int64_t from = 0, to = 0, width = 0;
    DType type = DType::fp32;
    bool weighed = false;
    bool operator==(const PermuteArgs&) const = default;
};

// Queries, keys and values of latent attention, as attention takes them: rope turns its part of queries and keys,
// and every head's key gets the same one. Forward: const q (rows, heads (nope + rope)), const kv (rows, heads
// (nope + v)), const k_rope (rows, rope), qkv (rows, heads (2 (nope + rope) + v)). `unpack`, of their gradients:
// const dqkv, dq, dkv, dk_rope. Predicted, never executed.
struct LatentPackArgs {
    std::int64_t rows = 0, heads = 0, nope = 0, rope = 0, v_dim = 0;
    bool unpack = false;
    DType type = DType::fp32;
    bool operator==(const LatentPackArgs&) const = default;
};

using KernelArgs = std::variant<GemmArgs, BiasGradientArgs, NormForwardArgs, NormBackwardArgs, GeluArgs, SwigluArgs,
                                RopeArgs, QkNormArgs, AttentionForwardArgs, AttentionBackwardArgs, RingAttentionArgs,
                                KeyValueArgs, RelayoutArgs, EmbeddingArgs, PositionsArgs, ResidualAddArgs,
                                AccumulateArgs, CastArgs, LossArgs, AdamwArgs, RouterArgs, PermuteArgs, LatentPackArgs>;

KernelKind kind_of(const KernelArgs& args);
Work work(const KernelArgs& args);

// How a kernel uses its operand number `index`; `count` is how many it takes.
enum class Access : std::uint8_t { read, write, update };
int operand_count(const KernelArgs& args);
Access operand_access(const KernelArgs& args, int index);
// The tensor that the kernel expects there.
std::int64_t operand_elements(const KernelArgs& args, int index);
DType operand_type(const KernelArgs& args, int index);

// One line, and back. from_text throws UserError on an unknown kernel, field or value.
std::string to_text(const KernelArgs& args);
KernelArgs kernel_args_from_text(std::string_view text);

}  // namespace foretrain
