#include "plan/framework_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr const char* framework_format = "foretrain.framework/1";
constexpr double most_us = 1e9;

// Element i of an enum whose values these are the names of.
template <class Enum>
void list_of(const Json& value, const char* key, const std::vector<std::string>& names, std::vector<Enum>& out) {
    if (!value.has(key)) return;
    out.clear();
    for (const Json& item : value.at(key).items()) out.push_back(static_cast<Enum>(item.one_of(names)));
}

void flag(const Json& value, const char* key, bool& out) {
    if (value.has(key)) out = value.at(key).boolean();
}

void number(const Json& value, const char* key, double& out, double least, double most) {
    if (value.has(key)) out = value.at(key).number(least, most);
}

void integer(const Json& value, const char* key, std::int64_t& out, std::int64_t least, std::int64_t most) {
    if (value.has(key)) out = value.at(key).integer(least, most);
}

void steps(const Json& value, const char* key, const char* what, Steps& out) {
    if (value.has(key)) out = by_count(value.at(key), what, 0, most_us);
}

// {"bf16": {"1": 1, "1500": 1.3}}: what is not named stays as it was.
void steps_by_type(const Json& value, const char* key, double least, double most, StepsByType& out) {
    if (!value.has(key)) return;
    const Json types = value.at(key);
    for (const std::string& name : types.keys()) {
        const auto type = dtype_from_name(name);
        if (!type) types.at(name).fail("\"" + name + "\"", "an element type as key");
        out[*type] = by_count(types.at(name), "TFLOP/s", least, most);
    }
}

void operations(const Json& value, const char* key, Operations& out) {
    if (!value.has(key)) return;
    const Json both = value.at(key);
    both.only_keys({"forward", "backward"});
    out = {both.at("forward").integer(0, 100000), both.at("backward").integer(0, 100000)};
}

void read_host(const Json& value, HostCosts& h) {
    value.only_keys({"forward_operations", "backward_operations", "operation_us", "collective_us", "recompute_us",
                     "embedding_operations", "head_operations", "waits_for_messages", "waits_for_batches"});
    integer(value, "forward_operations", h.forward_operations, 0, 100000);
    integer(value, "backward_operations", h.backward_operations, 0, 100000);
    steps(value, "operation_us", "TFLOP/s", h.operation_us);
    steps(value, "collective_us", "ranks", h.collective_us);
    number(value, "recompute_us", h.recompute_us, 0, most_us);
    operations(value, "embedding_operations", h.embedding);
    operations(value, "head_operations", h.head);
    flag(value, "waits_for_messages", h.waits_for_messages);
    flag(value, "waits_for_batches", h.waits_for_batches);
}

void read_stall(const Json& value, StallCosts& s) {
    value.only_keys({"forward_us", "backward_us", "step_us"});
    number(value, "forward_us", s.forward_us, 0, most_us);
    number(value, "backward_us", s.backward_us, 0, most_us);
    number(value, "step_us", s.step_us, 0, most_us);
}

void read_messages(const Json& value, MessageCosts& m) {
    value.only_keys({"each_us", "interleaved", "split"});
    number(value, "each_us", m.each_us, 0, most_us);
    integer(value, "interleaved", m.interleaved, 0, 1000);
    flag(value, "split", m.split);
}

void read_overlap(const Json& value, OverlapCosts& o) {
    value.only_keys({"tensor_forward", "tensor_backward", "tensor_in_pieces", "data_inside", "data_across",
                     "data_takes", "parameters_take", "parameters_rank_us"});
    integer(value, "tensor_forward", o.tensor.forward, 0, 1000);
    integer(value, "tensor_backward", o.tensor.backward, 0, 1000);
    if (value.has("tensor_in_pieces")) {
        const Json pieces = value.at("tensor_in_pieces");
        pieces.only_keys({"forward", "backward"});
        o.tensor_in_pieces = {pieces.at("forward").integer(0, 1000), pieces.at("backward").integer(0, 1000)};
    }
    integer(value, "data_inside", o.data_inside, 0, 1000);
    integer(value, "data_across", o.data_across, 0, 1000);
    integer(value, "data_takes", o.data_takes, 1000, 30000);
    integer(value, "parameters_take", o.parameters_take, 0, 1000);
    number(value, "parameters_rank_us", o.parameters_rank_us, 0, most_us);
}

void read_traffic(const Json& value, TrafficFactors& t) {
    value.only_keys({"stream_forward", "stream_backward", "activation_forward", "activation_backward", "loss"});
    number(value, "stream_forward", t.stream_forward, 0.1, 100);
    number(value, "stream_backward", t.stream_backward, 0.1, 100);
    number(value, "activation_forward", t.activation_forward, 0.1, 100);
    number(value, "activation_backward", t.activation_backward, 0.1, 100);
    number(value, "loss", t.loss, 0.1, 100);
}

