// Peaks of allocated memory against what Megatron-LM's own checks recorded. Some figures stand here, so that a person
// can check them; all of the runs live outside the repository (FORETRAIN_REFERENCE).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plan/megatron_args.h"
#include "plan/run_record.h"
#include "sim/backtest.h"
#include "sim/predict.h"
#include "tests/sim/support/reference.h"

namespace foretrain {
namespace {

using namespace support;

// Of the last stage, in MiB.
double allocated_mib(const std::string& arguments, const std::string& gpu) {
    const MegatronRun run =
        plan_from_megatron(arguments_from_text(arguments), {.origin = "test", .gpu = gpu, .world = 8});
    EXPECT_TRUE(run.plan.has_value()) << run.why;
    if (!run.plan) return 0;
    const Prediction p = estimate(*run.plan);
    return static_cast<double>(p.memory.back().allocated().value) / static_cast<double>(MiB);
}

// github:NVIDIA/Megatron-LM@d98e8a64ddf3 tests/functional_tests/test_cases/gpt/gpt3_7b_tp4_pp1_memory_speed: measured
// were 55,492.5 MiB on A100 and 54,496.6 on H100, whose attention keeps one copy less of its output.
TEST(MegatronMemory, SevenBillionOnFourTensorRanks) {
    const std::string arguments =
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
        "--untie-embeddings-and-output-weights --micro-batch-size 2 --global-batch-size 8 --seq-length 8192 "
        "--max-position-embeddings 8192 --tokenizer-type NullTokenizer --vocab-size 131073 "
        "--tensor-model-parallel-size 4 --use-distributed-optimizer --overlap-grad-reduce --deterministic-mode "
        "--no-gradient-accumulation-fusion --bf16";
    EXPECT_NEAR(allocated_mib(arguments, "a100-sxm-80gb"), 55492.5, 10);
    EXPECT_NEAR(allocated_mib(arguments, "h100-sxm-80gb"), 54496.6, 10);
}

// gpt3_mcore_te_tp1_pp1_dist_optimizer: 12 layers of 5 bytes for each of 4 x 8 x 1024 x 1024 scores are 1,920 MiB of
// it.
TEST(MegatronMemory, UnfusedAttention) {
    EXPECT_NEAR(allocated_mib("--num-layers 12 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 4 "
                              "--global-batch-size 32 --seq-length 1024 --max-position-embeddings 1024 "
                              "--use-distributed-optimizer --deterministic-mode --no-gradient-accumulation-fusion "
                              "--attention-backend unfused --bf16",
                              "a100-sxm-80gb"),
                4456.6, 2);
}

struct Errors {
    std::vector<double> of;
    void add(double error) { of.push_back(std::fabs(error)); }
    double at(double share) {
        std::sort(of.begin(), of.end());
        return of[std::min(of.size() - 1, static_cast<std::size_t>(share * static_cast<double>(of.size())))];
    }
};

TEST(MegatronMemory, PeaksAreAsMegatronsChecksRecorded) {
    const auto path = reference_file("megatron_memory.jsonl");
    if (!path) GTEST_SKIP() << "FORETRAIN_REFERENCE names no folder with megatron_memory.jsonl: peaks NOT checked";
    std::vector<RunRecord> records;
    read_run_records(Json::parse_lines_of(*path), records);
    const std::size_t all = records.size();
    Errors errors, dense;
    for (const BacktestRow& row : backtest(std::move(records), {})) {
        if (!row.prediction) {
            EXPECT_FALSE(row.why.empty()) << row.run.id;
            continue;
        }
        const double predicted = gibibytes(row.prediction->memory.back().allocated());
        const double error = predicted / *row.run.measured.peak_allocated_gib - 1;
        errors.add(error);
        if (row.run.group == "gpt") dense.add(error);
    }
    std::printf("%zu of %zu runs, median error %.2f %%, p90 %.2f %%; dense %zu, %.2f %%, %.2f %%\n", errors.of.size(),
                all, 100 * errors.at(0.5), 100 * errors.at(0.9), dense.of.size(), 100 * dense.at(0.5),
                100 * dense.at(0.9));
    EXPECT_GE(static_cast<double>(errors.of.size()), 0.78 * static_cast<double>(all));
    EXPECT_LE(errors.at(0.5), 0.006);
    EXPECT_LE(errors.at(0.9), 0.04);
}

}  // namespace
}  // namespace foretrain
