#include "sim/backtest.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "hardware/cluster_file.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

// What is allocated between steps on the rank that logs: its state, and what its libraries keep.
double held_gib(const Plan& plan) {
    const Prediction p = estimate(plan);
    if (p.times.empty()) return 0;
    const StageMemory& m = p.memory.back();
    return gibibytes(m.weights + m.gradients + m.optimizer + m.libraries);
}

// Where the number of devices is a guess that what was held between steps contradicts, the number of replicas that
// comes nearest to that: it is the state that they share out which tells.
void set_likely_devices(RunRecord& run) {
    constexpr double contradicts = 0.2, agrees = 0.05;  // relative
    constexpr std::int64_t most_replicas = 128;
    if (!run.devices_assumed || !run.measured.held_gib || !run.plan) return;
    const double held = *run.measured.held_gib;
    const auto miss = [&](const Plan& plan) { return std::fabs(held_gib(plan) / held - 1); };
    if (miss(*run.plan) <= contradicts) return;
    double nearest = agrees;
    const Plan stated = *run.plan;
    const Parallelism& p = stated.parallelism;
    // 1, 2, 3, 4, 6, 8, 12, ...: nodes come in such numbers.
    const auto next = [](std::int64_t n) { return n == 1 ? 2 : n % 3 == 0 ? n / 3 * 4 : n / 2 * 3; };
    for (std::int64_t n = 1; n <= most_replicas; n = next(n)) {
        Plan other = stated;
        other.parallelism.data = n;
        try {
            scale_to_devices(other.cluster, p.tensor * p.pipeline * p.context * n);
        } catch (const UserError&) {
            continue;  // the cluster does not come in that size
        }
        if (const double m = miss(other); m < nearest) {
            nearest = m;
            run.plan = std::move(other);
        }
    }
    run.assumed.push_back(fmt::format("{} GPUs: so many would hold what was held between steps", run.plan->world()));
}

BacktestRow row_of(RunRecord run) {
    set_likely_devices(run);
    BacktestRow row{.run = std::move(run), .refused = "", .why = "", .prediction = {}};
    const RunMeasurement& m = row.run.measured;
    if (!row.run.plan) {
        row.refused = row.run.refused;
        row.why = row.run.why;
        return row;
    }
    if (!m.step_time_s && !m.peak_allocated_gib && !m.peak_reserved_gib) {
        row.refused = "nothing measured";
        row.why = "neither step_time_s nor peak_allocated_gib nor peak_reserved_gib";
        return row;
    }
    Prediction p = estimate(*row.run.plan);
    row.run.plan.reset();
    if (p.times.empty()) {
        row.refused = p.rejections.front().reason;
        row.why = text(p.rejections.front());
        return row;
    }
    row.prediction = std::move(p);
    return row;
}

}  // namespace

std::vector<BacktestRow> backtest(std::vector<RunRecord> records, const BacktestOptions& options) {
    std::vector<BacktestRow> rows(records.size());
    std::atomic<std::int64_t> finished{0};
    Workers(options.threads).for_each(records.size(), [&](std::size_t i, int worker) {
        rows[i] = row_of(std::move(records[i]));
        ++finished;
        constexpr int caller = 0;
        if (options.progress && worker == caller) options.progress(finished, static_cast<std::int64_t>(rows.size()));
    });
    return rows;
}

}  // namespace foretrain
