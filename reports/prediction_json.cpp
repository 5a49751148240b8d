// The machine-readable forms of a prediction: JSON and CSV.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan_file.h"
#include "reports/explain_report.h"
#include "reports/prediction_parts.h"
#include "reports/prediction_report.h"
#include "reports/text_table.h"
#include "reports/trust_report.h"

namespace foretrain {

namespace {

Json moment_json(const Prediction& p, const PeakMoment& m) {
    Json moment = Json::object();
    moment.set("text", moment_text(p, m));
    moment.set("pass", m.pass).set("microbatch", m.microbatch).set("section", m.section);
    return moment.set("passes_in_flight", m.in_flight);
}

Json memory_json(const Prediction& p) {
    Json stages = Json::array();
    for (std::size_t i = 0; i < p.memory.size(); ++i) {
        const StageMemory& m = p.memory[i];
        Json stage = Json::object();
        stage.set("stage", static_cast<std::int64_t>(i));
        stage.set("weights", m.weights.value);
        stage.set("gradients", m.gradients.value);
        stage.set("optimizer", m.optimizer.value);
        stage.set("activations", m.activations.value);
        stage.set("communication", m.communication.value);
        stage.set("workspace", m.workspace.value);
        if (m.libraries > Bytes{}) stage.set("libraries", m.libraries.value);
        stage.set("reserved", m.reserved.value);
        stage.set("total", m.total().value);
        if (m.slack > Bytes{}) stage.set("allocator_slack", m.slack.value);
        stage.set("live_peak", m.live_peak.value);
        if (i < p.peaks.size()) stage.set("live_peak_at", moment_json(p, p.peaks[i]));
        stages.push(std::move(stage));
    }
    Json memory = Json::object();
    memory.set("capacity_bytes", p.capacity.value);
    memory.set("peak_bytes", p.peak_bytes().value);
    memory.set("padded_vocab_size", p.memory.empty() ? Json() : Json(padded_vocabulary(p)));
    memory.set("stages", std::move(stages));
    if (p.memory.empty()) return memory;
    const MemoryVerdict verdict = verdict_of(p);
    memory.set("verdict", name_of(verdict.fit)).set("margin_bytes", verdict.margin.value);
    memory.set("margin_share", verdict.margin_share);
    return memory;
}

Json by_pass_json(const StageTime& t) {
    Json passes = Json::object();
    for (const TimePart& part : by_pass(t)) passes.set(part.key, seconds(part.time));
    return passes;
}

Json collectives_json(const Prediction& p) {
    Json all = Json::array();
    for (const SentBytes& s : communication_by_collective(p)) {
        Json one = Json::object();
        all.push(one.set("group", s.group).set("collective", s.collective).set("bytes_per_gpu", s.bytes.value));
    }
    return all;
}

// What is unknown is null.
Json training_json(const TrainingCost& c) {
    const auto known = [](bool is_known, double x) { return is_known ? Json(x) : Json(); };
    Json out = Json::object();
    out.set("tokens", c.tokens).set("steps", c.steps).set("days", c.days).set("gpu_hours", c.device_hours);
    const bool priced = c.price.most > 0, powered = c.watts > 0;
    out.set("price_usd_per_gpu_hour",
            priced ? Json::array().push(Json(c.price.least)).push(Json(c.price.most)) : Json());
    out.set("money_usd", priced ? Json::array().push(Json(c.money_least)).push(Json(c.money_most)) : Json());
    out.set("power_watts_per_gpu", known(powered, c.watts)).set("energy_mwh", known(powered, c.megawatt_hours));
    Json assumed = Json::array();
    for (const std::string& what : c.assumed) assumed.push(Json(what));
    return out.set("assumed", std::move(assumed));
}

std::string number(double value) { return fmt::format("{:.9g}", value); }
std::string number(std::int64_t value) { return fmt::format("{}", value); }

}  // namespace

Json prediction_json(const Prediction& p) {
    Json rejections = Json::array();
    for (const Rejection& r : p.rejections) {
        Json rejection = Json::object();
        rejection.set("reason", r.reason).set("text", text(r));
        rejections.push(std::move(rejection));
    }
    Json time = Json::object();
    for (const TimePart& part : breakdown(p.time_of_busiest())) time.set(part.key, seconds(part.time));
    Json communication = Json::object();
    for (const auto& [axis, bytes] : communication_by_axis(p)) communication.set(axis, bytes.value);

    Json out = Json::object();
    out.set("plan", plan_to_json(p.plan));
    out.set("feasible", p.feasible());
    out.set("rejections", std::move(rejections));
    out.set("step_time_s", seconds(p.step));
    out.set("tokens_per_second", p.tokens_per_second());
    out.set("tokens_per_second_per_gpu", tokens_per_second_per_device(p));
    out.set("model_tflops_per_gpu", p.model_tflops_per_device());
    out.set("mfu", p.mfu());
    out.set("mfu_causal", p.mfu_causal());
    out.set("hfu", p.hfu());
    out.set("breakdown_s", std::move(time));
    out.set("communication_bytes_per_gpu", std::move(communication));
    out.set("memory", memory_json(p));
    if (!p.interval.parts.empty()) out.set("step_time_interval", interval_json(p.interval));
    if (!p.memory.empty()) out.set("host_memory_per_node", host_json(p.host));
    if (!p.times.empty()) out.set("kernels_by_pass_s", by_pass_json(p.time_of_busiest()));
    if (!p.wire.empty()) out.set("communication_by_collective", collectives_json(p));
    if (p.nearest) out.set("nearest_changes", nearest_json(p));
    if (const std::string version = framework_version(p.plan); !version.empty()) out.set("framework_version", version);
    if (p.training) out.set("training", training_json(*p.training));
    return out;
}

std::string prediction_csv_heading() {
    std::vector<std::string> cells{"model",
                                   "cluster",
                                   "gpus",
                                   "framework",
                                   "tensor",
                                   "context",
                                   "context_method",
                                   "expert",
                                   "expert_tensor",
                                   "pipeline",
                                   "virtual_pipeline",
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
                                   "global_batch_size",
                                   "sequence_length",
                                   "precision",
                                   "feasible",
                                   "rejections",
                                   "step_time_s",
                                   "tokens_per_second",
                                   "tokens_per_second_per_gpu",
                                   "model_tflops_per_gpu",
                                   "mfu",
                                   "mfu_causal",
                                   "hfu",
                                   "peak_bytes",
                                   "capacity_bytes"};
    for (const TimePart& part : by_pass({})) cells.push_back(part.key + "_s");
    for (const TimePart& part : breakdown({})) cells.push_back(part.key + "_s");
    for (const auto& [axis, bytes] : communication_by_axis({})) cells.push_back(axis + "_bytes_per_gpu");
    for (const char* name : {"training_days", "training_gpu_hours", "training_usd_least", "training_usd_most",
                             "training_mwh", "verdict", "margin_bytes", "step_time_low_s", "step_time_high_s",
                             "weakest_part", "host_bytes_per_node", "framework_version"})
        cells.emplace_back(name);
    return csv_line(cells);
}

std::string prediction_csv_line(const Prediction& p) {
    const Parallelism& a = p.plan.parallelism;
    const Training& t = p.plan.training;
    std::vector<std::string> reasons;
    for (const Rejection& r : p.rejections) reasons.push_back(r.reason);
    // What is not known of a refused plan is left empty: 0 would be taken for a figure.
    const auto known = [](bool is_known, auto value) { return is_known ? number(value) : std::string(); };
    const bool timed = p.step.value > 0, laid_out = !p.memory.empty();
    std::vector<std::string> cells{p.plan.model.name,
                                   p.plan.cluster.name,
                                   number(p.plan.cluster.devices()),
                                   p.plan.framework.reference(),
                                   number(a.tensor),
                                   number(a.context),
                                   std::string(name_of(a.context_method)),
                                   number(a.expert),
                                   number(a.expert_tensor),
                                   number(a.pipeline),
                                   number(a.virtual_pipeline),
                                   number(a.data),
                                   a.sequence_parallel ? "on" : "off",
                                   number(std::int64_t{a.zero_stage}),
                                   known(a.zero_shard_size != 0, a.zero_shard_size),
                                   number(a.micro_batch_size),
                                   std::string(name_of(a.schedule)),
                                   describe(a.recompute),
                                   fmt::format("{}", fmt::join(a.stage_layers, " ")),
                                   known(a.first_stage_layers != 0, a.first_stage_layers),
                                   known(a.last_stage_layers != 0, a.last_stage_layers),
                                   a.embedding_and_head_as_layers ? "on" : "off",
                                   number(t.global_batch_size),
                                   number(t.sequence_length),
                                   std::string(name_of(t.computes())),
                                   p.feasible() ? "true" : "false",
                                   fmt::format("{}", fmt::join(reasons, " ")),
                                   known(timed, seconds(p.step)),
                                   known(timed, p.tokens_per_second()),
                                   known(timed, tokens_per_second_per_device(p)),
                                   known(timed, p.model_tflops_per_device()),
                                   known(timed, p.mfu()),
                                   known(timed, p.mfu_causal()),
                                   known(timed, p.hfu()),
                                   known(laid_out, p.peak_bytes().value),
                                   known(p.capacity.value > 0, p.capacity.value)};
    for (const TimePart& part : by_pass(p.time_of_busiest())) cells.push_back(known(timed, seconds(part.time)));
    for (const TimePart& part : breakdown(p.time_of_busiest())) cells.push_back(known(timed, seconds(part.time)));
    for (const auto& [axis, bytes] : communication_by_axis(p)) cells.push_back(known(timed, bytes.value));
    const MemoryVerdict verdict = verdict_of(p);
    const bool asked = p.training.has_value();
    const TrainingCost c = p.training.value_or(TrainingCost{});
    cells.push_back(known(asked, c.days));
    cells.push_back(known(asked, c.device_hours));
    cells.push_back(known(c.price.most > 0, c.money_least));
    cells.push_back(known(c.price.most > 0, c.money_most));
    cells.push_back(known(c.watts > 0, c.megawatt_hours));
    cells.emplace_back(laid_out ? name_of(verdict.fit) : "");
    cells.push_back(known(laid_out, verdict.margin.value));
    const bool trusted = !p.interval.parts.empty();
    cells.push_back(known(trusted, seconds(p.interval.low)));
    cells.push_back(known(trusted, seconds(p.interval.high)));
    cells.emplace_back(trusted ? key_of(p.interval.parts.front().part) : "");
    cells.push_back(known(laid_out, p.host.needed().value));
    cells.push_back(framework_version(p.plan));
    return csv_line(cells);
}

}  // namespace foretrain
