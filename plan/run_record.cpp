#include "plan/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file_name.h"
#include "hardware/device_file.h"
#include "plan/framework.h"
#include "plan/framework_version.h"
#include "plan/megatron_args.h"
#include "plan/plan_file.h"

namespace foretrain {

namespace {

constexpr double longest_step_s = 1e6;
constexpr double most_gib = 1e6;
constexpr std::size_t longest_name = 40;  // in a reason
constexpr std::int64_t largest = std::int64_t{1} << 40;

// Why no plan can say what a record does.
struct Refusal {
    std::string reason, why;
};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

std::string text_or_nothing(const Json& value, const char* key) { return value.has(key) ? value.at(key).string() : ""; }

std::optional<bool> flag_of(const Json& value, const char* key) {
    if (!value.has(key)) return std::nullopt;
    return value.at(key).boolean();
}

std::optional<double> positive(const Json& measured, const char* key, double most) {
    if (!measured.has(key)) return std::nullopt;
    return measured.at(key).number(1e-9, most);
}

Json without(const Json& object, const std::vector<std::string>& keys) {
    Json out = Json::object();
    for (const std::string& key : object.keys())
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) out.set(key, object.at(key));
    return out;
}

// "parallelism.recompute": "selective_op" is counted as "recompute selective_op", "model.moe" as "moe".
Refusal unsupported_in(const Json& record, const UserErrorText& text) {
    Json value = record;
    std::string field = text.field;
    for (std::size_t from = 0; from < field.size() && value.is_object();) {
        const std::size_t dot = std::min(field.find('.', from), field.size());
        value = value.get(field.substr(from, dot - from));
        from = dot + 1;
    }
    std::string reason = field.substr(field.find('.') + 1);
    if (value.is_string()) reason += " " + shortened(value.string(), longest_name);
    return {reason, fmt::format("{}: {}", field, text.found)};
}

// The profile that the record names or that stands for what it says of its software.
struct Software {
    Json framework;  // for a plan; null: the cluster's own
    std::optional<Refusal> refusal;
    bool assumed = false;
};

bool shards(const Framework& f, std::int64_t stage) {
    return std::find(f.zero_stages.begin(), f.zero_stages.end(), stage) != f.zero_stages.end();
}

// The profile that stands for runs of this framework with a ZeRO stage that `chosen` has not; else `chosen`.
std::string with_zero_stage(const Json& record, const std::string& name, const std::string& chosen) {
    const Json parallelism = record.get("parallelism");
    if (!parallelism.is_object() || !parallelism.has("zero_stage")) return chosen;
    const std::int64_t stage = parallelism.at("zero_stage").integer(0, 3);
    if (shards(*find_framework(chosen), stage)) return chosen;
    for (const std::string& other : framework_names())
        if (const Framework& f = *find_framework(other); f.runs.in_place_of == name && shards(f, stage))
            return f.name + "@" + f.version;
    return chosen;
}

Software software_of(const Json& record) {
    if (!record.has("framework")) return {};
    const Json framework = record.at("framework");
    const bool object = framework.is_object();
    const std::string stated = object ? framework.at("name").string() : framework.string();
    const std::string name = stated.substr(0, stated.find('@'));
    if (find_framework(name) == nullptr) {
        const UnknownFramework unknown = unknown_framework(name);
        return {{},
                Refusal{"framework " + shortened(name, longest_name),
                        fmt::format("no profile of this framework; there are {}{}", unknown.allowed,
                                    unknown.suggestion.empty() ? "" : " (try " + unknown.suggestion + ")")}};
    }
    if (name != stated || (object && framework.has("version"))) return {framework, {}};
    const Json training = record.at("training");
    const VersionChoice choice = choose_version({.name = name,
                                                 .release = text_or_nothing(record, "framework_release"),
                                                 .detail = text_or_nothing(record, "framework_detail"),
                                                 .compiled = flag_of(training, "compiled"),
                                                 .flash_attention = flag_of(training, "flash_attention")});
    if (choice.reference.empty()) return {{}, Refusal{choice.reason, choice.why}};
    return {Json(with_zero_stage(record, name, choice.reference)), {}, choice.assumed};
}

// A model without a length of its learned positions was trained on sequences of that length.
Json model_of(const Json& record, std::int64_t sequence) {
    Json model = record.at("model");
    if (!model.is_object() || model.has("model_type") || model.has("max_positions")) return model;
    const bool learned = model.has("positions") ? model.at("positions").string() == "learned"
                                                : !flag_of(model, "gated_mlp").value_or(false);
    return learned ? model.set("max_positions", sequence) : model;
}

// Layers of each stage where the first ones are as full as the fullest has to be, embedding and head counted as one
// each; none if that leaves nothing for the last.
std::vector<std::int64_t> filled_stages(std::int64_t layers, std::int64_t stages) {
    const std::int64_t fullest = ceil_div(layers + 2, stages), last = layers - (stages - 1) * fullest + 1;
    if (stages < 2 || last < 1) return {};
    std::vector<std::int64_t> out(static_cast<std::size_t>(stages), fullest);
    out.front() = fullest - 1;
    out.back() = last;
    return out;
}

// How layers that do not divide were spread, where the record does not say.
void add_layout(const Json& stated, std::int64_t layers, bool fills_stages, Json& parallelism, RunRecord& out) {
    for (const char* key : {"stage_layers", "first_stage_layers", "last_stage_layers", "embedding_and_head_as_layers"})
        if (stated.has(key)) return;
    const auto size = [&](const char* key) { return stated.has(key) ? stated.at(key).integer(1, largest) : 1; };
    const std::int64_t stages = size("pipeline"), chunks_a_stage = size("virtual_pipeline");
    if (stages > layers || chunks_a_stage > layers || layers % (stages * chunks_a_stage) == 0) return;
    // So 126 layers were trained on 16 stages.
    if ((layers + 2) % (stages * chunks_a_stage) == 0) {
        parallelism.set("embedding_and_head_as_layers", true);
        out.assumed.emplace_back("embedding and head counted as a layer each");
    } else if (const auto list = filled_stages(layers, stages); fills_stages && chunks_a_stage == 1 && !list.empty()) {
        Json each = Json::array();
        for (const std::int64_t n : list) each.push(Json(n));
        parallelism.set("stage_layers", std::move(each));
        out.assumed.emplace_back("stages filled one after the other, embedding and head counted as a layer each");
    }
}

// What the plan takes where a record says nothing of it; without tensor ranks there is nothing to assume.
void assume_whole_experts(const Json& record, const Json& stated, RunRecord& out) {
    const Json model = record.at("model");
    if (!model.is_object() || !model.has("moe") || stated.has("expert_tensor")) return;
    if (stated.has("tensor") && stated.at("tensor").integer(1, largest) > 1)
        out.assumed.emplace_back(
            "an expert's matrices are whole (expert_tensor 1), as Megatron-Bridge's recipes set it");
}

// A part that is all data ranks is a mesh of shards, which holds the context ranks too
// (github:pytorch/torchtitan torchtitan/distributed/parallel_dims.py, dp_shard_cp).
bool shards_over_all_data(const Json& parallelism) {
    for (const char* key : {"zero_shard_size", "data", "context"})
        if (!parallelism.has(key)) return false;
    return parallelism.at("context").integer(1, largest) > 1 &&
           parallelism.at("zero_shard_size").integer(0, largest) == parallelism.at("data").integer(1, largest);
}

Json parallelism_of(const Json& record, bool fills_stages, RunRecord& out) {
    if (!record.has("parallelism")) return Json::object();
    const Json stated = record.at("parallelism");
    Json parallelism = without(stated, {"schedule"});
    const std::int64_t chunks_a_stage =
        stated.has("virtual_pipeline") ? stated.at("virtual_pipeline").integer(1, largest) : 1;
    if (stated.has("schedule")) {
        const bool interleaved =
            stated.at("schedule").is_string() && stated.at("schedule").string() == "interleaved-1f1b";
        if (interleaved && chunks_a_stage == 1)
            out.assumed.emplace_back("one chunk a stage, though the schedule is an interleaved one");
        parallelism.set("schedule", interleaved ? Json("1f1b") : stated.at("schedule"));
    }
    assume_whole_experts(record, stated, out);
    if (shards_over_all_data(stated)) {
        parallelism.set("zero_shard_size", Json());
        out.assumed.emplace_back("context ranks share out what all data ranks do");
    }
    if (const Json model = record.at("model"); model.has("layers"))
        add_layout(stated, model.at("layers").integer(1, largest), fills_stages, parallelism, out);
    return parallelism;
}

// Without what chose the profile, which knows what those do.
Json training_of(const Json& record) {
    const Json stated = record.at("training");
    return without(stated, {"flash_attention", "compiled"});
}

std::optional<Refusal> read_plan(const Json& record, RunRecord& out) {
    check_plan_keys(record);
    for (const char* key : {"model", "cluster", "training"}) static_cast<void>(record.at(key));
    const Software software = software_of(record);
    if (software.refusal) return software.refusal;
    if (software.assumed)
        out.assumed.push_back(
            fmt::format("the version {}: neither words nor a release tell", software.framework.string()));
    if (const Json gpu = record.at("cluster").is_object() ? record.at("cluster").get("gpu") : Json();
        gpu.is_string() && !names_a_file(gpu.string())) {
        const std::vector<std::string> known = device_preset_names();
        if (std::find(known.begin(), known.end(), gpu.string()) == known.end()) {
            const std::string meant = nearest(gpu.string().substr(0, 80), known);
            return Refusal{"gpu " + shortened(gpu.string(), longest_name),
                           fmt::format("no preset of this GPU{}", meant.empty() ? "" : " (try " + meant + ")")};
        }
    }
    const Framework* const framework =
        software.framework.is_string() ? find_framework(software.framework.string()) : nullptr;
    const bool fills_stages = framework != nullptr && framework->fills_stages;
    Json root = Json::object();
    root.set("model", model_of(record, record.at("training").at("sequence_length").integer(1, largest)))
        .set("cluster", record.at("cluster"))
        .set("training", training_of(record))
        .set("parallelism", parallelism_of(record, fills_stages, out));
    if (!software.framework.is_null()) root.set("framework", software.framework);
    try {
        // Written and parsed again, so that errors name the record's file and line.
        out.plan = plan_from_json(Json::parse(root.dump(-1), record.file()));
    } catch (const Unsupported& e) {
        return unsupported_in(record, e.text());
    }
    return std::nullopt;
}

// Megatron-LM's checks have a name each, and run in several images.
std::string megatron_id(const Json& record) {
    if (!record.has("test")) return record.file();
    const std::string env = text_or_nothing(record, "env");
    return record.at("test").string() + (env.empty() ? "" : "/" + env);
}

void read_megatron_run(const Json& record, RunRecord& out) {
    constexpr double gib = 1024.0 * 1024.0 * 1024.0;
    if (record.has("mem_max_allocated"))
        out.measured.peak_allocated_gib = record.at("mem_max_allocated").number(1, most_gib * gib) / gib;
    if (record.has("mem_allocated_steady"))
        out.measured.held_gib = record.at("mem_allocated_steady").number(1, most_gib * gib) / gib;
    out.measured.step_time_s = positive(record, "iter_time_median_s", longest_step_s);
    out.measured.of_last_stage = true;
    const MegatronArguments arguments = arguments_from_json(record.at("args"));
    const std::string test = text_or_nothing(record, "test"), env = text_or_nothing(record, "env");
    const MegatronImage image = image_of(env, arguments.count("deterministic-mode") > 0);
    MegatronSetting setting{.origin = record.file(), .gpu = image.gpu, .name = test};
    const std::size_t slash = test.find('/');
    if (slash != std::string::npos) out.group = setting.family = test.substr(0, slash);
    if (record.has("world_size")) setting.world = record.at("world_size").integer(1, largest);
    out.devices_assumed = flag_of(record, "world_size_assumed").value_or(false);
    if (setting.gpu.empty()) {
        out.refused = "gpu";
        out.why = fmt::format("\"{}\" names no GPU that is known", shortened(env, longest_name));
        return;
    }
    MegatronRun run = plan_from_megatron(arguments, setting);
    out.refused = std::move(run.refused);
    out.why = std::move(run.why);
    out.assumed.insert(out.assumed.end(), run.assumed.begin(), run.assumed.end());
    out.plan = std::move(run.plan);
    if (!out.plan) return;
    Training& training = out.plan->training;
    if (!training.attention) training.attention = image.attention;
    if (!training.compiled) training.compiled = image.compiled;
}

// A source's runs share all of their ids but the last part; a name without parts says nothing of that kind.
std::string group_of(const RunRecord& record) {
    const std::size_t dash = record.id.rfind('-');
    if (dash != std::string::npos && dash > 0) return record.id.substr(0, dash);
    std::string source = record.source.empty() ? record.id : shortened(record.source, longest_name);
    std::replace_if(source.begin(), source.end(), is_control, ' ');  // it is a name in a table
    return source;
}

}  // namespace

