#include "reports/backtest_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

constexpr std::size_t line_width = 100;

std::string seconds_figure(double s) { return figure(from_seconds(s)); }

double half_width(const Prediction& p) {
    return p.step.value == 0 ? 0 : seconds(p.interval.high - p.interval.low) / 2 / seconds(p.step);
}

std::string count_of(std::size_t n) { return grouped(static_cast<double>(n)); }

std::vector<std::string> errors_cells(std::string name, const ErrorSummary& e) {
    if (e.count == 0) return {std::move(name), "0"};
    return {std::move(name),    count_of(e.count),      percent(e.median_ape), percent(e.mape),
            percent(e.p90_ape), signed_percent(e.bias), percent(e.coverage)};
}

std::string name_text(const std::string& name) { return name; }
std::string name_text(int decade) { return scale_name(decade); }

template <class Key>
std::string errors_table(const char* title, const std::map<Key, GroupErrors>& groups) {
    const bool refused = std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.second.refused > 0; });
    TextTable t({title, "runs", "median", "mean", "p90", "bias", "in 80 %", refused ? "refused" : ""});
    for (const auto& [name, group] : groups) {
        std::vector<std::string> cells = errors_cells(name_text(name), group.errors);
        cells.resize(7);
        if (group.refused > 0) cells.push_back(count_of(group.refused));
        t.row(cells);
    }
    return t.text(2) + "\n";
}

std::string memory_part(const MemoryErrors& m) {
    std::string s =
        "Memory              largest rank, or the last stage where that is what was logged; predicted is what\n"
        "                    tensors and libraries need at once (allocated), and what the allocator holds with\n"
        "                    its slack (reserved), of our own engine what it sets aside\n";
    if (m.allocated.count + m.reserved.count == 0) return s + "  no run that is predicted measured it\n\n";
    TextTable t({"compared with", "runs", "median", "mean", "p90", "bias"});
    const auto row = [&](const std::string& name, const ErrorSummary& e) {
        if (e.count == 0) return;
        std::vector<std::string> cells = errors_cells(name, e);
        cells.pop_back();  // memory has no interval
        t.row(cells);
    };
    row("peak_allocated_gib", m.allocated);
    row("peak_reserved_gib", m.reserved);
    for (const auto& [name, group] : m.by_framework) row("  " + name, group.errors);
    for (const auto& [name, group] : m.by_source) row("  " + name_text(name), group.errors);
    s += t.text(2);
    if (m.refused > 0) s += fmt::format("  {} more measured it and are refused\n", count_of(m.refused));
    return s + "\n";
}

std::string ranking_part(const Ranking& r) {
    if (r.groups == 0)
        return "Ranking             no five runs share source, model, sequence length, GPU and number of GPUs\n\n";
    return fmt::format(
        "Ranking             {} groups of five runs or more alike but for their plan, {} runs\n"
        "  Kendall's tau {:.3f} of throughput; choosing by prediction costs {} a token ({} at worst)\n\n",
        r.groups, count_of(r.rows), r.tau, percent(r.regret), percent(r.worst_regret));
}

std::string refused_part(const BacktestSummary& s) {
    if (s.refused == 0) return "";
    std::vector<std::pair<std::string, RefusedRows>> reasons(s.refused_by_reason.begin(), s.refused_by_reason.end());
    std::stable_sort(reasons.begin(), reasons.end(),
                     [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
    std::string out = "Why runs were refused\n";
    for (const auto& [reason, rows] : reasons) {
        out += fmt::format("  {:>5}  {}\n", count_of(rows.count), reason);
        out += wrapped(fmt::format("e.g. {}: {}", rows.example, rows.why), 9, line_width);
    }
    return out + "\n";
}

std::string assumed_part(const BacktestSummary& s) {
    std::string out;
    for (const auto& [what, rows] : s.assumed)
        out += wrapped(fmt::format("{} runs: {}", count_of(rows), what), 2, line_width);
    if (s.said_not_to_fit > 0)
        out += wrapped(
            fmt::format("{} runs are predicted to need more memory than their GPUs have", count_of(s.said_not_to_fit)),
            2, line_width);
    return out.empty() ? "" : "Assumed, or contradicted by the run\n" + out + "\n";
}

std::string worst_part(const BacktestSummary& s) {
    std::string lines;
    for (const BacktestRow* row : s.worst) {
        const Compared c = step_of(*row);
        lines +=
            fmt::format("  {:<20}{:>9}  {:>9}  {:>9}  {}\n", row->run.id, signed_percent(c.error()),
                        seconds_figure(c.predicted), seconds_figure(c.measured), short_plan(row->prediction->plan));
        lines += fmt::format("{:53}{}\n", "", largest_parts(*row->prediction, 3));
    }
    return lines.empty() ? "" : fmt::format("The worst               error  predicted   measured  plan\n{}\n", lines);
}

}  // namespace

std::string short_plan(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    std::string s;
    const auto size = [&](const char* name, std::int64_t n) {
        if (n != 1) s += fmt::format("{}{} ", name, n);
    };
    size("tp", p.tensor);
    if (p.context > 1) s += fmt::format("cp{}{} ", p.context, p.context_method == ContextMethod::ring ? "" : "a2a");
    size("ep", p.expert);
    size("etp", p.expert_tensor);
    size("pp", p.pipeline);
    size("v", p.virtual_pipeline);
    size("dp", p.data);
    s += fmt::format("z{} m{}", describe_zero(p), p.micro_batch_size);
    if (p.schedule == Schedule::gpipe) s += " gpipe";
    if (p.recompute.kind != Recompute::Kind::none) s += " " + describe(p.recompute);
    return s;
}

std::string largest_parts(const Prediction& prediction, std::size_t count) {
    const StageTime busiest = prediction.time_of_busiest();
    std::vector<TimePart> parts = breakdown(busiest);
    std::stable_sort(parts.begin(), parts.end(), [](const TimePart& a, const TimePart& b) { return a.time > b.time; });
    std::string s;
    for (std::size_t i = 0; i < std::min(count, parts.size()); ++i)
        if (parts[i].time.value > 0)
            s += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", parts[i].label,
                             100 * seconds(parts[i].time) / seconds(busiest.step));
    return s;
}

