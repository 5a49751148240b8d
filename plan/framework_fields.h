// The fields of a framework's profile in its file, with their ranges: named once, for reading and for writing.
//
//   FieldReader in(json);  visit(in, costs.host);  in.finish();
//   Json out = Json::object();  FieldWriter w(out);  visit(w, costs.host);
//
// What is a list of names, and attention's two forms, are in framework_file.cpp.
#pragma once

#include <optional>

#include "hardware/fields.h"
#include "plan/framework.h"

namespace foretrain {

constexpr double most_us = 1e9;
constexpr double least_factor = 0.1, most_factor = 100;
constexpr std::int64_t most_operations = 100000;
constexpr std::int64_t none_of_it = 0, all_of_it = 1000;  // per mille

// {"forward": ..., "backward": ...}, both or none.
template <class Pair>
void both(FieldReader& in, const char* key, Pair& out, std::int64_t most) {
    const Json value = in.take(key);
    if (value.is_null()) return;
    value.only_keys({"forward", "backward"});
    out = {value.at("forward").integer(none_of_it, most), value.at("backward").integer(none_of_it, most)};
}
template <class Pair>
void both(FieldWriter& out, const char* key, const Pair& pair, std::int64_t) {
    Json value = Json::object();
    out.put(key, value.set("forward", pair.forward).set("backward", pair.backward));
}
template <class Pair>
void both(FieldReader& in, const char* key, std::optional<Pair>& out, std::int64_t most) {
    Pair pair = out.value_or(Pair{-1, -1});
    both(in, key, pair, most);
    if (pair.forward >= 0) out = pair;
}
template <class Pair>
void both(FieldWriter& out, const char* key, const std::optional<Pair>& pair, std::int64_t most) {
    if (pair) both(out, key, *pair, most);
}

// {"bf16": {"1": 1, "1500": 1.3}}: what is not named stays as it was.
inline void by_type(FieldReader& in, const char* key, StepsByType& out, double least, double most) {
    const Json types = in.take(key);
    if (types.is_null()) return;
    for (const std::string& name : types.keys()) {
        const auto type = dtype_from_name(name);
        if (!type) types.at(name).fail("\"" + name + "\"", "an element type as key");
        out[*type] = by_count(types.at(name), "TFLOP/s", least, most);
    }
}
inline void by_type(FieldWriter& out, const char* key, const StepsByType& steps, double, double) {
    Json types = Json::object();
    for (const auto& [type, figures] : steps) types.set(name_of(type), by_count(figures));
    out.put(key, std::move(types));
}

template <class Visitor>
void visit(Visitor& v, HostCosts& h) {
    v("forward_operations", h.forward_operations, none_of_it, most_operations);
    v("backward_operations", h.backward_operations, none_of_it, most_operations);
    v("operation_us", h.operation_us, 0.0, most_us);    // by the device's dense TFLOP/s
    v("collective_us", h.collective_us, 0.0, most_us);  // by ranks
    v("recompute_us", h.recompute_us, 0.0, most_us);
    both(v, "embedding_operations", h.embedding, most_operations);
    both(v, "head_operations", h.head, most_operations);
    v("waits_for_messages", h.waits_for_messages);
    v("waits_for_batches", h.waits_for_batches);
}

template <class Visitor>
void visit(Visitor& v, StallCosts& s) {
    v("forward_us", s.forward_us, 0.0, most_us);
    v("backward_us", s.backward_us, 0.0, most_us);
    v("step_us", s.step_us, 0.0, most_us);
}

template <class Visitor>
void visit(Visitor& v, MessageCosts& m) {
    v("each_us", m.each_us, 0.0, most_us);
    v("interleaved", m.interleaved, none_of_it, all_of_it);
    v("split", m.split);
}

template <class Visitor>
void visit(Visitor& v, OverlapCosts& o) {
    v("tensor_forward", o.tensor.forward, none_of_it, all_of_it);
    v("tensor_backward", o.tensor.backward, none_of_it, all_of_it);
    both(v, "tensor_in_pieces", o.tensor_in_pieces, all_of_it);
    v("data_inside", o.data_inside, none_of_it, all_of_it);
    v("data_across", o.data_across, none_of_it, all_of_it);
    v("data_takes", o.data_takes, all_of_it, 30 * all_of_it);
    v("parameters_take", o.parameters_take, none_of_it, all_of_it);
    v("parameters_rank_us", o.parameters_rank_us, 0.0, most_us);
}

template <class Visitor>
void visit(Visitor& v, ExpertCosts::Operations& o) {
    v("layer", o.layer, 0.0, static_cast<double>(most_operations));
    v("each", o.each, 0.0, static_cast<double>(most_operations));
}

// `forward_operations` and `backward_operations` have a form of their own.
template <class Visitor>
void visit(Visitor& v, ExpertCosts& e) {
    v("host_takes", e.host_takes, 0.0, 100.0);
    v("gap_us", e.gap_us, 0.0, most_us);
    v("stall_takes", e.stall_takes, 0.0, 100.0);
    v("exchange", e.exchange, 0.0, static_cast<double>(all_of_it));  // by devices of a node
    v("once_per_node", e.once_per_node);
    v("traffic", e.traffic, 0.01, most_factor);
    v("imbalance", e.imbalance, 1.0, 1000.0);
}

template <class Visitor>
void visit(Visitor& v, TrafficFactors& t) {
    v("stream_forward", t.stream_forward, least_factor, most_factor);
    v("stream_backward", t.stream_backward, least_factor, most_factor);
    v("activation_forward", t.activation_forward, least_factor, most_factor);
    v("activation_backward", t.activation_backward, least_factor, most_factor);
    v("loss", t.loss, least_factor, most_factor);
}

template <class Visitor>
void visit(Visitor& v, AttentionFactor& a) {
    v("measured", a.measured);
    v("forward", a.forward, least_factor, most_factor);
    v("backward", a.backward, least_factor, most_factor);
}

template <class Visitor>
void visit(Visitor& v, UnfusedAttention& u) {
    v("product_efficiency", u.product_efficiency, 0.01, 1.0);
    v("forward_bytes", u.forward_bytes, 4.0, 1000.0);
    v("backward_bytes", u.backward_bytes, 8.0, 1000.0);
    v("softmax_multiple", u.softmax_multiple, std::int64_t{1}, std::int64_t{1024});
    v("without_softmax_kernel", u.without_softmax_kernel, 1.0, most_factor);
    v("operations_without", u.operations_without, std::int64_t{0}, std::int64_t{1000});
    v("unaligned_products", u.unaligned_products, 1.0, most_factor);
}

constexpr std::int64_t some = 1000, widest_logit = 64;  // bytes
constexpr double most_mib = 1 << 20;

// `attention` has a form of its own.
template <class Visitor>
void visit(Visitor& v, MemoryCosts& m) {
    v("hidden_dropout", m.hidden_dropout, 0.0, 1.0);
    v("attention_dropout", m.attention_dropout, 0.0, 1.0);
    v("norm_statistics", m.norm_statistics, std::int64_t{0}, some);
    v("second_output", m.second_output);
    v("native_logit_bytes", m.native_logit_bytes, 0.0, static_cast<double>(widest_logit));
    v("compiled_logit_bytes", m.compiled_logit_bytes, std::int64_t{0}, widest_logit);
    v("logit_bytes", m.logit_bytes, std::int64_t{0}, widest_logit);
    v("head_gradient", m.head_gradient);
    v("library_mib", m.library_mib, 0.0, most_mib);
    v("deterministic_mib", m.deterministic_mib, 0.0, most_mib);
    v("library_handles", m.library_handles, std::int64_t{0}, some);
    v("expert_overlap_handles", m.expert_overlap_handles, std::int64_t{0}, some);
    v("layer_mib", m.layer_mib, 0.0, most_mib);
    v("overlap_workspaces", m.overlap_workspaces, std::int64_t{0}, some);
    v("grouped_workspaces", m.grouped_workspaces, std::int64_t{0}, some);
    v("own_layer_mib", m.own_layer_mib, 0.0, most_mib);  // by ranks
    v("unsharded_mib", m.unsharded_mib, 0.0, most_mib);
    v("gradient_shapes", m.gradient_shapes);
    v("attention_mask", m.attention_mask);
    v("idle_rings", m.idle_rings);
    v("messages", m.messages, std::int64_t{0}, some);
    v("slack", m.slack, 0.0, 100.0);
}

// What stands in no group.
template <class Visitor>
void visit(Visitor& v, SoftwareCosts& c) {
    v("host_update_ns", c.host_update_ns, 0.0, most_us);
    v("straggling", c.straggling, 0.0, 1.0);
    by_type(v, "gemm", c.gemm, 0.1, 10.0);
}

template <class Visitor>
void visit(Visitor& v, Framework& f) {
    v("runnable", f.runnable);
    v("by_name_only", f.by_name_only);
    v("has_tensor_ranks", f.has_tensor_ranks);
    v("has_pipeline", f.has_pipeline);
    v("interleaves", f.interleaves);
    v("routes_experts", f.routes_experts);
    v("fills_stages", f.fills_stages);
    v("offloads_optimizer", f.offloads_optimizer);
    v("default_sequence_parallel", f.default_sequence_parallel);
    v("default_zero_stage", f.default_zero_stage, 0, 3);
    v("default_gradient_overlap", f.default_overlap.gradient_reduce);
    v("default_parameter_overlap", f.default_overlap.parameter_gather);
    v("default_tensor_overlap", f.default_overlap.tensor);
    v("reduces_whole", f.reduces_whole);
    by_type(v, "quantised_weights", f.quantised_weights, 0.0, 8.0);
    v("vocab_multiple", f.vocab_multiple, std::int64_t{1}, std::int64_t{1} << 20);
    v("loss_fp32_copy", f.loss_fp32_copy);
    v("recompute_stops_early", f.recompute_stops_early);
    v("reserved_bytes", f.reserved, std::int64_t{0}, std::int64_t{1} << 40);
    v("builds_on_host", f.builds_on_host);
    v("checkpoints_beside", f.checkpoints_beside);
    v("step_spread", f.step_spread, 0.0, widest_spread);
    v("step_spread_assumed", f.step_spread_assumed);
}

template <class Visitor>
void visit(Visitor& v, VersionRuns& r) {
    v("from_month", r.from_month);
    v("until_month", r.until_month);
    v("from_release", r.from_release);
    v("until_release", r.until_release);
    v("compiled", r.compiled);
    v.unless_zero("in_place_of", r.in_place_of);
}

}  // namespace foretrain
