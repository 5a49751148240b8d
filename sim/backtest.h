// The prediction of every run that was measured. A run is refused with the reason if no plan can say it, if the
// plan cannot be (its numbers contradict each other), or if nothing was measured; the others are predicted, also
// where the prediction is that the plan does not fit.
//
//   std::vector<RunRecord> records;
//   read_run_records(Json::parse_lines_of("runs.jsonl"), records);          // plan/run_record.h
//   std::vector<BacktestRow> rows = backtest(std::move(records), {});
//
// The rows come in the order of the records, and are the same for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/program/backtest.h"

namespace foretrain {

struct BacktestOptions {
    int threads = 0;                                                   // 0: as many as the machine has
    std::function<void(std::int64_t done, std::int64_t of)> progress;  // called from one thread
};

std::vector<BacktestRow> backtest(std::vector<RunRecord> records, const BacktestOptions& options);

}  // namespace foretrain
