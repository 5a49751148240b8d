#include "plan/plan_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/framework.h"
#include "plan/training_file.h"

namespace foretrain {

namespace {

constexpr const char* plan_format = "foretrain.plan/1";
constexpr std::int64_t largest = std::int64_t{1} << 40;

using Kind = Recompute::Kind;

const std::vector<std::string> schedule_names{"gpipe", "1f1b"};
const std::vector<std::string> context_method_names{"ring", "all-to-all"};
struct RecomputeWord {
    const char* word;
    Kind kind;
};
constexpr RecomputeWord recompute_word_kinds[] = {
    {"none", Kind::none}, {"selective", Kind::selective}, {"full", Kind::full}, {"selective_op", Kind::operators}};
const std::vector<std::string> recompute_words{"none", "selective", "full", "selective_op"};

// The forms of recompute that carry a count: in a file {"block_layers": 2}, in a text "block 2".
struct CountedRecompute {
    const char* key;
    const char* word;
    Kind kind;
};
constexpr CountedRecompute counted_recompute[] = {{"block_layers", "block", Kind::block},
                                                  {"segment_layers", "segment", Kind::segment},
                                                  {"every", "every", Kind::every}};

const std::vector<std::string> parallelism_keys{"tensor",
                                                "pipeline",
                                                "virtual_pipeline",
                                                "context",
                                                "context_method",
                                                "expert",
                                                "expert_tensor",
                                                "data",
                                                "sequence_parallel",
                                                "zero_stage",
                                                "zero_shard_size",
                                                "micro_batch_size",
                                                "schedule",
                                                "recompute",
                                                "stage_layers",
                                                "first_stage_layers",
                                                "last_stage_layers",
                                                "embedding_and_head_as_layers",
                                                "offload",
                                                "overlap"};
const std::vector<std::string> overlap_keys{"gradient_reduce", "parameter_gather", "tensor", "pipeline"};

Recompute recompute_from(const Json& value) {
    if (value.is_string()) return {recompute_word_kinds[value.one_of(recompute_words)].kind, 0};
    if (!value.is_object())
        value.fail(value.found(), "none, selective, full, or an object such as {\"block_layers\": 2}");
    value.only_keys({"block_layers", "segment_layers", "every", "modules"});
    refuse_unless_neutral(value, "modules", Json());
    Recompute r;
    for (const CountedRecompute& c : counted_recompute) {
        if (!value.has(c.key)) continue;
        if (r.kind != Kind::none) value.fail("two kinds of recompute", "one of them");
        r = {c.kind, value.at(c.key).integer(1, largest)};
    }
    if (r.kind == Kind::none)
        value.fail("none of its keys", "block_layers, segment_layers or every, with a number of layers");
    return r;
}

Json recompute_to_json(const Recompute& r) {
    for (const CountedRecompute& c : counted_recompute)
        if (c.kind == r.kind) return Json::object().set(c.key, r.layers);
    return Json(r.kind == Kind::offload ? "none" : describe(r));
}

// {"optimizer": "cpu", "activation_layers": 20}: state and saved tensors in host memory.
void offload_from(const Json& value, Parallelism& p) {
    value.only_keys({"optimizer", "parameters", "activation_layers"});
    refuse_unless_neutral(value, "parameters", Json());
    if (value.has("optimizer")) {
        const Json optimizer = value.at("optimizer");
        if (optimizer.one_of({"cpu", "nvme"}) == 1) optimizer.unsupported(optimizer.found(), "\"cpu\"");
        p.optimizer_on_host = true;
    }
    if (!value.has("activation_layers")) return;
    const Json layers = value.at("activation_layers");
    if (p.recompute.kind != Kind::none)
        layers.unsupported(fmt::format("{} beside recompute {}", layers.found(), describe(p.recompute)),
                           "\"recompute\": \"none\", or the key left out");
    p.recompute = {Kind::offload, layers.integer(1, largest)};
}

Json offload_to_json(const Parallelism& p) {
    Json out = Json::object();
    if (p.optimizer_on_host) out.set("optimizer", "cpu");
    if (p.recompute.kind == Kind::offload) out.set("activation_layers", p.recompute.layers);
    return out;
}

Overlap overlap_from(const Json& value, const Framework& framework) {
    Overlap o = framework.default_overlap;
    if (value.has("gradient_reduce")) o.gradient_reduce = value.at("gradient_reduce").boolean();
    if (value.has("parameter_gather")) o.parameter_gather = value.at("parameter_gather").boolean();
    if (value.has("pipeline")) o.pipeline = value.at("pipeline").boolean();
    if (value.has("tensor")) o.tensor = value.at("tensor").boolean();
    return o;
}

// `data` is 0 where it is left out: complete() fills it in.
Parallelism parallelism_from(const Json& value, const Framework& framework, const Training& training) {
    Parallelism p;
    const auto size = [&](const char* key, std::int64_t& x) {
        if (value.has(key)) x = value.at(key).integer(1, largest);
    };
    p.data = 0;
    size("tensor", p.tensor);
    size("pipeline", p.pipeline);
    size("virtual_pipeline", p.virtual_pipeline);
    size("context", p.context);
    if (value.has("context_method"))
        p.context_method = static_cast<ContextMethod>(value.at("context_method").one_of(context_method_names));
    size("expert", p.expert);
    size("expert_tensor", p.expert_tensor);
    size("data", p.data);
    size("micro_batch_size", p.micro_batch_size);
    p.zero_stage = framework.default_zero_stage;
    if (value.has("zero_stage")) p.zero_stage = static_cast<int>(value.at("zero_stage").integer(0, 3));
    if (value.has("zero_shard_size") && !value.at("zero_shard_size").is_null())
        p.zero_shard_size = value.at("zero_shard_size").integer(0, largest);
    p.sequence_parallel =
        framework.default_sequence_parallel && sequence_divides(p.tensor, p.context, training.sequence_length);
    if (value.has("sequence_parallel")) p.sequence_parallel = value.at("sequence_parallel").boolean();
    if (value.has("schedule")) {
        const Json schedule = value.at("schedule");
        const std::string name = schedule.string();
        if (name == "interleaved-1f1b")
            schedule.fail("\"interleaved-1f1b\"", "1f1b, which interleaves with \"virtual_pipeline\" of 2 or more");
        if (name == "zero-bubble") schedule.unsupported(schedule.found(), "gpipe or 1f1b");
        p.schedule = static_cast<Schedule>(schedule.one_of(schedule_names));
    }
    if (value.has("recompute")) p.recompute = recompute_from(value.at("recompute"));
    if (value.has("offload")) offload_from(value.at("offload"), p);
    if (value.has("stage_layers"))
        for (const Json& n : value.at("stage_layers").items()) p.stage_layers.push_back(n.integer(1, largest));
    size("first_stage_layers", p.first_stage_layers);
    size("last_stage_layers", p.last_stage_layers);
    if (value.has("embedding_and_head_as_layers"))
        p.embedding_and_head_as_layers = value.at("embedding_and_head_as_layers").boolean();
    p.overlap = framework.default_overlap;
    if (value.has("overlap")) p.overlap = overlap_from(value.at("overlap"), framework);
    return p;
}

// A run record keeps what it likes at its top level; a plan does not.
void check_top_level(const Json& value) {
    if (value.has("measured") || value.has("id")) return;
    value.only_keys({"format", "model", "cluster", "framework", "training", "parallelism", "id", "source", "measured",
                     "notes", "assumed", "framework_detail", "framework_release"});
}

std::int64_t whole_number(const std::string& text, const std::string& digits) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc{} || end != digits.data() + digits.size() || n < 1 || n > largest)
        throw UserError({.field = "recompute",
                         .found = fmt::format("\"{}\"", text.substr(0, 80)),
                         .expected = "a number of layers of at least 1, as in \"block 2\""});
    return n;
}

}  // namespace