RunRecord run_record_from_json(const Json& value) {
    if (!value.is_object()) value.fail(value.found(), "a run record: a plan with an id and what was measured");
    RunRecord out;
    out.place = value.file();
    const bool arguments = value.has("args") && !value.has("model");
    out.id = arguments && !value.has("id") ? megatron_id(value) : value.at("id").string();
    if (out.id.empty() || std::any_of(out.id.begin(), out.id.end(), is_control))
        value.at("id").fail(value.at("id").found(), "a name of the run, on one line");
    out.source = text_or_nothing(value, "source");
    out.group = group_of(out);
    if (value.has("framework") && value.at("framework").is_string()) out.framework = value.at("framework").string();
    if (arguments) {
        read_megatron_run(value, out);
        return out;
    }
    const Json measured = value.at("measured");
    if (!measured.is_object()) measured.fail(measured.found(), "an object with step_time_s or a peak of memory");
    out.measured = {positive(measured, "step_time_s", longest_step_s),
                    positive(measured, "peak_allocated_gib", most_gib),
                    positive(measured, "peak_reserved_gib", most_gib)};
    if (std::optional<Refusal> refusal = read_plan(value, out)) {
        out.refused = std::move(refusal->reason);
        out.why = std::move(refusal->why);
    }
    return out;
}

void read_run_records(const std::vector<Json>& lines, std::vector<RunRecord>& out) {
    std::map<std::string, std::string> places;
    for (const RunRecord& record : out) places.emplace(record.id, record.place);
    for (const Json& line : lines) {
        out.push_back(run_record_from_json(line));
        const auto [before, is_new] = places.emplace(out.back().id, out.back().place);
        if (!is_new)
            line.at("id").fail(line.at("id").found() + " again",
                               fmt::format("an id of its own: {} has it", before->second));
    }
}

}  // namespace foretrain
