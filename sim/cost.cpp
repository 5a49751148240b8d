#include "sim/cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "base/index.h"
#include "hardware/collective_time.h"
#include "plan/attention_choice.h"
#include "plan/framework.h"
#include "plan/program/access.h"

namespace foretrain {

namespace {

constexpr std::array axes{Axis::none,      Axis::tensor, Axis::context,       Axis::data,
                          Axis::replica,   Axis::shard,  Axis::replicate,     Axis::pipeline,
                          Axis::embedding, Axis::expert, Axis::expert_tensor, Axis::expert_replica};
static_assert(axes.size() == axis_count);

// Per mille of a time, rounded once.
Time share_of(Time t, std::int16_t share) {
    const std::int64_t whole = Instruction::whole, thousands = t.value / whole, rest = t.value % whole;
    return Time{thousands * share + (rest * share + whole / 2) / whole};
}

// Of heads whose values are of another width, the mean over the products: forward one of each, backward three of
// queries and keys (the scores again, and both gradients) and two of values.
template <class Args>
std::int64_t width_of(const Args& a, bool backward) {
    return backward ? (3 * a.head_dim + 2 * a.value_dim()) / 5 : (a.head_dim + a.value_dim()) / 2;
}

bool is_routed(const KernelArgs& args) {
    if (const auto* a = std::get_if<SwigluArgs>(&args)) return a->routed;
    const auto* a = std::get_if<GeluArgs>(&args);
    return a != nullptr && a->routed;
}
// Elements, 16 bytes: heads of another size leave the libraries their slower kernels.
constexpr std::int64_t aligned_head = 8;

[[noreturn]] void not_measured(const std::string& device, const std::string& field, DType type) {
    throw UserError({.file = "device " + device,
                     .field = field,
                     .found = "nothing for " + std::string(name_of(type)),
                     .expected = "constants for the types that the plan computes in",
                     .suggestion = ""});
}

}  // namespace

CostModel::CostModel(const Plan& plan) : CostModel(plan.cluster, plan.grid()) {
    const Framework& framework = framework_named(plan.framework);
    const SoftwareCosts& costs = framework.costs;
    apply(costs, plan.cluster.device);
    if (costs.experts.once_per_node) once_per_node_ = plan.model.moe.topk;
    unfused_ = foretrain::unfused_attention(plan, framework);
    if (costs.messages.split && !plan.parallelism.sequence_parallel) message_parts_ = plan.parallelism.tensor;
    slower_ = 1 + costs.straggling * std::log2(static_cast<double>(plan.cluster.nodes));
}

CostModel::CostModel(const ClusterSpec& cluster, const RankGrid& grid)
    : device_(cluster.device.name),
      grid_(grid),
      devices_per_node_(cluster.devices_per_node),
      domain_(cluster.domain),
      network_(cluster.network) {
    prepare_kernels(cluster.device);
    place_groups(cluster);
}

void CostModel::prepare_kernels(const DeviceSpec& device) {
    const Calibration& c = device.calibration;
    gemm_takes_.fill(1);
    memory_ = {0, device.memory_bandwidth.bytes_per_second * 1e-6, device.multiprocessors};
    for (const auto& [type, rate] : device.peak) {
        processors_[at(type)] = memory_;
        processors_[at(type)]->flops = rate.per_second * 1e-6;
    }
    for (const DType type : {DType::bf16, DType::fp16})
        if (!processors_[at(type)]) processors_[at(type)] = processors_[at(other_half(type))];
    for (std::size_t t = 0; t < dtype_count; ++t)
        if (const GemmConstants* g = c.gemm_serving(static_cast<DType>(t)); g != nullptr && processors_[t])
            gemms_[t] = prepare(*g, *processors_[t]);
    attention_forward_ = c.attention.forward;
    attention_backward_ = c.attention.backward;
    memory_bound_.fill({c.memory_bound.launch_us, c.memory_bound.efficiency});
    for (const MemoryBoundConstants::Override& o : c.memory_bound.overrides)
        if (const auto kind = kernel_kind_from_name(o.kind)) memory_bound_[at(*kind)] = {o.launch_us, o.efficiency};
}

void CostModel::apply(const SoftwareCosts& costs, const DeviceSpec& device) {
    using K = KernelKind;
    const TrafficFactors& t = costs.traffic;
    routed_activation_ = memory_bound_[at(K::cast)];
    routed_activation_.efficiency /= costs.experts.traffic;
    const auto slower = [&](double factor, std::initializer_list<K> kinds) {
        for (const K kind : kinds) memory_bound_[at(kind)].efficiency /= factor;
    };
    slower(t.stream_forward, {K::norm_forward, K::residual_add, K::rope, K::qk_norm_forward, K::latent_pack});
    slower(t.stream_backward, {K::norm_backward, K::qk_norm_backward, K::latent_unpack});
    slower(costs.experts.traffic, {K::router_forward, K::router_backward, K::permute});
    slower(t.activation_forward, {K::gelu_forward, K::swiglu_forward});
    slower(t.activation_backward, {K::gelu_backward, K::swiglu_backward});
    slower(t.loss, {K::loss_max, K::loss_sum, K::loss_forward, K::loss_backward});
    if (const AttentionFactor* factor = costs.factor_for(device.calibration.attention.kernel)) {
        attention_forward_takes_ = factor->forward;
        attention_backward_takes_ = factor->backward;
    }
    for (std::size_t type = 0; type < dtype_count; ++type)
        gemm_takes_[type] = costs.gemm_takes(static_cast<DType>(type), device.dense_bf16_tera());
}

void CostModel::place_groups(const ClusterSpec& cluster) {
    for (const Axis axis : axes) {
        const bool all_replicas = axis == Axis::shard && grid_.shard == 0;
        groups_[at(axis)] =
            all_replicas ? groups_[at(Axis::replica)] : placements(grid_, axis, devices_per_node_, network_);
        for (const GroupPlacement& g : groups_[at(axis)]) {
            if (g.nodes > 1 && g.line_gbps <= 0)
                throw UserError({.file = "cluster " + cluster.name,
                                 .field = "network",
                                 .found = "no links between nodes",
                                 .expected = "some, for the " + std::string(name_of(axis)) + " groups span nodes",
                                 .suggestion = ""});
            const bool pairwise = axis == Axis::pipeline || axis == Axis::context || axis == Axis::expert;
            if (g.per_node > 1 && (domain_.ring_gbps <= 0 || (pairwise && domain_.pairwise_gbps <= 0)))
                throw UserError({.file = "cluster " + cluster.name,
                                 .field = "domain",
                                 .found = "no links inside a node",
                                 .expected = "some, for " + std::string(name_of(axis)) + " groups stand inside one",
                                 .suggestion = ""});
        }
    }
}

const Processor& CostModel::processor(DType type) const {
    const auto& p = processors_[at(type)];
    if (!p) not_measured(device_, "peak", type);
    return *p;
}

double CostModel::gemm(const GemmArgs& a) const {
    const DType type = a.computes();
    const auto& prepared = gemms_[at(type)];
    if (!prepared) not_measured(device_, "calibration.gemm", type);
    const GemmShape shape{.m = a.m,
                          .n = a.n,
                          .k = a.k,
                          .input_bytes = operand_bytes(type),
                          .output_bytes = size_of(a.output),
                          .accumulate = a.accumulate,
                          .stored_bytes = size_of(a.type),
                          .groups = a.groups};
    return gemm_us(shape, *prepared) * gemm_takes_[at(type)];
}

double CostModel::attention(const AttentionShape& shape, DType type) const {
    const AttentionPass& pass = shape.backward ? attention_backward_ : attention_forward_;
    if (pass.efficiency.empty()) not_measured(device_, "calibration.attention", type);
    if (unfused_.product_efficiency > 0) return unfused_attention(shape, type);
    return attention_us(shape, pass, processor(type)) *
           (shape.backward ? attention_backward_takes_ : attention_forward_takes_);
}

// Two products of (s, d) with (d, s) or (s, s) with (s, d) forward and four backward, and what is moved of the
// scores (b, a, s, s): nobody leaves out what the mask hides.
double CostModel::unfused_attention(const AttentionShape& shape, DType type) const {
    const double keys = static_cast<double>(shape.keys > 0 ? shape.keys : shape.sequence);
    const double scores = static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
                          static_cast<double>(shape.sequence) * keys;
    const double unaligned = shape.head_dim % aligned_head != 0 ? unfused_.unaligned_products : 1;
    const double softmax = unfused_.has_softmax_kernel(shape.batch * shape.heads) ? 1 : unfused_.without_softmax_kernel;
    const double flops = (shape.backward ? 8 : 4) * scores * static_cast<double>(shape.head_dim);
    // The products write or read the scores, two bytes each time.
    const double by_products = (shape.backward ? 8 : 4) * unaligned;
    const double others = shape.backward ? unfused_.backward_bytes - 8 : unfused_.forward_bytes - 4;
    const double bytes = scores * (by_products + others * softmax);
    const MemoryBound& m = memory_bound_[at(KernelKind::cast)];
    return flops * unaligned / (unfused_.product_efficiency * processor(type).flops) +
           memory_bound_us(std::llround(bytes), m.launch_us, m.efficiency, memory_);
}

// The queries of one rank meet half of another's keys, or half of them all: the same work, of which the
// slower form counts, since some rank has it. What the step adds to is read and written besides.
double CostModel::ring_step(const RingAttentionArgs& a) const {
    const std::int64_t tokens = a.sequence / a.context, half = tokens / 2;
    AttentionShape shape{a.batch, tokens, a.heads, width_of(a, a.backward), a.backward};
    if (a.step == 0) return attention(shape, a.type);
    shape.keys = half;
    const double early = attention(shape, a.type);
    shape.sequence = half;
    shape.keys = tokens;
    const double late = attention(shape, a.type);
    const std::int64_t added_to = 2 * a.batch * tokens * a.heads * a.value_dim() * size_of(a.type);
    const MemoryBound& m = memory_bound_[at(kind_of(a))];
    return std::max(early, late) + memory_bound_us(added_to, 0, m.efficiency, memory_);
}

// Tokens cross to each node that some of their experts are on once, and are handed on inside it. With k experts
// spread over N nodes at random a token visits N (1 - (1 - 1/N)^k) nodes.
double CostModel::exchange(Bytes bytes, const GroupPlacement& g) const {
    const double nodes = static_cast<double>(g.nodes), copies = static_cast<double>(once_per_node_);
    const double visited = nodes * (1 - std::pow(1 - 1 / nodes, copies));
    const auto crossing = std::llround(static_cast<double>(bytes.value) * visited / copies);
    return network_all_to_all_us(crossing, g, domain_) +
           (g.per_node > 1 ? domain_all_to_all_us(bytes.value, g.per_node, domain_) : 0);
}

// What takes that long is out of all proportion, and many of them would not fit a Time.
Time CostModel::took(double us) const {
    constexpr double most_us = 1000e6;
    if (us <= most_us) return from_microseconds(us * slower_);
    throw UserError({.file = "plan on " + device_,
                     .field = "a kernel, collective or message",
                     .found = "takes more than 1000 s",
                     .expected = "batch, sequence, model and the cluster's figures in proportion",
                     .suggestion = "a smaller micro-batch, more ranks, or a look at the cluster's bandwidths"});
}

Time CostModel::kernel(const KernelArgs& args) const {
    if (const auto* g = std::get_if<GemmArgs>(&args)) return took(gemm(*g));
    if (const auto* a = std::get_if<AttentionForwardArgs>(&args))
        return took(attention({a->batch, a->sequence, a->heads, width_of(*a, false), false, a->window}, a->type));
    if (const auto* a = std::get_if<AttentionBackwardArgs>(&args))
        return took(attention({a->batch, a->sequence, a->heads, width_of(*a, true), true, a->window}, a->type));
    if (const auto* a = std::get_if<RingAttentionArgs>(&args)) return took(ring_step(*a));
    if (is_routed(args)) {
        const MemoryBound& m = routed_activation_;
        return took(memory_bound_us(work(args).bytes.value, m.launch_us, m.efficiency, memory_));
    }
    return memory_traffic(kind_of(args), work(args).bytes);
}

Time CostModel::memory_traffic(KernelKind kind, Bytes bytes) const {
    const MemoryBound& m = memory_bound_[at(kind)];
    return took(memory_bound_us(bytes.value, m.launch_us, m.efficiency, memory_));
}

Time CostModel::collective(InstructionKind kind, Axis axis, Bytes bytes) const {
    const auto of = [&](const GroupPlacement& g) {
        if (kind == InstructionKind::ring_shift)
            return ring_shift_us(bytes.value, g, rank_line_gbps(g, devices_per_node_, network_), domain_,
                                 network_.constants);
        if (axis == Axis::expert && once_per_node_ > 0 && g.nodes > 1) return exchange(bytes, g);
        return collective_us(collective_of(kind), bytes.value, g, domain_, network_.constants);
    };
    double slowest = 0;
    for (const GroupPlacement& g : groups_[at(axis)]) slowest = std::max(slowest, of(g));
    return took(slowest);
}

Time CostModel::message(Bytes bytes, std::int64_t stage, std::int64_t peer) const {
    const double line = message_line_gbps(grid_, stage, peer, devices_per_node_, network_);
    const std::int64_t part = ceil_div(bytes.value, message_parts_);
    const Time sent =
        took(line > 0 ? network_message_us(part, line, network_.constants) : domain_message_us(part, domain_));
    return message_parts_ == 1 ? sent : sent + collective(InstructionKind::all_gather, Axis::tensor, bytes);
}

Time CostModel::instruction(const Instruction& i, const std::vector<KernelArgs>& kernels, std::int64_t stage) const {
    if (i.share != Instruction::whole) {
        Instruction unshared = i;
        unshared.share = Instruction::whole;
        return share_of(instruction(unshared, kernels, stage), i.share);
    }
    const Bytes payload{i.count * size_of(i.type)};
    switch (i.kind) {
        case InstructionKind::launch: return Time{i.count};
        case InstructionKind::stall: {
            if (i.like == InstructionKind::kernel) return Time{i.count};
            Instruction collective = i;
            collective.kind = i.like;
            return instruction(collective, kernels, stage);
        }
        case InstructionKind::kernel: return kernel(kernels.at(static_cast<std::size_t>(i.kernel)));
        case InstructionKind::fill:
        case InstructionKind::load_batch: return memory_traffic(KernelKind::cast, payload);
        case InstructionKind::copy: return memory_traffic(KernelKind::cast, 2 * payload);
        case InstructionKind::all_reduce:
        case InstructionKind::ring_shift: return collective(i.kind, i.axis, payload);
        case InstructionKind::reduce_scatter:
        case InstructionKind::all_gather:
        case InstructionKind::all_to_all: return collective(i.kind, i.axis, payload * grid_.size(i.axis));
        case InstructionKind::send: return message(payload, stage, i.peer);
        case InstructionKind::recv: return message(payload, i.peer, stage);
        case InstructionKind::alloc:
        case InstructionKind::free:
        case InstructionKind::record:
        case InstructionKind::wait:
        case InstructionKind::step_end: return Time{0};
        case InstructionKind::forward_chunk:
        case InstructionKind::backward_chunk:
        case InstructionKind::optimizer_step: break;
    }
    throw InternalError("a chunk-level instruction has no cost of its own: lower the program first");
}

}  // namespace foretrain