void check_plan_keys(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a plan: an object with model, cluster, training, parallelism");
    check_top_level(value);
    if (value.has("training")) check_training_keys(value.at("training"));
    if (!value.has("parallelism")) return;
    const Json parallelism = value.at("parallelism");
    parallelism.only_keys(parallelism_keys);
    if (parallelism.has("overlap")) parallelism.at("overlap").only_keys(overlap_keys);
}

Plan plan_from_json(const Json& value) {
    check_plan_keys(value);
    if (value.has("format")) value.at("format").one_of({plan_format});
    Plan plan;
    plan.model = model_from_json(value.at("model"));
    plan.cluster = cluster_from_json(value.at("cluster"));
    if (value.has("framework")) {
        plan.framework = framework_from_json(value.at("framework"));
    } else {
        plan.framework = plan.cluster.default_framework;
    }
    const Framework& framework = framework_named(plan.framework);
    plan.training = training_from_json(value.at("training"));
    plan.parallelism =
        parallelism_from(value.has("parallelism") ? value.at("parallelism") : Json::object(), framework, plan.training);
    complete(plan);
    return plan;
}

Json plan_to_json(const Plan& plan) {
    Json out = Json::object();
    return out.set("format", plan_format)
        .set("model", model_to_json(plan.model))
        .set("cluster", cluster_to_json(plan.cluster))
        .set("framework", framework_to_json(plan.framework))
        .set("training", training_to_json(plan.training))
        .set("parallelism", parallelism_to_json(plan.parallelism));
}

