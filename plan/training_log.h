// Step times out of the log that a training run printed: the lines of Megatron-LM (and of what was made of it), of
// torchtitan and of DeepSpeed. The rest of a log is passed over.
//
//   iteration 12/ 500 | ... | elapsed time per iteration (ms): 7421.5 | ... | global batch size: 128 |
//   [titan] ... step: 10  loss: 7.6  memory: 59.02GiB(74.5%)  tps: 6,123  mfu: 39.40%
//   steps: 10 loss: 5.40 iter time (s): 3.123 samples/sec: 40.99
//   ... epoch=0/micro_step=80/global_step=10, RunningAvgSamplesPerSec=40.9, CurrSamplesPerSec=41.2, ...
//
//   TrainingLog log = read_training_log(text, "train.log", {.global_batch_size = 128, ...});
//   log.step_time_s()                     // the median after the warm-up
//
// Rates become times by the batch of the plan that ran. Errors: UserError with the line, where a figure is none, where
// the log's batch is not the plan's, and where no line tells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain {

struct LoggedBatch {
    std::int64_t global_batch_size = 0, sequence_length = 0;
    std::int64_t devices = 0;  // rates of torchtitan are of one
};

struct TrainingLog {
    std::string software;            // "Megatron-LM", "torchtitan", "DeepSpeed"
    std::vector<double> step_times;  // seconds, as printed; not empty

    // The median of those after the first fifth, and after the first, where there are several.
    double step_time_s() const;
};

TrainingLog read_training_log(std::string_view text, const std::string& origin, const LoggedBatch& batch);

}  // namespace foretrain
