// What a backtest says over all of its rows: errors of step and memory, by source, GPU, framework and scale;
// whether faster plans are told from slower ones, and what choosing by prediction would have cost; which rows were
// refused, and which are worst.
//
//   const BacktestSummary s = summary_of(rows);           // keeps pointers to the rows
//   s.step.median_ape;  s.by_source.at("sc21-t1").errors.count;  s.ranking.tau;
//
// Rows are ranked by throughput within groups of five or more that share source, model, sequence length, GPU and
// number of GPUs. `tau` is the mean of the groups' Kendall's tau-b, weighted by their rows. The regret of a group is
// by how much the run that is predicted to be fastest was slower, a token, than the fastest of its group.
//
// Of memory, the peak of the largest rank that a framework's allocator counted (peak_allocated_gib; of the last stage
// where that is what was logged) is compared with what the prediction says its tensors and libraries need, and what
// the allocator held (peak_reserved_gib) with that and its slack. Of our own engine the regions that it sets aside are
// compared.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/program/backtest.h"
#include "reports/error_statistics.h"

namespace foretrain {

struct RefusedRows {
    std::size_t count = 0;
    std::string example;  // the first one's id
    std::string why;      // and its sentence
};

struct GroupErrors {
    ErrorSummary errors;
    std::size_t refused = 0;
};
using ErrorsByName = std::map<std::string, GroupErrors>;

struct Ranking {
    std::size_t groups = 0, rows = 0;  // 0: nothing to rank
    double tau = 0;
    double regret = 0;        // mean over groups
    double worst_regret = 0;  // of a group
};

struct MemoryErrors {
    ErrorSummary either;               // allocated where it was measured, else reserved
    ErrorSummary allocated, reserved;  // those that measured it
    std::size_t refused = 0;           // that measured one of them
    ErrorsByName by_source;            // of `either`
    ErrorsByName by_framework;         // of `allocated` and `reserved`: "fsdp@composer, reserved"
};

struct BacktestSummary {
    std::size_t rows = 0, predicted = 0, refused = 0;
    ErrorSummary step;
    std::map<std::string, RefusedRows> refused_by_reason;
    std::map<std::string, std::size_t> assumed;  // rows by what was assumed for them
    std::size_t said_not_to_fit = 0;             // predicted to need more memory than the device has
    ErrorsByName by_source, by_gpu, by_framework;
    std::map<int, GroupErrors> by_scale;  // decimal digits of the number of GPUs, less one: 1 is 10 to 99
    Ranking ranking;
    MemoryErrors memory;
    std::vector<const BacktestRow*> worst;  // by size of the step's error, ten at most
};

BacktestSummary summary_of(const std::vector<BacktestRow>& rows);

// Of one row that has a step.
Compared step_of(const BacktestRow& row);

// Of one row that has a prediction: nothing where it was not measured.
struct MemoryCompared {
    Compared gib;
    bool allocated = true;  // the measurement is peak_allocated_gib; else peak_reserved_gib
};
std::optional<MemoryCompared> memory_of(const BacktestRow& row);
std::optional<Compared> allocated_of(const BacktestRow& row);
std::optional<Compared> reserved_of(const BacktestRow& row);

std::string framework_of(const Plan& plan);  // with its version: "megatron-lm@2024"

}  // namespace foretrain
