#include "plan/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "plan/check_rules.h"
#include "plan/framework.h"
#include "plan/layers_by_chunk.h"

namespace foretrain {

namespace check_rules {

std::optional<std::int64_t> product(std::initializer_list<std::int64_t> factors) {
    std::int64_t result = 1;
    for (std::int64_t f : factors) {
        if (result > std::numeric_limits<std::int64_t>::max() / f) return std::nullopt;
        result *= f;
    }
    return result;
}

std::string text_of(std::optional<std::int64_t> x) { return x ? std::to_string(*x) : "more than 64 bits hold"; }

std::int64_t devices_beside_context(const Plan& plan) { return plan.cluster.devices() / plan.parallelism.context; }

std::vector<std::int64_t> small_divisors(std::int64_t n) {
    std::vector<std::int64_t> out;
    for (std::int64_t d = 1; d <= std::min<std::int64_t>(n, 4096) && out.size() < 16; ++d)
        if (n % d == 0) out.push_back(d);
    return out;
}

std::int64_t nearest_of(std::int64_t x, const std::vector<std::int64_t>& candidates) {
    std::int64_t best = candidates.front();
    for (std::int64_t c : candidates)
        if (std::abs(c - x) < std::abs(best - x)) best = c;
    return best;
}

std::string neighbours_of(std::int64_t x, const std::vector<std::int64_t>& candidates) {
    std::int64_t below = 0, above = 0;
    for (std::int64_t c : candidates) {
        if (c <= x) below = c;
        if (c > x && above == 0) above = c;
    }
    if (below == 0 || above == 0) return std::to_string(std::max(below, above));
    return fmt::format("{} or {}", below, above);
}

Rejection must_divide(const char* reason, const char* field, std::int64_t found, const char* of, std::int64_t n,
                      std::int64_t also) {
    const std::vector<std::int64_t> allowed = small_divisors(n);
    return {.reason = reason,
            .field = field,
            .found = std::to_string(found),
            .rule = fmt::format("must divide {} = {}", of, n),
            .allowed = fmt::format("{}", fmt::join(allowed, ", ")),
            .suggestion = neighbours_of(found, small_divisors(std::gcd(n, also)))};
}

}  // namespace check_rules

namespace {

using namespace check_rules;
using Rejections = std::vector<Rejection>;

constexpr std::int64_t most_chunks = std::numeric_limits<std::int16_t>::max();  // Instruction::chunk

bool in_range(std::int64_t x) { return x >= 1 && x <= largest; }

// What every number of tensor ranks divides; 1 at least.
std::int64_t tensor_must_divide(const Plan& plan, std::int64_t pipeline) {
    const std::int64_t devices = std::max<std::int64_t>(devices_beside_context(plan), 1);
    const ModelSpec& m = plan.model;
    return std::gcd(std::gcd(m.attention_heads, m.kv_heads),
                    std::gcd(std::gcd(m.ffn_hidden_size, m.moe.shared_ffn),
                             devices % pipeline == 0 ? devices / pipeline : devices));
}

// Sizes out of range; the other rules compute with them only if there are none.
void check_sizes(const Plan& plan, Rejections& out) {
    const auto need = [&](const char* field, std::int64_t x) {
        if (in_range(x)) return;
        out.push_back({.reason = "size_out_of_range",
                       .field = field,
                       .found = std::to_string(x),
                       .rule = fmt::format("must be from 1 to {}", largest),
                       .suggestion = x < 1 ? "1" : ""});
    };
    const Parallelism& p = plan.parallelism;
    need("parallelism.tensor", p.tensor);
    need("parallelism.pipeline", p.pipeline);
    need("parallelism.context", p.context);
    if (p.virtual_pipeline < 1 || p.virtual_pipeline > most_chunks)
        out.push_back({.reason = "size_out_of_range",
                       .field = "parallelism.virtual_pipeline",
                       .found = std::to_string(p.virtual_pipeline),
                       .rule = fmt::format("must be from 1 to {}", most_chunks),
                       .suggestion = p.virtual_pipeline < 1 ? "1" : ""});
    need("parallelism.data", p.data);
    need("parallelism.expert", p.expert);
    need("parallelism.expert_tensor", p.expert_tensor);
    if (p.zero_shard_size != 0) need("parallelism.zero_shard_size", p.zero_shard_size);
    if (p.first_stage_layers != 0) need("parallelism.first_stage_layers", p.first_stage_layers);
    if (p.last_stage_layers != 0) need("parallelism.last_stage_layers", p.last_stage_layers);
    need("parallelism.micro_batch_size", p.micro_batch_size);
    need("training.global_batch_size", plan.training.global_batch_size);
    need("training.sequence_length", plan.training.sequence_length);
    need("model.layers", plan.model.layers);
    need("model.hidden_size", plan.model.hidden_size);
    need("model.attention_heads", plan.model.attention_heads);
    need("model.kv_heads", plan.model.kv_heads);
    need("model.head_dim", plan.model.head_dim);
    if (plan.model.expert_layers() < plan.model.layers) need("model.ffn_hidden_size", plan.model.ffn_hidden_size);
    need("model.vocab_size", plan.model.vocab_size);
    // Both bounded: their product fits.
    if (plan.cluster.nodes < 1 || plan.cluster.devices_per_node < 1 ||
        plan.cluster.nodes > largest / plan.cluster.devices_per_node)
        need("cluster.nodes", plan.cluster.nodes < 1 || plan.cluster.devices_per_node < 1 ? 0 : largest + 1);
}

// What would overflow the 64-bit counts of bytes, operations and picoseconds further on. In floating
// point, which only loses digits.
void check_magnitude(const Plan& plan, Rejections& out) {
    constexpr double most_values = 1e17;     // of one microbatch, at 8 bytes each
    constexpr double most_seconds = 1e5;     // of a step at peak rate; clocks reach a hundred times as far
    constexpr double most_passes = 1 << 18;  // each is two kB to whoever orders them: half a GB
    constexpr double most_microbatches = most_passes;
    const auto d = [](std::int64_t x) { return static_cast<double>(x); };
    const auto refuse = [&](const char* reason, const char* field, std::string found, std::string rule) {
        out.push_back({.reason = reason, .field = field, .found = std::move(found), .rule = std::move(rule)});
    };
    const ModelSpec& m = plan.model;
    const double latents = d(m.mla.q_lora) + d(m.mla.kv_lora);
    const double widths = d(m.hidden_size) + d(m.attention_heads) * d(m.head_dim) * 3 + 2 * d(m.ffn_hidden_size) +
                          2 * d(m.moe.shared_ffn) + latents;
    // Copies of a token that go to experts, each of which gets at least one row.
    const double expert = 2 * d(m.hidden_size) + 3 * d(m.moe.ffn_hidden_size);
    const double visits = d(m.moe.topk) * std::max({1.0, m.moe.capacity_factor, plan.training.expert_imbalance});
    const double visited = d(m.hidden_size) * (d(m.layers) * (widths + visits * expert) + 2 * d(m.vocab_size));
    const double parameters = visited + d(m.layers) * d(m.moe.experts) * d(m.hidden_size) * expert;
    const double tokens =
        d(plan.parallelism.micro_batch_size) * d(plan.training.sequence_length) / d(plan.parallelism.context);
    const double values = tokens * (d(m.layers) * (widths + visits * expert) + d(m.vocab_size)) + parameters;
    if (values > most_values)
        return refuse("microbatch_too_large", "parallelism.micro_batch_size", fmt::format("{:.1e} values", values),
                      fmt::format("parameters and one microbatch must be below {:.0e} values", most_values));
    const double samples = d(plan.training.global_batch_size);
    const double microbatches = samples / (d(plan.parallelism.micro_batch_size) * d(plan.parallelism.data));
    if (microbatches > most_microbatches)
        refuse("too_many_microbatches", "training.global_batch_size", fmt::format("{:.0f} microbatches", microbatches),
               fmt::format("must be at most {:.0f} on each data rank", most_microbatches));
    else if (const double passes = microbatches * d(plan.parallelism.pipeline) * d(plan.parallelism.virtual_pipeline);
             passes > most_passes)
        refuse("too_many_microbatches", "training.global_batch_size",
               fmt::format("{:.0f} microbatches on {} stages", microbatches, plan.parallelism.pipeline),
               fmt::format("microbatches x stages must be at most {:.0f}", most_passes));
    const auto peak = plan.cluster.device.peak.find(plan.training.precision);
    if (peak == plan.cluster.device.peak.end()) return;  // check_calibration says so
    const double s = d(plan.training.sequence_length);
    const double attention = 12 * d(m.layers) * d(m.attention_heads) * d(m.head_dim) * s;
    const double work = samples * s * (6 * visited + attention);
    const double time = work / d(plan.cluster.devices()) / peak->second.per_second;
    if (!(time <= most_seconds))
        refuse("step_too_long", "training.global_batch_size", fmt::format("{:.1e} s a step at peak", time),
               fmt::format("must be at most {:.0e} s", most_seconds));
}

// The nearest tensor and pipeline that the model and the devices take; the pipeline moves only if it must.
std::string ranks_that_divide(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const std::int64_t devices = devices_beside_context(plan);
    std::int64_t pipeline = p.pipeline;
    if (devices % pipeline != 0) pipeline = nearest_of(pipeline, small_divisors(std::gcd(plan.model.layers, devices)));
    const std::int64_t tensor = nearest_of(p.tensor, small_divisors(tensor_must_divide(plan, pipeline)));
    std::string s;
    if (tensor != p.tensor) s = fmt::format("tensor {}", tensor);
    if (pipeline != p.pipeline) s += fmt::format("{}pipeline {}", s.empty() ? "" : " and ", pipeline);
    return s;
}

void check_world(const Plan& plan, Rejections& out) {
    const Parallelism& p = plan.parallelism;
    const std::optional<std::int64_t> world = product({p.tensor, p.context, p.pipeline, p.data});
    const std::int64_t devices = plan.cluster.devices();
    if (world && *world == devices) return;
    if (devices % p.context != 0)
        return out.push_back(
            must_divide("context_divides_devices", "parallelism.context", p.context, "the cluster's devices", devices));
    const std::string context = p.context > 1 ? fmt::format(" x context {}", p.context) : "";
    const std::optional<std::int64_t> model_ranks = product({p.tensor, p.context, p.pipeline});
    if (!model_ranks || devices % *model_ranks != 0)  // no data would do
        return out.push_back({.reason = "devices_divisible",
                              .field = p.context > 1 ? "parallelism.tensor x parallelism.context x parallelism.pipeline"
                                                     : "parallelism.tensor x parallelism.pipeline",
                              .found = text_of(model_ranks),
                              .rule = fmt::format("must divide the cluster's {} devices", devices),
                              .suggestion = ranks_that_divide(plan)});
    out.push_back(
        {.reason = "world_equals_devices",
         .field = "parallelism.data",
         .found = fmt::format("tensor {}{} x pipeline {} x data {} = {}", p.tensor, context, p.pipeline, p.data,
                              text_of(world)),
         .rule = fmt::format("must equal the cluster's {} devices: each has one place on every axis, so they multiply",
                             devices),
         .suggestion = fmt::format("data {}", devices / *model_ranks)});
}

void check_tensor(const Plan& plan, Rejections& out) {
    const std::int64_t t = plan.parallelism.tensor;
    const ModelSpec& m = plan.model;
    const auto divides = [&](const char* reason, const char* of, std::int64_t n) {
        if (n % t != 0)
            out.push_back(must_divide(reason, "parallelism.tensor", t, of, n,
                                      tensor_must_divide(plan, plan.parallelism.pipeline)));
    };
    divides("tensor_divides_heads", "attention_heads", m.attention_heads);
    if (m.kv_heads != m.attention_heads) divides("tensor_divides_kv_heads", "kv_heads", m.kv_heads);  // else told
    divides("tensor_divides_ffn", "ffn_hidden_size", m.ffn_hidden_size);
    divides("tensor_divides_shared_ffn", "moe.shared_ffn", m.moe.shared_ffn);
}

void check_sequence(const Plan& plan, Rejections& out) {
    const std::int64_t s = plan.training.sequence_length;
    const Parallelism& p = plan.parallelism;
    if (plan.model.positions == Positions::learned && s > plan.model.max_positions)
        out.push_back({.reason = "sequence_exceeds_positions",
                       .field = "training.sequence_length",
                       .found = std::to_string(s),
                       .rule = fmt::format("must be at most max_positions = {}", plan.model.max_positions),
                       .suggestion = std::to_string(plan.model.max_positions)});
    if (!p.sequence_parallel) return;
    if (p.tensor == 1)
        out.push_back({.reason = "sequence_parallel_needs_tensor",
                       .field = "parallelism.sequence_parallel",
                       .found = "true with tensor = 1",
                       .rule = "needs tensor parallelism",
                       .suggestion = "false"});
    if (p.context == 1 && s % p.tensor != 0)  // with context, check_context_sequence tells
        out.push_back(must_divide("tensor_divides_sequence", "parallelism.tensor", p.tensor,
                                  "sequence_length (sequence_parallel)", s));
}

// global batch = micro-batch x data ranks x microbatches that each accumulates.
void check_batch(const Plan& plan, Rejections& out) {
    const std::int64_t batch = plan.training.global_batch_size;
    const Parallelism& p = plan.parallelism;
    const std::optional<std::int64_t> round = product({p.micro_batch_size, p.data});
    if (round && batch % *round == 0) return;
    Rejection r{.reason = "batch_divides",
                .field = "training.global_batch_size",
                .found = std::to_string(batch),
                .rule = fmt::format("must be micro_batch_size {} x data {} x a whole number of microbatches",
                                    p.micro_batch_size, p.data)};
    if (round && *round <= largest) {
        r.allowed = fmt::format("multiples of {}", *round);
        const std::int64_t below = batch / *round * *round;
        r.suggestion = below == 0 ? std::to_string(*round) : fmt::format("{} or {}", below, below + *round);
    }
    // Where the data ranks do divide the batch, another micro-batch is the smaller change.
    if (batch % p.data == 0)
        r.suggestion += fmt::format("{}micro_batch_size {}", r.suggestion.empty() ? "" : ", or ",
                                    neighbours_of(p.micro_batch_size, small_divisors(batch / p.data)));
    out.push_back(std::move(r));
}

void check_recompute(const Plan& plan, Rejections& out) {
    const Recompute& r = plan.parallelism.recompute;
    using Kind = Recompute::Kind;
    if (r.kind == Kind::operators && (plan.model.has_experts() || plan.model.is_latent()))
        out.push_back({.reason = "recompute_operators_dense",
                       .field = "parallelism.recompute",
                       .found = describe(r),
                       .rule = "is described for models without experts and latent attention",
                       .allowed = "another recompute"});
    const Parallelism& p = plan.parallelism;
    if (r.kind == Kind::offload &&
        (plan.model.has_experts() || plan.model.is_latent() || p.virtual_pipeline > 1 || p.schedule == Schedule::gpipe))
        out.push_back({.reason = "offload_of_plain_layers",
                       .field = "parallelism.offload.activation_layers",
                       .found = std::to_string(r.layers),
                       .rule = "is described for 1F1B with one chunk a stage, of models without experts and latent "
                               "attention",
                       .allowed = "the key left out"});
    if (r.kind != Kind::block && r.kind != Kind::segment && r.kind != Kind::every && r.kind != Kind::offload) return;
    if (!layers_divide(plan)) return;  // check_stage_layers says so
    const std::int64_t most = most_layers_of_chunk(plan);
    if (r.layers >= 1 && r.layers <= most) return;
    out.push_back({.reason = "recompute_layers",
                   .field = "parallelism.recompute",
                   .found = describe(r),
                   .rule = fmt::format("must be from 1 to the {} layers of a {}", most,
                                       plan.parallelism.virtual_pipeline > 1 ? "chunk" : "stage"),
                   .suggestion = std::to_string(r.layers < 1 ? 1 : most)});
}

void check_host_link(const Plan& plan, Rejections& out) {
    const Parallelism& p = plan.parallelism;
    const bool offloads = p.optimizer_on_host || p.recompute.kind == Recompute::Kind::offload;
    if (!offloads || plan.cluster.device.host_link.bytes_per_second > 0) return;
    out.push_back({.reason = "host_link",
                   .field = "parallelism.offload",
                   .found = "a device whose link to host memory is not known: " + plan.cluster.device.name,
                   .rule = "is costed by that link",
                   .allowed = "offload left out, or the device's host_link_bytes_per_second stated"});
}

// The vocabulary is padded to the tensor ranks: that the padding itself stays a sane size.
void check_vocabulary(const Plan& plan, const Framework& f, Rejections& out) {
    const std::optional<std::int64_t> multiple = product({f.vocab_multiple, plan.parallelism.tensor});
    if (multiple && *multiple <= largest) return;
    out.push_back({.reason = "vocabulary_padding",
                   .field = "parallelism.tensor",
                   .found = std::to_string(plan.parallelism.tensor),
                   .rule = fmt::format("must leave a vocabulary multiple ({} x tensor) of at most {}", f.vocab_multiple,
                                       largest)});
}

void check_calibration(const Plan& plan, Rejections& out) {
    const DeviceSpec& d = plan.cluster.device;
    const DType t = plan.training.computes();
    const auto multiplies = [&](DType type) {
        const auto peak = d.peak.find(type);
        return peak != d.peak.end() && peak->second.per_second > 0 && d.calibration.gemm_for(type) != nullptr;
    };
    if (multiplies(t) && multiplies(plan.training.precision) && !d.calibration.attention.forward.efficiency.empty() &&
        !d.calibration.attention.backward.efficiency.empty())
        return;
    std::string allowed;
    for (const GemmConstants& g : d.calibration.gemm)
        if (d.peak.count(g.dtype) != 0) allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(g.dtype));
    out.push_back({.reason = "precision_not_calibrated",
                   .field = "training.precision",
                   .found = std::string(name_of(t)),
                   .rule = fmt::format("needs a peak, GEMM and attention constants of the device {}", d.name),
                   .allowed = std::move(allowed)});
}

const Framework* known_framework(const Plan& plan, Rejections& out) {
    if (const Framework* f = find_framework(plan.framework)) return f;
    UnknownFramework unknown = unknown_framework(plan.framework.reference());
    out.push_back({.reason = "framework_unknown",
                   .field = "framework",
                   .found = fmt::format("\"{}\"", plan.framework.reference()),
                   .rule = "must be a profile's name",
                   .allowed = std::move(unknown.allowed),
                   .suggestion = std::move(unknown.suggestion)});
    return nullptr;
}

// What the engine's kernels do not do, by the field of the model that asks for it.
void check_runnable_model(const ModelSpec& m, std::int64_t sequence, Rejections& out) {
    const auto refuse = [&](const char* field, std::string found) {
        out.push_back({.reason = "model_not_runnable",
                       .field = std::string("model.") + field,
                       .found = std::move(found),
                       .rule = "is predicted but not executed: no kernel of this machine's engine does it"});
    };
    if (m.positions == Positions::alibi) refuse("positions", "alibi");
    if (m.sliding_window.size > 0 && m.sliding_window.size < sequence)
        refuse("sliding_window", fmt::format("{} of {} tokens", m.sliding_window.size, sequence));
    if (m.has_experts()) refuse("moe", fmt::format("{} experts", m.moe.experts));
    if (m.attention_sinks) refuse("attention_sinks", "true");
    if (m.is_latent()) refuse("mla", fmt::format("kv_lora {}", m.mla.kv_lora));
    if (m.elementwise_scaling) refuse("elementwise_scaling", "true");
}

}  // namespace