std::string scale_name(int decade) {
    const auto least = static_cast<std::int64_t>(std::llround(std::pow(10.0, decade)));
    return fmt::format("{} to {}", grouped(static_cast<double>(least)), grouped(static_cast<double>(10 * least - 1)));
}

std::string backtest_rows_table(const std::vector<BacktestRow>& rows) {
    const bool memory =
        std::any_of(rows.begin(), rows.end(), [](const BacktestRow& r) { return r.prediction && memory_of(r); });
    std::vector<std::string> heading{"run",  "plan", "most of its time", "GPUs", "predicted", "measured", "error",
                                     "80 %", ""};
    if (memory) heading.insert(heading.end(), {"GiB", "measured"});
    TextTable t(heading, 3);
    for (const BacktestRow& row : rows) {
        if (!row.prediction) continue;
        const Prediction& p = *row.prediction;
        const std::string interval = fmt::format("+-{:.0f} %", 100 * half_width(p));
        std::vector<std::string> cells{row.run.id, short_plan(p.plan), largest_parts(p, 2),
                                       fmt::format("{}", p.plan.world()), figure(p.step)};
        if (row.has_step()) {
            const Compared c = step_of(row);
            cells.insert(cells.end(),
                         {seconds_figure(c.measured), signed_percent(c.error()), interval, c.inside ? "in" : "out"});
        } else {
            cells.insert(cells.end(), {"-", "-", interval, ""});
        }
        if (const std::optional<MemoryCompared> m = memory_of(row))
            cells.insert(cells.end(), {fmt::format("{:.2f}", m->gib.predicted),
                                       fmt::format("{:.2f}{}", m->gib.measured, m->allocated ? "" : " reserved")});
        t.row(cells);
    }
    for (const BacktestRow& row : rows)
        if (!row.prediction) t.row({row.run.id, "refused: " + row.refused});
    return t.text(0) + "\n";
}

std::string backtest_summary_table(const BacktestSummary& s) {
    std::string out = fmt::format("{} runs, {} predicted, {} refused.\n\n", count_of(s.rows), count_of(s.predicted),
                                  count_of(s.refused));
    if (s.step.count > 0) {
        TextTable t({"Step time", "runs", "median", "mean", "p90", "bias", "in 80 %"});
        out += t.row(errors_cells("all", s.step)).text(0);
        out +=
            "  error = predicted / measured - 1: median, mean and 90th percentile of its size; bias is its median\n\n";
        out += errors_table("by source", s.by_source) + errors_table("by framework", s.by_framework) +
               errors_table("by GPU", s.by_gpu) + errors_table("by number of GPUs", s.by_scale);
        out += ranking_part(s.ranking);
    } else if (s.predicted > 0) {
        out += "No run that is predicted measured the time of its step.\n\n";
    }
    if (s.predicted > 0) out += memory_part(s.memory);
    return out + refused_part(s) + assumed_part(s) + worst_part(s);
}

std::string backtest_csv(const std::vector<BacktestRow>& rows) {
    std::string s = csv_line({"id",
                              "source",
                              "framework",
                              "model",
                              "gpu",
                              "gpus",
                              "plan",
                              "measured_s",
                              "predicted_s",
                              "error",
                              "interval_low_s",
                              "interval_high_s",
                              "inside",
                              "largest_parts",
                              "memory_metric",
                              "measured_gib",
                              "predicted_gib",
                              "memory_error",
                              "refused",
                              "why"});
    const auto number = [](double x) { return fmt::format("{:.9g}", x); };
    for (const BacktestRow& row : rows) {
        std::vector<std::string> cells{row.run.id, row.run.group};
        if (row.prediction) {
            const Prediction& p = *row.prediction;
            cells.insert(cells.end(), {framework_of(p.plan), p.plan.model.name, p.plan.cluster.device.name,
                                       fmt::format("{}", p.plan.world()), describe(p.plan.parallelism)});
            cells.push_back(row.has_step() ? number(*row.run.measured.step_time_s) : "");
            cells.push_back(number(seconds(p.step)));
            cells.push_back(row.has_step() ? fmt::format("{:.6f}", step_of(row).error()) : "");
            cells.push_back(number(seconds(p.interval.low)));
            cells.push_back(number(seconds(p.interval.high)));
            cells.push_back(!row.has_step() ? "" : step_of(row).inside ? "true" : "false");
            cells.push_back(largest_parts(p, 3));
            if (const std::optional<MemoryCompared> m = memory_of(row))
                cells.insert(cells.end(), {m->allocated ? "allocated" : "reserved", number(m->gib.measured),
                                           number(m->gib.predicted), fmt::format("{:.6f}", m->gib.error())});
        } else {
            cells.push_back(row.run.framework);
        }
        cells.resize(18);
        cells.insert(cells.end(), {row.refused, row.why});
        s += csv_line(cells);
    }
    return s;
}

}  // namespace foretrain
