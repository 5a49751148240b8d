#include "plan/training_log.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

constexpr LoggedBatch batch{.global_batch_size = 128, .sequence_length = 8192, .devices = 16};

TrainingLog read(std::string_view text) { return read_training_log(text, "train.log", batch); }

TEST(TrainingLog, MegatronPrintsMilliseconds) {
    const TrainingLog log = read(
        "> building GPT model ...\n"
        " [2024-06-01 10:00:00] iteration        1/     500 | consumed samples:          128 | elapsed time per "
        "iteration"
        " (ms): 21034.5 | throughput per GPU (TFLOP/s/GPU): 140.1 | learning rate: 1.0E-05 | global batch size:   128 |"
        " lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 3.2 |\n"
        " [2024-06-01 10:00:08] iteration        2/     500 | elapsed time per iteration (ms): 7421.5 | global batch "
        "size:"
        "   128 |\r\n"
        " [2024-06-01 10:00:15] iteration        3/     500 | elapsed time per iteration (ms): 7400.5 | global batch "
        "size:"
        "   128 |");
    EXPECT_EQ(log.software, "Megatron-LM");
    EXPECT_EQ(log.step_times, (std::vector<double>{21.0345, 7.4215, 7.4005}));
    EXPECT_DOUBLE_EQ(log.step_time_s(), 7.411) << "the first step is the warm-up's";
}

TEST(TrainingLog, BigScienceBranchPrintsSeconds) {
    const TrainingLog log = read(" iteration 2/ 10 | elapsed time per iteration (s): 105.07 | learning rate: 3e-5 |\n");
    EXPECT_DOUBLE_EQ(log.step_time_s(), 105.07);
}

// 128 x 8192 tokens at 6 553.6 a second on each of 16 devices: 10 s.
TEST(TrainingLog, TorchtitanPrintsTokensASecondOfADevice) {
    const TrainingLog log = read(
        "[rank0]:[titan] 2025-02-01 10:00:00,000 - root - INFO - step:  1  loss: 12.25  memory: 59.02GiB(74.5%)  tps: "
        "612"
        "  tflops: 30.1  mfu: 3.04%\n"
        "[rank0]:[titan] 2025-02-01 10:01:00,000 - root - INFO - step: 10  loss:  8.51  memory: 59.02GiB(74.5%)  tps:"
        " 6,553.6  tflops: 350.10  mfu: 35.40%\n");
    EXPECT_EQ(log.software, "torchtitan");
    EXPECT_DOUBLE_EQ(log.step_time_s(), 10);
}

TEST(TrainingLog, DeepSpeedPrintsSamplesASecond) {
    const TrainingLog rates = read(
        "[2023-05-01 10:00:00,000] [INFO] [timer.py:197:stop] epoch=0/micro_step=80/global_step=10, "
        "RunningAvgSamplesPerSec=30.9, CurrSamplesPerSec=32.0, MemAllocated=20.1GB, MaxMemAllocated=40.2GB\n");
    EXPECT_EQ(rates.software, "DeepSpeed");
    EXPECT_DOUBLE_EQ(rates.step_time_s(), 4);
    EXPECT_DOUBLE_EQ(read("steps: 10 loss: 5.4012 iter time (s): 3.125 samples/sec: 40.960\n").step_time_s(), 3.125);
}

TEST(TrainingLog, RefusesByLine) {
    const auto place = [](std::string_view text) { return refusal([&] { read(text); }).file; };
    EXPECT_EQ(place("a\n\n | elapsed time per iteration (ms): nan |\n"), "train.log:3");
    EXPECT_EQ(place(" | elapsed time per iteration (ms): -3 |\n"), "train.log:1");
    EXPECT_EQ(place(" | elapsed time per iteration (ms):"), "train.log:1");
    EXPECT_EQ(place(" | elapsed time per iteration (ms): 7421.5 | global batch size:  64 |\n"), "train.log:1");
    EXPECT_EQ(place("iter time (s): 3.1\n | elapsed time per iteration (ms): 3100 |\n"), "train.log:2") << "two logs";
    EXPECT_EQ(place("step: 1 tps: 1e-9\n"), "train.log:1") << "no step takes so long";
    EXPECT_EQ(place("Epoch 1: 100%\n"), "train.log");
    EXPECT_EQ(place(""), "train.log");
}

}  // namespace
}  // namespace foretrain
