// The JSON of a backtest; the names are those of the form that reports/backtest_report.h describes.
#include <cmath>

#include "plan/plan_file.h"
#include "reports/backtest_report.h"

namespace foretrain {

namespace {

Json errors_json(const ErrorSummary& e, bool has_interval) {
    Json out = Json::object();
    out.set("count", static_cast<std::int64_t>(e.count));
    if (e.count == 0) return out;
    out.set("median_ape", e.median_ape).set("mape", e.mape).set("p90_ape", e.p90_ape).set("bias", e.bias);
    if (has_interval) out.set("coverage", e.coverage);
    return out;
}

Json groups_json(const ErrorsByName& groups, bool has_interval = true) {
    Json out = Json::object();
    for (const auto& [name, group] : groups)
        out.set(name, errors_json(group.errors, has_interval).set("refused", static_cast<std::int64_t>(group.refused)));
    return out;
}

Json texts_json(const std::vector<std::string>& texts) {
    Json out = Json::array();
    for (const std::string& text : texts) out.push(Json(text));
    return out;
}

void set_step(const BacktestRow& row, Json& out) {
    const Prediction& p = *row.prediction;
    out.set("predicted_s", seconds(p.step));
    if (row.has_step()) out.set("error", step_of(row).error());
    out.set("interval_s", Json::array().push(Json(seconds(p.interval.low))).push(Json(seconds(p.interval.high))));
    if (row.has_step()) out.set("inside", step_of(row).inside);
    out.set("largest_parts", largest_parts(p, 3));
    out.set("fits", p.feasible());
}

void set_memory(const BacktestRow& row, Json& out) {
    const std::optional<MemoryCompared> m = memory_of(row);
    if (!m) return;
    out.set("measured_gib", m->gib.measured).set("predicted_gib", m->gib.predicted).set("memory_error", m->gib.error());
    out.set("memory_metric", m->allocated ? "allocated" : "reserved").set("memory_unit", "GiB");
}

Json row_json(const BacktestRow& row) {
    Json out = Json::object();
    out.set("id", row.run.id).set("source", row.run.group).set("refused", Json());
    if (row.run.measured.step_time_s) out.set("measured_s", *row.run.measured.step_time_s);
    if (!row.prediction) return out.set("refused", row.refused).set("why", row.why);
    const Plan& plan = row.prediction->plan;
    out.set("framework", framework_of(plan)).set("model", plan.model.name).set("gpu", plan.cluster.device.name);
    out.set("gpus", plan.world()).set("plan", describe(plan.parallelism));
    set_step(row, out);
    set_memory(row, out);
    if (!row.run.assumed.empty()) out.set("assumed", texts_json(row.run.assumed));
    return out;
}

Json memory_json(const MemoryErrors& m) {
    Json out = errors_json(m.either, false);
    out.set("refused", static_cast<std::int64_t>(m.refused));
    out.set("allocated", errors_json(m.allocated, false)).set("reserved", errors_json(m.reserved, false));
    out.set("by_source", groups_json(m.by_source, false));
    return out.set("by_framework", groups_json(m.by_framework, false));
}

Json refused_json(const BacktestSummary& s) {
    Json out = Json::object();
    for (const auto& [reason, rows] : s.refused_by_reason) {
        Json entry = Json::object();
        entry.set("count", static_cast<std::int64_t>(rows.count)).set("example", rows.example).set("why", rows.why);
        out.set(reason, std::move(entry));
    }
    return out;
}

Json summary_json(const BacktestSummary& s) {
    Json out = errors_json(s.step, true);
    out.set("refused", static_cast<std::int64_t>(s.refused));
    if (s.ranking.groups > 0) {
        out.set("kendall_tau", s.ranking.tau).set("regret", s.ranking.regret);
        out.set("worst_regret", s.ranking.worst_regret);
    } else {
        out.set("kendall_tau", Json()).set("regret", Json());
    }
    out.set("ranked_groups", static_cast<std::int64_t>(s.ranking.groups));
    out.set("ranked_rows", static_cast<std::int64_t>(s.ranking.rows));
    out.set("by_source", groups_json(s.by_source)).set("by_framework", groups_json(s.by_framework));
    out.set("by_gpu", groups_json(s.by_gpu));
    Json scales = Json::object();
    for (const auto& [decade, group] : s.by_scale) scales.set(scale_name(decade), errors_json(group.errors, true));
    out.set("by_scale", std::move(scales)).set("refused_by_reason", refused_json(s));
    Json assumed = Json::object();
    for (const auto& [what, rows] : s.assumed) assumed.set(what, static_cast<std::int64_t>(rows));
    out.set("assumed", std::move(assumed));
    out.set("said_not_to_fit", static_cast<std::int64_t>(s.said_not_to_fit));
    Json worst = Json::array();
    for (const BacktestRow* row : s.worst) worst.push(Json(row->run.id));
    return out.set("worst", std::move(worst)).set("memory", memory_json(s.memory));
}

}  // namespace

Json backtest_json(const std::vector<BacktestRow>& rows) {
    Json list = Json::array();
    for (const BacktestRow& row : rows) list.push(row_json(row));
    return Json::object().set("rows", std::move(list)).set("summary", summary_json(summary_of(rows)));
}

}  // namespace foretrain