std::string text(const Rejection& r) {
    std::string s = fmt::format("{} = {}: {}", r.field, r.found, r.rule);
    std::vector<std::string> hints;
    if (!r.allowed.empty()) hints.push_back("allowed: " + r.allowed);
    if (!r.suggestion.empty()) hints.push_back("try " + r.suggestion);
    if (!hints.empty()) s += fmt::format(" ({})", fmt::join(hints, "; "));
    return s;
}

std::vector<Rejection> check(const Plan& plan) {
    Rejections out;
    check_sizes(plan, out);
    if (!out.empty()) return out;
    check_magnitude(plan, out);
    check_world(plan, out);
    check_tensor(plan, out);
    check_sequence(plan, out);
    check_context(plan, out);
    check_experts(plan, out);
    check_stage_layers(plan, out);
    check_batch(plan, out);
    check_shard(plan, out);
    check_overlap(plan, out);
    check_recompute(plan, out);
    check_host_link(plan, out);
    if (const Framework* f = known_framework(plan, out)) {
        check_framework(plan, *f, out);
        check_vocabulary(plan, *f, out);
        check_added_magnitude(plan, *f, out);
    }
    check_calibration(plan, out);
    // What to do about the ranks obeys the layers too; the layers alone know nothing of the tensor ranks.
    const auto ranks = std::find_if(out.begin(), out.end(), [](const Rejection& r) {
        return r.reason == "devices_divisible" && !r.suggestion.empty();
    });
    if (ranks != out.end())
        for (Rejection& r : out)
            if (r.reason == "pipeline_divides_layers") r.suggestion.clear();
    return out;
}