ExpertCosts::Operations operations(const Json& value) {
    value.only_keys({"layer", "each"});
    return {value.at("layer").number(0, 100000), value.at("each").number(0, 100000)};
}

void read_experts(const Json& value, ExpertCosts& e) {
    value.only_keys({"forward_operations", "backward_operations", "host_takes", "gap_us", "stall_takes", "exchange",
                     "once_per_node", "traffic", "imbalance"});
    if (value.has("forward_operations")) e.forward_operations = operations(value.at("forward_operations"));
    if (value.has("backward_operations")) e.backward_operations = operations(value.at("backward_operations"));
    number(value, "host_takes", e.host_takes, 0, 100);
    number(value, "gap_us", e.gap_us, 0, most_us);
    number(value, "stall_takes", e.stall_takes, 0, 100);
    if (value.has("exchange")) e.exchange = by_count(value.at("exchange"), "devices of a node", 0, 1000);
    flag(value, "once_per_node", e.once_per_node);
    number(value, "traffic", e.traffic, 0.01, 100);
    number(value, "imbalance", e.imbalance, 1, 1000);
}

UnfusedAttention unfused_from(const Json& value) {
    value.only_keys({"product_efficiency", "forward_bytes", "backward_bytes", "softmax_multiple",
                     "without_softmax_kernel", "operations_without", "unaligned_products"});
    UnfusedAttention u;
    u.product_efficiency = value.at("product_efficiency").number(0.01, 1);
    u.forward_bytes = value.at("forward_bytes").number(4, 1000);
    u.backward_bytes = value.at("backward_bytes").number(8, 1000);
    integer(value, "softmax_multiple", u.softmax_multiple, 1, 1024);
    number(value, "without_softmax_kernel", u.without_softmax_kernel, 1, 100);
    integer(value, "operations_without", u.operations_without, 0, 1000);
    number(value, "unaligned_products", u.unaligned_products, 1, 100);
    return u;
}

// Unfused, or factors on what was measured, never both.
void read_attention(const Json& value, SoftwareCosts& c) {
    c.attention.clear();
    c.unfused = {};
    if (value.is_object()) {
        c.unfused = unfused_from(value);
        return;
    }
    for (const Json& item : value.items()) {
        item.only_keys({"measured", "forward", "backward"});
        c.attention.push_back(
            {item.at("measured").string(), item.at("forward").number(0.1, 100), item.at("backward").number(0.1, 100)});
    }
}

void read_costs(const Json& value, SoftwareCosts& c) {
    value.only_keys({"host", "stall", "messages", "overlap", "traffic", "experts", "attention", "unfused_attention",
                     "straggling", "gemm"});
    if (value.has("host")) read_host(value.at("host"), c.host);
    if (value.has("stall")) read_stall(value.at("stall"), c.stall);
    if (value.has("messages")) read_messages(value.at("messages"), c.messages);
    if (value.has("overlap")) read_overlap(value.at("overlap"), c.overlap);
    if (value.has("traffic")) read_traffic(value.at("traffic"), c.traffic);
    if (value.has("experts")) read_experts(value.at("experts"), c.experts);
    if (value.has("attention")) read_attention(value.at("attention"), c);
    number(value, "straggling", c.straggling, 0, 1);
    steps_by_type(value, "gemm", 0.1, 10, c.gemm);
    if (value.has("unfused_attention")) c.unfused_if_asked = unfused_from(value.at("unfused_attention"));
}

void steps_of_mib(const Json& value, const char* key, const char* what, Steps& out) {
    constexpr double most = 1 << 20;
    if (value.has(key)) out = by_count(value.at(key), what, 0, most);
}

