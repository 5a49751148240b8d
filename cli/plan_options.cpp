#include "cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <ostream>
#include <set>

#include "base/json.h"
#include "hardware/cluster_file.h"
#include "models/model_file.h"
#include "plan/megatron_args.h"
#include "plan/plan_file.h"

namespace foretrain::cli {

namespace {

enum class Kind : std::uint8_t { size, part, stage, number, on_off, text, framework, recompute, layers };

// A field of the plan file: where it stands, and how it is called and written as an option.
struct Field {
    const char* section;  // "training" or "parallelism"; "overlap" inside the latter; "" at the top
    const char* key;
    const char* option;
    Kind kind;
    const char* value;
    const char* help;
    bool swept = false;  // an axis of a sweep, or meaningless beside one
};

constexpr Field fields[] = {
    {"", "framework", "framework", Kind::framework, "NAME|FILE[@VERSION]",
     "software that runs the plan (the cluster's default), and which of it (the newest)"},
    {"training", "global_batch_size", "global-batch-size", Kind::size, "N", "samples a step"},
    {"training", "sequence_length", "sequence-length", Kind::size, "N", "tokens a sample"},
    {"training", "precision", "precision", Kind::text, "TYPE",
     "bf16, fp16, fp32, fp64; fp8, mxfp8, nvfp4: of the layers' products (bf16)"},
    {"training", "attention", "attention", Kind::text, "KERNEL",
     "unfused, flash1, flash2, flash3 or cudnn (the framework's)"},
    {"training", "cross_entropy", "cross-entropy", Kind::text, "HOW", "fp32-copy, native or fused (the framework's)"},
    {"training", "dropout", "dropout", Kind::number, "X", "of residuals and attention (the framework's)"},
    {"training", "gradient_dtype", "gradient-dtype", Kind::text, "TYPE", "in which gradients are collected (fp32)"},
    {"training", "fused_gradient_accumulation", "fused-gradient-accumulation", Kind::on_off, "on|off",
     "into what products of weight gradients add (the framework's)"},
    {"training", "compiled", "compiled", Kind::on_off, "on|off", "layers or loss by a compiler (the framework's)"},
    {"training", "learning_rate", "learning-rate", Kind::number, "X", "of AdamW (0.001)"},
    {"training", "beta1", "beta1", Kind::number, "X", "(0.9)"},
    {"training", "beta2", "beta2", Kind::number, "X", "(0.95)"},
    {"training", "epsilon", "epsilon", Kind::number, "X", "(1e-8)"},
    {"training", "weight_decay", "weight-decay", Kind::number, "X", "(0.1)"},
    {"training", "expert_imbalance", "expert-imbalance", Kind::number, "X",
     "tokens of the busiest rank's experts over the mean, from 1 (the framework's)"},
    {"parallelism", "tensor", "tensor", Kind::size, "N", "tensor-parallel ranks (1)", true},
    {"parallelism", "pipeline", "pipeline", Kind::size, "N", "pipeline stages (1)", true},
    {"parallelism", "data", "data", Kind::size, "N", "data-parallel ranks (follows from the GPUs)", true},
    {"parallelism", "virtual_pipeline", "virtual-pipeline", Kind::size, "N", "chunks a stage: interleaved (1)", true},
    {"parallelism", "context", "context", Kind::size, "N", "ranks that share a sequence (1)", true},
    {"parallelism", "context_method", "context-method", Kind::text, "HOW", "ring or all-to-all (ring)", true},
    {"parallelism", "expert", "expert", Kind::size, "N", "ranks that share out a layer's experts (1)", true},
    {"parallelism", "expert_tensor", "expert-tensor", Kind::size, "N",
     "ranks that share an expert's matrices: 1, or as many as tensor (1)", true},
    {"parallelism", "sequence_parallel", "sequence-parallel", Kind::on_off, "on|off",
     "between tensor-parallel regions (the framework's)"},
    {"parallelism", "zero_stage", "zero-stage", Kind::stage, "0|1|2|3", "what data ranks share out (0)", true},
    {"parallelism", "zero_shard_size", "zero-shard-size", Kind::part, "N",
     "consecutive ones that share it out; the rest hold copies (all)", true},
    {"parallelism", "micro_batch_size", "micro-batch-size", Kind::size, "N", "samples a microbatch (1)", true},
    {"parallelism", "schedule", "schedule", Kind::text, "NAME", "gpipe or 1f1b (1f1b)", true},
    {"parallelism", "recompute", "recompute", Kind::recompute, "HOW", recompute_help, true},
    {"parallelism", "stage_layers", "stage-layers", Kind::layers, "N,N,...",
     "layers of each stage, or of each chunk (even)", true},
    {"parallelism", "first_stage_layers", "first-stage-layers", Kind::size, "N", "the others share the rest (even)"},
    {"parallelism", "last_stage_layers", "last-stage-layers", Kind::size, "N", "the others share the rest (even)"},
    {"parallelism", "embedding_and_head_as_layers", "embedding-and-head-as-layers", Kind::on_off, "on|off",
     "each counts as a layer of its stage (off)"},
    {"overlap", "gradient_reduce", "overlap-gradient-reduce", Kind::on_off, "on|off", "with the backward pass (on)"},
    {"overlap", "parameter_gather", "overlap-parameter-gather", Kind::on_off, "on|off",
     "ZeRO-3's, with computing (on)"},
    {"overlap", "pipeline", "overlap-pipeline", Kind::on_off, "on|off", "messages between stages, with computing (on)"},
    {"overlap", "tensor", "overlap-tensor", Kind::on_off, "on|off",
     "tensor collectives, with products (the framework's)"},
};

// Megatron-LM's, DeepSpeed's and torchtitan's names, and what people say.
std::vector<std::string> also_called(const std::string& option) {
    static const std::map<std::string, std::vector<std::string>> names{
        {"tensor", {"tp", "tensor-model-parallel-size", "tensor-parallel-size", "tensor-parallel-degree"}},
        {"pipeline", {"pp", "pipeline-model-parallel-size", "pipeline-parallel-size", "pipeline-parallel-degree"}},
        {"data", {"dp", "data-parallel-size", "dp-replicate", "dp-shard"}},
        {"context", {"cp", "context-parallel-size", "context-parallel-degree"}},
        {"expert", {"ep", "expert-model-parallel-size", "expert-parallel-size"}},
        {"expert-tensor", {"etp", "expert-tensor-parallel-size"}},
        {"virtual-pipeline", {"vpp", "num-virtual-stages-per-pipeline-rank"}},
        {"global-batch-size", {"gbs", "train-batch-size", "batch-size"}},
        {"micro-batch-size", {"mbs", "train-micro-batch-size-per-gpu", "per-device-train-batch-size"}},
        {"sequence-length", {"seq", "seq-len", "seq-length", "max-seq-len", "context-length"}},
        {"zero-stage", {"zero"}},
        {"zero-shard-size", {"mics-shard-size", "zero-hpz-partition-size", "hybrid-shard-size"}},
        {"recompute", {"recompute-granularity", "activation-checkpointing", "checkpoint-activations"}},
        {"gpus", {"world-size", "num-gpus", "ngpu"}},
        {"nodes", {"nnodes", "num-nodes"}}};
    const auto found = names.find(option);
    return found == names.end() ? std::vector<std::string>{} : found->second;
}

Json value_of(const Field& field, const Options& options) {
    const std::string name = field.option;
    switch (field.kind) {
        case Kind::size: return Json(options.integer(name, 1, std::int64_t{1} << 40));
        case Kind::part: return Json(options.integer(name, 0, std::int64_t{1} << 40));
        case Kind::stage: return Json(options.integer(name, 0, 3));
        case Kind::number: return Json(options.number(name, 0));
        case Kind::on_off: return Json(options.on_off(name));
        case Kind::text: return Json(options.text(name));
        case Kind::framework: {  // a file is relative to where we are, not to the plan's
            Json text(options.text(name));
            if (!names_framework_file(options.text(name))) return text;
            return framework_to_json(for_option(name, [&] { return framework_from_json(text); }));
        }
        case Kind::recompute: {
            Parallelism p;
            p.recompute = for_option(name, [&] { return recompute_from_text(options.text(name)); });
            return parallelism_to_json(p).at("recompute");
        }
        case Kind::layers: {
            Json layers = Json::array();
            for (std::int64_t n : options.integers(name, 1, std::int64_t{1} << 40)) layers.push(Json(n));
            return layers;
        }
    }
    return Json();
}

Json object_at(const Json& parent, const char* key) { return parent.has(key) ? parent.at(key) : Json::object(); }

void set_field(Json& root, const Field& field, Json value) {
    const std::string section = field.section;
    if (section.empty()) {
        root.set(field.key, std::move(value));
        return;
    }
    if (section == "overlap") {
        Json parallelism = object_at(root, "parallelism");
        Json overlap = object_at(parallelism, "overlap");
        parallelism.set("overlap", overlap.set(field.key, std::move(value)));
        root.set("parallelism", std::move(parallelism));
        return;
    }
    Json object = object_at(root, field.section);
    root.set(section, object.set(field.key, std::move(value)));
}

// The parallelism without the fields that do not hold any more.
void drop(Json& root, const std::set<std::string>& keys) {
    if (!root.has("parallelism")) return;
    const Json old = root.at("parallelism");
    Json kept = Json::object();
    for (const std::string& key : old.keys())
        if (keys.count(key) == 0) kept.set(key, old.at(key));
    root.set("parallelism", std::move(kept));
}

// A field that neither the plan file, if there is one, nor the command line has.
[[noreturn]] void missing(const Json& root, const Options& options, const std::string& field, const std::string& option,
                          const std::string& what) {
    const std::string found = "no " + field.substr(field.rfind('.') + 1);
    if (!options.has("plan")) option_error(option, found, what + ", here or in a plan file (--plan)");
    throw UserError({.file = root.file(),
                     .field = field,
                     .found = found,
                     .expected = fmt::format("{}, there or with --{}", what, option)});
}

void set_model(Json& root, const Options& options) {
    if (options.has("model"))
        root.set("model", model_to_json(for_option("model", [&] { return read_model(options.text("model")); })));
    else if (!root.has("model"))
        missing(root, options, "model", "model", "a preset (`foretrain models` lists them) or a file");
}

// Another cluster for a plan that has one: the plan was made for so many GPUs.
void keep_devices(ClusterSpec& cluster, const Json& of_plan) {
    std::int64_t devices = 0;
    try {
        devices = cluster_from_json(of_plan).devices();
    } catch (const UserError&) {
        return;  // what the option replaces need not be readable
    }
    try {
        scale_to_devices(cluster, devices);
    } catch (const UserError& e) {
        option_error("cluster", fmt::format("{} for the {} GPUs of the plan", cluster.name, devices),
                     e.text().expected + ", or another size given with --nodes or --gpus",
                     e.text().suggestion.empty() ? "" : "--gpus " + e.text().suggestion);
    }
}

ClusterSpec sized_cluster(const Options& options, ClusterSpec cluster) {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    if (options.has("nodes")) for_option("nodes", [&] { scale_to_nodes(cluster, options.integer("nodes", 1, most)); });
    if (options.has("gpus")) for_option("gpus", [&] { scale_to_devices(cluster, options.integer("gpus", 1, most)); });
    return cluster;
}

void set_cluster(Json& root, const Options& options) {
    if (!options.has("cluster") && !root.has("cluster"))
        missing(root, options, "cluster", "cluster", "a preset (`foretrain clusters` lists them) or a file");
    if (options.has("nodes") && options.has("gpus")) option_error("nodes", "it beside --gpus", "one of the two");
    const bool sized = options.has("nodes") || options.has("gpus");
    if (!options.has("cluster") && !sized) return;
    ClusterSpec cluster = options.has("cluster")
                              ? for_option("cluster", [&] { return read_cluster(options.text("cluster")); })
                              : cluster_from_json(root.at("cluster"));
    if (options.has("cluster") && root.has("cluster") && !sized) keep_devices(cluster, root.at("cluster"));
    root.set("cluster", cluster_to_json(sized_cluster(options, std::move(cluster))));
}

void require_training(const Json& root, const Options& options) {
    for (const char* key : {"global_batch_size", "sequence_length"}) {
        if (root.has("training") && root.at("training").has(key)) continue;
        std::string option = key;
        std::replace(option.begin(), option.end(), '_', '-');
        missing(root, options, fmt::format("training.{}", key), option, "a whole number");
    }
}

// A value that came from the command line is complained of under its option, though it was read as the
// field that it stands for.
Plan plan_from_fields(const Json& root, const Options& options, bool swept) {
    try {
        return plan_from_json(root);
    } catch (const UserError& e) {
        for (const Field& f : fields) {
            if (!options.has(f.option) || (swept && f.swept)) continue;
            const std::string section = f.section;
            const std::string path = section.empty()        ? f.key
                                     : section == "overlap" ? fmt::format("parallelism.overlap.{}", f.key)
                                                            : fmt::format("{}.{}", section, f.key);
            if (e.text().field == path) option_error(f.option, e.text().found, e.text().expected, e.text().suggestion);
        }
        throw;
    }
}

// The text of the option itself, or of the file that it names.
std::string megatron_text(const std::string& given) {
    if (given.find("--") != std::string::npos) return given;
    std::ifstream in(given, std::ios::binary);
    if (!in) option_error("megatron-args", fmt::format("\"{}\"", given.substr(0, 80)), "arguments, or a file of them");
    return {std::istreambuf_iterator<char>(in), {}};
}

// The plan that a job's arguments to Megatron-LM say, on the cluster of the options.
Json megatron_root(const Options& options) {
    if (options.has("plan")) option_error("megatron-args", "it beside --plan", "one of the two");
    if (!options.has("cluster"))
        option_error("cluster", "none", "a preset (`foretrain clusters` lists them) or a file, beside --megatron-args");
    MegatronSetting setting{.origin = "--megatron-args", .gpu = "", .family = "", .name = ""};
    setting.cluster =
        sized_cluster(options, for_option("cluster", [&] { return read_cluster(options.text("cluster")); }));
    const MegatronRun run =
        plan_from_megatron(arguments_from_text(megatron_text(options.text("megatron-args"))), setting);
    if (!run.plan) option_error("megatron-args", run.refused, fmt::format("what a plan can say ({})", run.why));
    return Json::parse(plan_to_json(*run.plan).dump(-1), "--megatron-args");
}

Json root_of(const Options& options) {
    if (options.has("megatron-args")) return megatron_root(options);
    return options.has("plan") ? Json::parse_file(options.text("plan")) : Json::parse("{}", "command line");
}

Plan plan_without(const Options& options, const std::set<std::string>& dropped, bool swept) {
    Json root = root_of(options);
    check_plan_keys(root);
    drop(root, dropped);
    set_model(root, options);
    set_cluster(root, options);
    if (options.has("framework"))
        if (const std::string several = options.text("framework"); several.find(',') != std::string::npos)
            option_error("framework", fmt::format("\"{}\"", several.substr(0, 80)),
                         "one framework at a time, each predicted or swept by a call of its own",
                         "--framework " + several.substr(0, several.find(',')));
    for (const Field& field : fields)
        if (options.has(field.option) && !(swept && field.swept)) set_field(root, field, value_of(field, options));
    require_training(root, options);
    return plan_from_fields(root, options, swept);
}

std::vector<OptionGroup> groups(bool swept) {
    OptionGroup inputs{
        "Model and cluster",
        {{"plan", "FILE", "plan file; the options below override it"},
         {"megatron-args", "FILE|ARGS", "what Megatron-LM is called with; the options below override it"},
         {"model", "NAME|FILE|DIR", "preset, a file such as Hugging Face's config.json, or its folder"},
         {"cluster", "NAME|FILE", "preset or file; a plan file keeps its number of GPUs on it"},
         {"nodes", "N", "nodes of the cluster"},
         {"gpus", "N", "GPUs of the cluster"}}};
    OptionGroup training{"Training", {}};
    OptionGroup parallelism{"Parallelism", {}};
    for (const Field& f : fields) {
        if (swept && f.swept) continue;
        const std::string section = f.section;
        OptionGroup& group = section.empty() ? inputs : section == "training" ? training : parallelism;
        group.options.push_back({f.option, f.value, f.help, also_called(f.option)});
    }
    for (Option& option : inputs.options) option.also = also_called(option.name);
    return {inputs, training, parallelism};
}

}  // namespace

std::vector<OptionGroup> plan_option_groups() { return groups(false); }

Plan plan_from_options(const Options& options) {
    bool resized = false;
    for (const char* name : {"cluster", "nodes", "gpus", "tensor", "context", "pipeline"}) resized |= options.has(name);
    return plan_without(options, resized ? std::set<std::string>{"data"} : std::set<std::string>{}, false);
}

std::vector<OptionGroup> sweep_base_option_groups() { return groups(true); }

Plan sweep_base_from_options(const Options& options) {
    std::set<std::string> axes;
    for (const Field& field : fields)
        if (field.swept) axes.insert(field.key);
    for (const char* kept : {"schedule", "context_method"}) axes.erase(kept);  // the base's unless others are given
    if (options.has("plan")) {
        const Json root = Json::parse_file(options.text("plan"));
        if (root.has("parallelism") && root.at("parallelism").has("stage_layers"))
            root.at("parallelism")
                .at("stage_layers")
                .fail("layers of each stage", "none: stages that are swept share their layers evenly",
                      "leave it out, or give first_stage_layers and last_stage_layers");
    }
    return plan_without(options, axes, true);
}

Plan announced(Plan plan, Console& console) {
    if (!plan.model.note.empty())
        console.err << "foretrain: note: model " << plan.model.name << ": " << plan.model.note << '\n';
    return plan;
}

Option save_plan_option() { return {"save-plan", "FILE", "write the plan there, model and cluster inlined"}; }

void save_plan(const Options& options, Console& console, const Plan& plan) {
    if (!options.has("save-plan")) return;
    write_file("save-plan", options.text("save-plan"), plan_to_json(plan).dump() + "\n");
    say_written(console, options.text("save-plan"));
}

}  // namespace foretrain::cli
