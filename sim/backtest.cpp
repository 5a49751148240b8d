#include "sim/backtest.h"

#include <atomic>
#include <utility>

#include "base/parallel.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

BacktestRow row_of(RunRecord run) {
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