void read_memory(const Json& value, MemoryCosts& m) {
    value.only_keys({"hidden_dropout",
                     "attention_dropout",
                     "norm_statistics",
                     "second_output",
                     "attention",
                     "native_logit_bytes",
                     "compiled_logit_bytes",
                     "logit_bytes",
                     "head_gradient",
                     "library_mib",
                     "deterministic_mib",
                     "library_handles",
                     "layer_mib",
                     "overlap_workspaces",
                     "grouped_workspaces",
                     "own_layer_mib",
                     "unsharded_mib",
                     "gradient_shapes",
                     "attention_mask",
                     "idle_rings",
                     "messages",
                     "slack"});
    constexpr std::int64_t some = 1000;
    number(value, "hidden_dropout", m.hidden_dropout, 0, 1);
    number(value, "attention_dropout", m.attention_dropout, 0, 1);
    integer(value, "norm_statistics", m.norm_statistics, 0, some);
    flag(value, "second_output", m.second_output);
    if (value.has("attention")) {
        const Json kinds = value.at("attention");
        m.attention.clear();
        for (const std::string& from : kinds.keys())
            m.attention.emplace_back(
                std::stoi(from),
                static_cast<AttentionKind>(kinds.at(from).one_of({"unfused", "flash1", "flash2", "flash3", "cudnn"})));
        std::sort(m.attention.begin(), m.attention.end());
    }
    if (value.has("native_logit_bytes"))
        m.native_logit_bytes = by_count(value.at("native_logit_bytes"), "TFLOP/s", 0, 64);
    integer(value, "compiled_logit_bytes", m.compiled_logit_bytes, 0, 64);
    integer(value, "logit_bytes", m.logit_bytes, 0, 64);
    flag(value, "head_gradient", m.head_gradient);
    steps_of_mib(value, "library_mib", "TFLOP/s", m.library_mib);
    number(value, "deterministic_mib", m.deterministic_mib, 0, 1 << 20);
    integer(value, "library_handles", m.library_handles, 0, some);
    steps_of_mib(value, "layer_mib", "TFLOP/s", m.layer_mib);
    integer(value, "overlap_workspaces", m.overlap_workspaces, 0, some);
    integer(value, "grouped_workspaces", m.grouped_workspaces, 0, some);
    steps_of_mib(value, "own_layer_mib", "ranks", m.own_layer_mib);
    number(value, "unsharded_mib", m.unsharded_mib, 0, 1 << 20);
    flag(value, "gradient_shapes", m.gradient_shapes);
    flag(value, "attention_mask", m.attention_mask);
    flag(value, "idle_rings", m.idle_rings);
    integer(value, "messages", m.messages, 0, some);
    number(value, "slack", m.slack, 0, 100);
}

void read_abilities(const Json& value, Framework& f) {
    flag(value, "runnable", f.runnable);
    f.by_name_only = false;  // each version's own
    flag(value, "by_name_only", f.by_name_only);
    if (value.has("zero_stages")) {
        f.zero_stages.clear();
        for (const Json& z : value.at("zero_stages").items())
            f.zero_stages.push_back(static_cast<int>(z.integer(0, 3)));
    }
    if (value.has("zero_stages_in_part")) {
        f.zero_stages_in_part.clear();
        for (const Json& z : value.at("zero_stages_in_part").items())
            f.zero_stages_in_part.push_back(static_cast<int>(z.integer(1, 3)));
    }
    list_of(value, "schedules", {"gpipe", "1f1b"}, f.schedules);
    flag(value, "has_tensor_ranks", f.has_tensor_ranks);
    flag(value, "has_pipeline", f.has_pipeline);
    flag(value, "interleaves", f.interleaves);
    flag(value, "routes_experts", f.routes_experts);
    flag(value, "fills_stages", f.fills_stages);
    if (value.has("precisions")) {
        f.precisions.clear();
        const std::vector<std::string> names{"fp32", "fp64", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"};
        for (const Json& p : value.at("precisions").items())
            f.precisions.push_back(*dtype_from_name(names[p.one_of(names)]));
    }
    list_of(value, "recompute", {"none", "selective", "full", "block", "segment", "every"}, f.recompute);
    list_of(value, "context_methods", {"ring", "all-to-all"}, f.context_methods);
    flag(value, "default_sequence_parallel", f.default_sequence_parallel);
    if (value.has("default_zero_stage"))
        f.default_zero_stage = static_cast<int>(value.at("default_zero_stage").integer(0, 3));
    flag(value, "default_gradient_overlap", f.default_overlap.gradient_reduce);
    flag(value, "default_parameter_overlap", f.default_overlap.parameter_gather);
    flag(value, "default_tensor_overlap", f.default_overlap.tensor);
    if (value.has("half_gradient")) {
        const std::vector<std::string> names{"fp32", "bf16", "fp16"};
        f.half_gradient = *dtype_from_name(names[value.at("half_gradient").one_of(names)]);
    }
    flag(value, "reduces_whole", f.reduces_whole);
    steps_by_type(value, "quantised_weights", 0, 8, f.quantised_weights);
    integer(value, "vocab_multiple", f.vocab_multiple, 1, 1 << 20);
    flag(value, "loss_fp32_copy", f.loss_fp32_copy);
    flag(value, "recompute_stops_early", f.recompute_stops_early);
    integer(value, "reserved_bytes", f.reserved.value, 0, std::int64_t{1} << 40);
    flag(value, "builds_on_host", f.builds_on_host);
    flag(value, "checkpoints_beside", f.checkpoints_beside);
    if (value.has("step_spread")) f.step_spread_assumed = false;  // that of the version that it is like
    number(value, "step_spread", f.step_spread, 0, widest_spread);
    flag(value, "step_spread_assumed", f.step_spread_assumed);
}

// Those that need no source: what is no figure, and what the source of another figure says.
bool needs_source(const std::string& key) {
    for (const char* none : {"version", "like", "costs", "sources", "runnable", "by_name_only", "step_spread_assumed"})
        if (key == none) return false;
    return true;
}

std::string text_of(const Json& value, const char* key) { return value.has(key) ? value.at(key).string() : ""; }

// "2022-05", which sorts as texts do.
std::string month_of(const Json& value, const char* key) {
    const std::string month = text_of(value, key);
    const auto digits = [&](std::size_t from, std::size_t n) {
        return std::all_of(month.begin() + static_cast<std::ptrdiff_t>(from),
                           month.begin() + static_cast<std::ptrdiff_t>(from + n),
                           [](char c) { return '0' <= c && c <= '9'; });
    };
    if (!month.empty() && (month.size() != 7 || month[4] != '-' || !digits(0, 4) || !digits(5, 2)))
        value.at(key).fail(value.at(key).found(), "a month, as in 2022-05");
    return month;
}

VersionRuns runs_from(const Json& value) {
    value.only_keys({"from_month", "until_month", "from_release", "until_release", "details", "compiled"});
    VersionRuns runs{.from_month = month_of(value, "from_month"),
                     .until_month = month_of(value, "until_month"),
                     .from_release = text_of(value, "from_release"),
                     .until_release = text_of(value, "until_release"),
                     .details = {}};
    if (value.has("details"))
        for (const Json& word : value.at("details").items()) runs.details.push_back(word.string());
    flag(value, "compiled", runs.compiled);
    return runs;
}

void read_sources(const Json& version, Framework& f) {
    if (version.has("sources")) {
        const Json sources = version.at("sources");
        for (const std::string& key : sources.keys()) f.sources[key] = sources.at(key).string();
    }
    for (const std::string& key : version.keys())
        if (needs_source(key) && f.sources.count(key) == 0)
            version.at(key).fail("no source", "one in \"sources\" for each figure");
    if (!version.has("costs")) return;
    for (const std::string& key : version.at("costs").keys())
        if (f.sources.count(key) == 0)
            version.at("costs").at(key).fail("no source", "one in \"sources\" for each group of costs");
}

}  // namespace