std::vector<Rejection> check_runnable(const Plan& plan) {
    constexpr std::int64_t most_ranks = 64;
    Rejections out;
    if (const Framework* f = known_framework(plan, out); f != nullptr && !f->runnable)
        out.push_back({.reason = "framework_not_runnable",
                       .field = "framework",
                       .found = plan.framework.reference(),
                       .rule = "is a profile for predictions; only foretrain's own engine executes plans",
                       .allowed = "foretrain",
                       .suggestion = "foretrain"});
    const DType t = plan.training.computes();
    if (t != DType::fp32 && t != DType::fp64)
        out.push_back({.reason = "precision_not_runnable",
                       .field = "training.precision",
                       .found = std::string(name_of(t)),
                       .rule = "is not executed on this machine",
                       .allowed = "fp32, fp64",
                       .suggestion = "fp32"});
    check_runnable_model(plan.model, plan.training.sequence_length, out);
    const Parallelism& p = plan.parallelism;
    const bool sound = in_range(p.tensor) && in_range(p.context) && in_range(p.pipeline) && in_range(p.data);
    const std::optional<std::int64_t> world = sound ? product({p.tensor, p.context, p.pipeline, p.data}) : std::nullopt;
    if (!world || *world > most_ranks)
        out.push_back({.reason = "too_many_ranks",
                       .field = "parallelism",
                       .found = fmt::format("{} ranks", text_of(world)),
                       .rule = fmt::format("must be at most {} on one machine", most_ranks)});
    return out;
}

}  // namespace foretrain
