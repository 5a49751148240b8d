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
    value.only_keys({"tensor_forward", "tensor_backward", "data_inside", "data_across", "data_takes", "parameters_take",
                     "parameters_rank_us"});
    integer(value, "tensor_forward", o.tensor_forward, 0, 1000);
    integer(value, "tensor_backward", o.tensor_backward, 0, 1000);
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

// Unfused, or factors on what was measured, never both.
void read_attention(const Json& value, SoftwareCosts& c) {
    c.attention.clear();
    c.unfused = {};
    if (value.is_object()) {
        value.only_keys({"product_efficiency", "forward_bytes", "backward_bytes", "score_bytes", "softmax_multiple",
                         "without_softmax_kernel", "operations_without", "unaligned_products"});
        UnfusedAttention& u = c.unfused;
        u.product_efficiency = value.at("product_efficiency").number(0.01, 1);
        u.forward_bytes = value.at("forward_bytes").number(4, 1000);
        u.backward_bytes = value.at("backward_bytes").number(8, 1000);
        u.score_bytes = value.at("score_bytes").integer(0, 64);
        integer(value, "softmax_multiple", u.softmax_multiple, 1, 1024);
        number(value, "without_softmax_kernel", u.without_softmax_kernel, 1, 100);
        integer(value, "operations_without", u.operations_without, 0, 1000);
        number(value, "unaligned_products", u.unaligned_products, 1, 100);
        return;
    }
    for (const Json& item : value.items()) {
        item.only_keys({"measured", "forward", "backward"});
        c.attention.push_back(
            {item.at("measured").string(), item.at("forward").number(0.1, 100), item.at("backward").number(0.1, 100)});
    }
}

void read_costs(const Json& value, SoftwareCosts& c) {
    value.only_keys({"host", "stall", "messages", "overlap", "traffic", "attention", "offload", "straggling", "gemm"});
    if (value.has("host")) read_host(value.at("host"), c.host);
    if (value.has("stall")) read_stall(value.at("stall"), c.stall);
    if (value.has("messages")) read_messages(value.at("messages"), c.messages);
    if (value.has("overlap")) read_overlap(value.at("overlap"), c.overlap);
    if (value.has("traffic")) read_traffic(value.at("traffic"), c.traffic);
    if (value.has("attention")) read_attention(value.at("attention"), c);
    if (value.has("offload")) {
        const Json offload = value.at("offload");
        offload.only_keys({"update_ns"});
        c.host_update_ns = offload.at("update_ns").number(0, most_us);
    }
    number(value, "straggling", c.straggling, 0, 1);
    if (value.has("gemm")) c.gemm = by_count(value.at("gemm"), "TFLOP/s", 0.1, 10);
}

void read_abilities(const Json& value, Framework& f) {
    flag(value, "runnable", f.runnable);
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
    flag(value, "fills_stages", f.fills_stages);
    if (value.has("precisions")) {
        f.precisions.clear();
        const std::vector<std::string> names{"fp32", "fp64", "bf16", "fp16"};
        for (const Json& p : value.at("precisions").items())
            f.precisions.push_back(*dtype_from_name(names[p.one_of(names)]));
    }
    list_of(value, "recompute", {"none", "selective", "full", "block", "segment", "every", "selective_op", "offload"},
            f.recompute);
    flag(value, "offloads_optimizer", f.offloads_optimizer);
    list_of(value, "context_methods", {"ring", "all-to-all"}, f.context_methods);
    flag(value, "default_sequence_parallel", f.default_sequence_parallel);
    if (value.has("default_zero_stage"))
        f.default_zero_stage = static_cast<int>(value.at("default_zero_stage").integer(0, 3));
    flag(value, "default_gradient_overlap", f.default_overlap.gradient_reduce);
    flag(value, "default_parameter_overlap", f.default_overlap.parameter_gather);
    if (value.has("half_gradient")) {
        const std::vector<std::string> names{"fp32", "bf16", "fp16"};
        f.half_gradient = *dtype_from_name(names[value.at("half_gradient").one_of(names)]);
    }
    flag(value, "reduces_whole", f.reduces_whole);
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
    for (const char* none : {"version", "like", "costs", "sources", "runnable", "step_spread_assumed"})
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
                           "fills_stages",
                           "precisions",
                           "recompute",
                           "context_methods",
                           "offloads_optimizer",
                           "default_sequence_parallel",
                           "default_zero_stage",
                           "default_gradient_overlap",
                           "default_parameter_overlap",
                           "half_gradient",
                           "reduces_whole",
                           "vocab_multiple",
                           "loss_fp32_copy",
                           "recompute_stops_early",
                           "reserved_bytes",
                           "builds_on_host",
                           "checkpoints_beside",
                           "step_spread",
                           "step_spread_assumed",
                           "costs",
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
        if (version.has("stands_for")) f.runs = runs_from(version.at("stands_for"));
        read_sources(version, f);
        out.push_back(std::move(f));
    }
}

}  // namespace foretrain
