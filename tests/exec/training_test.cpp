// Real training of a model small enough for a test: the loss falls, and does so alike under other plans.
#include <gtest/gtest.h>

#include <cmath>

#include "exec/runtime.h"
#include "kernels/cpu/cpu_kernels.h"
#include "plan/program/lower.h"

namespace foretrain {
namespace {

Plan tiny_plan() {
    Plan plan;
    ModelSpec& m = plan.model;
    m.name = "tiny";
    m.layers = 2;
    m.hidden_size = 32;
    m.attention_heads = m.kv_heads = 2;
    m.head_dim = 16;
    m.ffn_hidden_size = 64;
    m.vocab_size = 96;
    m.tied_embeddings = true;
    m.positions = Positions::learned;
    m.max_positions = 32;
    m.norm = Norm::layernorm;
    m.activation = Activation::gelu;
    m.bias = true;
    plan.framework = "foretrain";
    plan.training.global_batch_size = 8;
    plan.training.sequence_length = 32;
    plan.training.precision = DType::fp64;
    plan.training.learning_rate = 1e-2;
    return plan;
}

std::vector<double> losses(const Plan& plan, std::int64_t steps) {
    std::vector<double> out;
    run_program(lower(make_skeleton(plan)), {.kernels = &cpu_kernels(),
                                             .steps = steps,
                                             .seed = 5,
                                             .on_step = [&](const StepReport& r) { out.push_back(r.loss); },
                                             .keep_state = true});
    return out;
}

TEST(Training, TheLossFalls) {
    const std::vector<double> loss = losses(tiny_plan(), 20);
    EXPECT_NEAR(loss.front(), std::log(96.0), 0.1);  // knows nothing
    EXPECT_LT(loss.back(), loss.front() - 0.5);
}

TEST(Training, OtherPlansFollow) {
    const std::vector<double> reference = losses(tiny_plan(), 4);
    const auto expect_alike = [&](const Plan& plan) {
        const std::vector<double> loss = losses(plan, 4);
        for (std::size_t s = 0; s < loss.size(); ++s)
            EXPECT_NEAR(loss[s], reference[s], 1e-12 * reference[s]) << describe(plan.parallelism) << " step " << s;
    };
    Plan plan = tiny_plan();
    plan.parallelism = {.tensor = 2, .pipeline = 2, .data = 1, .sequence_parallel = true};
    expect_alike(plan);
    plan.parallelism = {.pipeline = 2, .data = 2, .zero_stage = 1};
    expect_alike(plan);
    plan.parallelism = {.data = 4, .zero_stage = 3};
    expect_alike(plan);
}

}  // namespace
}  // namespace foretrain