void read_frameworks(const Preset& preset, std::vector<Framework>& out) {
    const Json file = Json::parse(preset.text, "framework " + std::string(preset.name));
    file.only_keys({"format", "name", "versions"});
    file.at("format").one_of({framework_format});
    const std::size_t first = out.size();
    for (const Json& version : file.at("versions").items()) {
        version.only_keys({"version",
                           "like",
                           "runnable",
                           "zero_stages",
                           "zero_stages_in_part",
                           "has_tensor_ranks",
                           "has_pipeline",
                           "schedules",
                           "interleaves",
                           "routes_experts",
                           "fills_stages",
                           "precisions",
                           "recompute",
                           "context_methods",
                           "default_sequence_parallel",
                           "default_zero_stage",
                           "default_gradient_overlap",
                           "default_parameter_overlap",
                           "half_gradient",
                           "reduces_whole",
                           "default_tensor_overlap",
                           "quantised_weights",
                           "by_name_only",
                           "vocab_multiple",
                           "loss_fp32_copy",
                           "recompute_stops_early",
                           "reserved_bytes",
                           "builds_on_host",
                           "checkpoints_beside",
                           "step_spread",
                           "step_spread_assumed",
                           "costs",
                           "memory",
                           "stands_for",
                           "sources"});
        Framework f;
        if (version.has("like")) {
            std::vector<std::string> before;
            for (std::size_t i = first; i < out.size(); ++i) before.push_back(out[i].version);
            f = out[first + version.at("like").one_of(before)];
        }
        // Whose runs it stands for is each version's own.
        f.runs = {};
        f.sources.erase("stands_for");
        f.name = file.at("name").string();
        f.version = version.at("version").string();
        read_abilities(version, f);
        if (version.has("costs")) read_costs(version.at("costs"), f.costs);
        if (version.has("memory")) read_memory(version.at("memory"), f.memory);
        if (version.has("stands_for")) f.runs = runs_from(version.at("stands_for"));
        read_sources(version, f);
        out.push_back(std::move(f));
    }
}

}  // namespace foretrain
