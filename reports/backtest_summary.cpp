#include "reports/backtest_summary.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "plan/framework.h"
#include "reports/prediction_parts.h"

namespace foretrain {

namespace {

constexpr std::size_t smallest_group = 5;
constexpr std::size_t most_worst = 10;

int decade_of(std::int64_t n) {
    int decade = 0;
    for (; n >= 10; n /= 10) ++decade;
    return decade;
}

std::optional<Compared> compared(Bytes predicted, const std::optional<double>& measured_gib) {
    if (!measured_gib || predicted.value <= 0) return std::nullopt;
    return Compared{.predicted = gibibytes(predicted), .measured = *measured_gib};
}

// Rows of one name, gathered before their errors are summed up.
struct Gathered {
    std::vector<Compared> rows;
    std::size_t refused = 0;
};

template <class Key>
std::map<Key, GroupErrors> summed(const std::map<Key, Gathered>& gathered) {
    std::map<Key, GroupErrors> out;
    for (const auto& [key, g] : gathered) out[key] = {errors_of(g.rows), g.refused};
    return out;
}

// All that tells models apart, names included.
using RankingKey =
    std::tuple<std::string, std::string, std::vector<std::int64_t>, std::int64_t, std::string, std::int64_t>;

RankingKey ranking_key(const BacktestRow& row) {
    const Plan& plan = row.prediction->plan;
    const ModelSpec& m = plan.model;
    return {row.run.group,
            m.name,
            {m.layers, m.hidden_size, m.attention_heads, m.kv_heads, m.head_dim, m.ffn_hidden_size, m.vocab_size},
            plan.training.sequence_length,
            plan.cluster.device.name,
            plan.world()};
}

struct Ranked {
    std::vector<double> predicted, measured;  // tokens a second
};

Ranking ranking_of(const std::vector<BacktestRow>& rows) {
    std::map<RankingKey, Ranked> groups;
    for (const BacktestRow& row : rows) {
        if (!row.has_step()) continue;
        const Training& t = row.prediction->plan.training;
        const auto tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
        Ranked& group = groups[ranking_key(row)];
        group.predicted.push_back(tokens / seconds(row.prediction->step));
        group.measured.push_back(tokens / *row.run.measured.step_time_s);
    }
    Ranking out;
    for (const auto& [key, group] : groups) {
        const std::size_t n = group.measured.size();
        if (n < smallest_group) continue;
        const std::optional<double> tau = kendall_tau_b(group.predicted, group.measured);
        if (!tau) continue;
        ++out.groups;
        out.rows += n;
        out.tau += *tau * static_cast<double>(n);
        const auto chosen = std::max_element(group.predicted.begin(), group.predicted.end()) - group.predicted.begin();
        const double best = *std::max_element(group.measured.begin(), group.measured.end());
        const double regret = best / group.measured[static_cast<std::size_t>(chosen)] - 1;
        out.regret += regret;
        out.worst_regret = std::max(out.worst_regret, regret);
    }
    if (out.groups == 0) return out;
    out.tau /= static_cast<double>(out.rows);
    out.regret /= static_cast<double>(out.groups);
    return out;
}

MemoryErrors memory_errors(const std::vector<BacktestRow>& rows) {
    std::vector<Compared> either, allocated, reserved;
    std::map<std::string, Gathered> by_source, by_framework;
    MemoryErrors out;
    for (const BacktestRow& row : rows) {
        const RunMeasurement& m = row.run.measured;
        if (!row.prediction) {
            const bool measured = m.peak_allocated_gib || m.peak_reserved_gib;
            out.refused += measured ? 1 : 0;
            if (measured) ++by_source[row.run.group].refused;
            continue;
        }
        const std::string framework = framework_of(row.prediction->plan);
        if (const auto c = memory_of(row)) {
            either.push_back(c->gib);
            by_source[row.run.group].rows.push_back(c->gib);
        }
        if (const auto c = allocated_of(row)) {
            allocated.push_back(*c);
            by_framework[framework + ", allocated"].rows.push_back(*c);
        }
        if (const auto c = reserved_of(row)) {
            reserved.push_back(*c);
            by_framework[framework + ", reserved"].rows.push_back(*c);
        }
    }
    out.either = errors_of(either);
    out.allocated = errors_of(allocated);
    out.reserved = errors_of(reserved);
    out.by_source = summed(by_source);
    out.by_framework = summed(by_framework);
    return out;
}

void count_refusal(const BacktestRow& row, BacktestSummary& s, std::map<std::string, Gathered>& by_source) {
    ++s.refused;
    RefusedRows& same = s.refused_by_reason[row.refused];
    if (same.count++ == 0) {
        same.example = row.run.id;
        same.why = row.why;
    }
    ++by_source[row.run.group].refused;
}

}  // namespace

std::string framework_of(const Plan& plan) {
    const Framework& f = framework_named(plan.framework);
    return f.name + "@" + f.version;
}

Compared step_of(const BacktestRow& row) {
    const Prediction& p = *row.prediction;
    const double measured = *row.run.measured.step_time_s;
    return {.predicted = seconds(p.step),
            .measured = measured,
            .inside = seconds(p.interval.low) <= measured && measured <= seconds(p.interval.high)};
}

std::optional<Compared> allocated_of(const BacktestRow& row) {
    const Prediction& p = *row.prediction;
    const bool last = row.run.measured.of_last_stage && !p.memory.empty();
    return compared(last ? p.memory.back().allocated() : largest_allocation(p), row.run.measured.peak_allocated_gib);
}

std::optional<Compared> reserved_of(const BacktestRow& row) {
    const Bytes held = framework_named(row.prediction->plan.framework).reserved;
    return compared(largest_reservation(*row.prediction) + held, row.run.measured.peak_reserved_gib);
}

std::optional<MemoryCompared> memory_of(const BacktestRow& row) {
    if (const std::optional<Compared> c = allocated_of(row)) return MemoryCompared{*c, true};
    if (const std::optional<Compared> c = reserved_of(row)) return MemoryCompared{*c, false};
    return std::nullopt;
}

BacktestSummary summary_of(const std::vector<BacktestRow>& rows) {
    BacktestSummary s;
    s.rows = rows.size();
    std::vector<Compared> all;
    std::map<std::string, Gathered> by_source, by_gpu, by_framework;
    std::map<int, Gathered> by_scale;
    for (const BacktestRow& row : rows) {
        if (!row.prediction) {
            count_refusal(row, s, by_source);
            continue;
        }
        ++s.predicted;
        const Plan& plan = row.prediction->plan;
        for (const std::string& what : row.run.assumed) ++s.assumed[what];
        if (!row.prediction->feasible()) ++s.said_not_to_fit;
        if (!row.has_step()) continue;
        const Compared c = step_of(row);
        all.push_back(c);
        by_source[row.run.group].rows.push_back(c);
        by_gpu[plan.cluster.device.name].rows.push_back(c);
        by_framework[framework_of(plan)].rows.push_back(c);
        by_scale[decade_of(plan.world())].rows.push_back(c);
        s.worst.push_back(&row);
    }
    s.step = errors_of(all);
    s.by_source = summed(by_source);
    s.by_gpu = summed(by_gpu);
    s.by_framework = summed(by_framework);
    s.by_scale = summed(by_scale);
    s.ranking = ranking_of(rows);
    s.memory = memory_errors(rows);
    std::stable_sort(s.worst.begin(), s.worst.end(), [](const BacktestRow* a, const BacktestRow* b) {
        return std::fabs(step_of(*a).error()) > std::fabs(step_of(*b).error());
    });
    if (s.worst.size() > most_worst) s.worst.resize(most_worst);
    return s;
}

}  // namespace foretrain