Json parallelism_to_json(const Parallelism& p) {
    Json overlap = Json::object();
    overlap.set("gradient_reduce", p.overlap.gradient_reduce)
        .set("parameter_gather", p.overlap.parameter_gather)
        .set("pipeline", p.overlap.pipeline)
        .set("tensor", p.overlap.tensor);
    Json out = Json::object();
    out.set("tensor", p.tensor)
        .set("context", p.context)
        .set("context_method", name_of(p.context_method))
        .set("expert", p.expert)
        .set("expert_tensor", p.expert_tensor)
        .set("pipeline", p.pipeline)
        .set("virtual_pipeline", p.virtual_pipeline)
        .set("data", p.data)
        .set("sequence_parallel", p.sequence_parallel)
        .set("zero_stage", p.zero_stage)
        .set("zero_shard_size", p.zero_shard_size == 0 ? Json() : Json(p.zero_shard_size))
        .set("micro_batch_size", p.micro_batch_size)
        .set("schedule", name_of(p.schedule))
        .set("recompute", recompute_to_json(p.recompute));
    if (!p.stage_layers.empty()) {
        Json layers = Json::array();
        for (std::int64_t n : p.stage_layers) layers.push(Json(n));
        out.set("stage_layers", std::move(layers));
    }
    if (p.first_stage_layers != 0) out.set("first_stage_layers", p.first_stage_layers);
    if (p.last_stage_layers != 0) out.set("last_stage_layers", p.last_stage_layers);
    if (p.embedding_and_head_as_layers) out.set("embedding_and_head_as_layers", true);
    if (p.optimizer_on_host || p.recompute.kind == Kind::offload) out.set("offload", offload_to_json(p));
    return out.set("overlap", std::move(overlap));
}

Recompute recompute_from_text(const std::string& text) {
    const auto word = std::find(recompute_words.begin(), recompute_words.end(), text);
    if (word != recompute_words.end()) return {recompute_word_kinds[word - recompute_words.begin()].kind, 0};
    const std::size_t space = text.find_first_of(" :=");
    const std::string first = text.substr(0, space);
    for (const CountedRecompute& c : counted_recompute)
        if (space != std::string::npos && (first == c.word || first == c.key))
            return {c.kind, whole_number(text, text.substr(space + 1))};
    std::string suggestion = nearest(first.substr(0, 80), {"none", "selective", "full", "block", "segment", "every"});
    for (const CountedRecompute& c : counted_recompute)
        if (suggestion == c.word) suggestion += " 1";
    throw UserError({.field = "recompute",
                     .found = fmt::format("\"{}\"", text.substr(0, 80)),
                     .expected = "none, selective, full, \"block N\", \"segment N\" or \"every N\"",
                     .suggestion = std::move(suggestion)});
}

Schedule schedule_from_text(const std::string& text) {
    const auto name = std::find(schedule_names.begin(), schedule_names.end(), text);
    if (name != schedule_names.end()) return static_cast<Schedule>(name - schedule_names.begin());
    throw UserError({.field = "schedule",
                     .found = fmt::format("\"{}\"", text.substr(0, 80)),
                     .expected = fmt::format("one of {}", fmt::join(schedule_names, ", ")),
                     .suggestion = nearest(text.substr(0, 80), schedule_names)});
}

ContextMethod context_method_from_text(const std::string& text) {
    const auto name = std::find(context_method_names.begin(), context_method_names.end(), text);
    if (name != context_method_names.end()) return static_cast<ContextMethod>(name - context_method_names.begin());
    throw UserError({.field = "context_method",
                     .found = fmt::format("\"{}\"", text.substr(0, 80)),
                     .expected = fmt::format("one of {}", fmt::join(context_method_names, ", ")),
                     .suggestion = nearest(text.substr(0, 80), context_method_names)});
}

bool sequence_divides(std::int64_t tensor, std::int64_t context, std::int64_t sequence) {
    return tensor > 1 && sequence % tensor == 0 && sequence / tensor % context == 0;
}

// Where tensor, context and pipeline do not divide the devices, data stays 1 and check() says why it cannot be.
void complete(Plan& plan) {
    Parallelism& p = plan.parallelism;
    if (p.data != 0) return;
    p.data = 1;
    std::int64_t left = plan.cluster.devices();
    for (const std::int64_t ranks : {p.tensor, p.context, p.pipeline}) {
        if (ranks < 1 || left % ranks != 0) return;
        left /= ranks;
    }
    p.data = left;
}

}  // namespace foretrain
