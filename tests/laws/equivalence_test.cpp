// The law of equivalence: however a model is spread, it learns the same. Each plan runs three steps
// on real threads; its losses, weights and optimizer moments (which are sums of its gradients) are
// held against a reference.
//
//   Class A, bit-equal: pipeline and every schedule, recompute, overlap, and ZeRO against data
//   parallelism of the same size that reduces at the same points (ZeRO-0 and 1 reduce once a step,
//   ZeRO-2 and 3 every microbatch). Shards over a part of the replicas sum in two steps: those are
//   held against each other, and over all replicas against the plans that know of no parts.
//   Class B, sums in another order: everything against one rank. Per tensor the norm of the
//   difference over the norm of the reference, floored at a thousandth of the norm of all tensors.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "exec/runtime.h"
#include "kernels/cpu/cpu_kernels.h"
#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "tests/laws/support/plans.h"

namespace foretrain {
// How a failing test names its plan.
void PrintTo(const Parallelism& p, std::ostream* out) { *out << describe(p); }
}  // namespace foretrain

namespace foretrain::test {
namespace {

struct Outcome {
    std::vector<double> losses;
    std::map<std::string, ParameterState> state;
};

Outcome run(const Program& program) {
    Outcome outcome;
    RunOptions options;
    options.kernels = &cpu_kernels();
    options.steps = 3;
    options.keep_state = true;
    options.on_step = [&](const StepReport& s) { outcome.losses.push_back(s.loss); };
    outcome.state = run_program(program, options).state;
    return outcome;
}

Outcome run(const Plan& plan) {
    for (const Rejection& no : check(plan)) ADD_FAILURE() << text(no);
    return run(lower(make_skeleton(plan)));
}

using Tensor = std::vector<double>;

const Tensor* parts(const ParameterState& s, int i) { return i == 0 ? &s.weights : i == 1 ? &s.momentum : &s.variance; }

// Empty if bit-equal, else the first difference in words.
std::string bit_difference(const Outcome& a, const Outcome& b) {
    if (a.losses != b.losses) return "losses differ";
    if (a.state.size() != b.state.size()) return "not the same parameters";
    for (const auto& [name, state] : a.state)
        for (int i = 0; i < 3; ++i)
            if (*parts(state, i) != *parts(b.state.at(name), i)) return name + " differs in part " + std::to_string(i);
    return "";
}

double norm(const Tensor& t) {
    double sum = 0;
    for (double x : t) sum += x * x;
    return std::sqrt(sum);
}

// The largest relative difference over losses and tensors.
double difference(const Outcome& a, const Outcome& reference) {
    double worst = 0;
    for (std::size_t i = 0; i < a.losses.size(); ++i)
        worst = std::max(worst, std::abs(a.losses[i] - reference.losses[i]) / std::abs(reference.losses[i]));
    for (int i = 0; i < 3; ++i) {
        double all = 0;
        for (const auto& [name, state] : reference.state) all = std::hypot(all, norm(*parts(state, i)));
        for (const auto& [name, state] : reference.state) {
            const Tensor &x = *parts(state, i), &y = *parts(a.state.at(name), i);
            Tensor delta(x.size());
            for (std::size_t e = 0; e < x.size(); ++e) delta[e] = x[e] - y[e];
            worst = std::max(worst, norm(delta) / std::max(norm(x), all / 1000));
        }
    }
    return worst;
}

// The plan whose bits this one must reproduce: without pipeline, recompute and overlap, and with the
// plainest ZeRO that reduces at the same points.
Plan class_a_reference(Plan plan) {
    Parallelism& p = plan.parallelism;
    const std::int64_t world = p.tensor * p.context * p.data;
    p.pipeline = p.virtual_pipeline = 1;
    p.stage_layers.clear();
    p.first_stage_layers = p.last_stage_layers = 0;
    p.embedding_and_head_as_layers = false;
    p.recompute = {};
    p.schedule = Schedule::gpipe;
    p.overlap = {false, false};
    const bool in_part = p.zero_shard_size > 0 && p.zero_shard_size < p.context * p.data;
    p.zero_stage = p.zero_stage >= 2 && plan.microbatches() > 1 ? 2 : in_part ? 1 : 0;
    if (!in_part) p.zero_shard_size = 0;
    plan.cluster = any_machine(world);
    return plan;
}

Plan one_rank(Plan plan) {
    plan = class_a_reference(plan);
    plan.parallelism.tensor = plan.parallelism.context = plan.parallelism.data = 1;
    plan.parallelism.sequence_parallel = false;
    plan.parallelism.zero_stage = 0;
    plan.parallelism.zero_shard_size = 0;
    plan.cluster = any_machine(1);
    return plan;
}

Parallelism spread(std::int64_t tp, std::int64_t pp, std::int64_t dp, int zero = 0) {
    Parallelism p;
    p.tensor = tp;
    p.pipeline = pp;
    p.data = dp;
    p.zero_stage = zero;
    return p;
}

std::vector<Parallelism> spreads() {
    std::vector<Parallelism> out;
    using Kind = Recompute::Kind;
    const auto add = [&](Parallelism p, Recompute r = {}, bool sp = false, std::int64_t mbs = 1,
                         Schedule s = Schedule::one_f_one_b, std::vector<std::int64_t> layers = {}) {
        p.recompute = r;
        p.sequence_parallel = sp;
        p.micro_batch_size = mbs;
        p.schedule = s;
        p.stage_layers = std::move(layers);
        out.push_back(p);
    };
    add(spread(1, 1, 1));
    add(spread(1, 1, 1), {Kind::selective, 0});
    add(spread(1, 1, 1), {Kind::full, 0}, false, 2);
    add(spread(1, 1, 1), {Kind::segment, 3});
    add(spread(1, 2, 1));
    add(spread(1, 2, 1), {}, false, 1, Schedule::gpipe);
    add(spread(1, 4, 1), {Kind::full, 0});
    out.back().overlap.pipeline = false;
    add(spread(1, 2, 1), {Kind::segment, 2}, false, 2, Schedule::one_f_one_b, {3, 1});
    add(spread(1, 3, 1), {Kind::block, 1}, false, 1, Schedule::gpipe, {1, 2, 1});
    for (int zero = 0; zero <= 3; ++zero) add(spread(1, 1, 2, zero));
    for (int zero = 0; zero <= 3; ++zero) add(spread(1, 1, 4, zero), {Kind::full, 0}, false, 2);
    for (int zero = 1; zero <= 3; ++zero) add(spread(1, 2, 2, zero), {Kind::segment, 2});
    add(spread(2, 1, 1));
    add(spread(2, 1, 1), {}, true);
    add(spread(4, 1, 1), {Kind::full, 0}, true);
    add(spread(4, 1, 1), {Kind::selective, 0});
    add(spread(2, 2, 1), {}, true);
    add(spread(2, 2, 1), {Kind::every, 2}, false, 1, Schedule::gpipe);
    out.back().overlap.pipeline = false;
    for (int zero = 0; zero <= 3; ++zero) add(spread(2, 1, 2, zero), {Kind::selective, 0}, zero % 2 == 1);
    for (int zero = 0; zero <= 3; ++zero) add(spread(2, 2, 2, zero), {Kind::full, 0}, zero >= 2);
    add(spread(1, 4, 2, 3), {}, false, 1, Schedule::gpipe);
    add(spread(1, 2, 4, 1), {Kind::full, 0});
    add(spread(1, 1, 8, 3));
    const auto interleave = [&](std::int64_t chunks, Parallelism p, Recompute r = {},
                                Schedule s = Schedule::one_f_one_b, std::vector<std::int64_t> layers = {}) {
        p.virtual_pipeline = chunks;
        p.overlap.gradient_reduce = r.kind != Kind::full;
        add(p, r, p.tensor > 1 && chunks == 2, 1, s, std::move(layers));
    };
    interleave(2, spread(1, 2, 1));
    interleave(2, spread(1, 2, 1), {Kind::full, 0}, Schedule::gpipe);
    for (int zero = 0; zero <= 3; ++zero) interleave(2, spread(1, 2, 2, zero), {zero < 2 ? Kind::full : Kind::none, 0});
    interleave(2, spread(2, 2, 2, 1));
    interleave(2, spread(2, 2, 2, 3), {Kind::selective, 0});
    return out;
}

class Equivalence : public ::testing::TestWithParam<std::tuple<bool, Parallelism>> {};

TEST_P(Equivalence, LearnsTheSame) {
    const auto& [llama, parallelism] = GetParam();
    const Plan plan = small_plan(llama ? small_llama() : small_gpt(), parallelism);
    const Outcome outcome = run(plan);
    ASSERT_EQ(outcome.losses.size(), 3u);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front()) << "it does not learn";
    EXPECT_EQ(bit_difference(outcome, run(class_a_reference(plan))), "") << describe(parallelism);
    EXPECT_LE(difference(outcome, run(one_rank(plan))), 1e-12) << describe(parallelism);
}

std::string plan_name(const ::testing::TestParamInfo<std::tuple<bool, Parallelism>>& info) {
    std::string name = (std::get<0>(info.param) ? "llama_" : "gpt_") + describe(std::get<1>(info.param));
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return name;
}

// More layers, so that three chunks a stage, and stages of unlike chunks, have some.
TEST(EquivalenceOfDeeper, LearnsTheSame) {
    struct Layout {
        std::int64_t pipeline, chunks;
        std::vector<std::int64_t> layers;
        std::int64_t first = 0, last = 0;
        bool ends_count = false;
    };
    const Layout layouts[] = {{2, 3, {}},       {3, 2, {}},       {3, 2, {1, 1, 2, 1, 2, 1}}, {2, 2, {1, 2, 3, 2}},
                              {4, 1, {}, 2, 2}, {3, 2, {}, 2, 2}, {2, 1, {}, 5, 0},           {5, 1, {}, 0, 0, true}};
    for (const Layout& layout : layouts)
        for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe}) {
            Parallelism p = spread(1, layout.pipeline, layout.pipeline <= 3 ? 2 : 1, 1);
            p.virtual_pipeline = layout.chunks;
            p.stage_layers = layout.layers;
            p.first_stage_layers = layout.first;
            p.last_stage_layers = layout.last;
            p.embedding_and_head_as_layers = layout.ends_count;
            p.schedule = schedule;
            Plan plan = small_plan(small_gpt(), p, 12);
            plan.model.layers = layout.chunks == 3 ? 6 : 8;
            if (layout.pipeline == 3 && layout.last == 0) plan.model.layers = layout.layers.empty() ? 6 : 8;
            EXPECT_EQ(bit_difference(run(plan), run(class_a_reference(plan))), "") << describe(p);
        }
}

INSTANTIATE_TEST_SUITE_P(Plans, Equivalence, ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(spreads())),
                         plan_name);

// The models that have what GPT and Llama do not, each spread in a few ways that mix everything.
class EquivalenceOfOthers : public ::testing::TestWithParam<std::tuple<ModelSpec, Parallelism>> {};

TEST_P(EquivalenceOfOthers, LearnsTheSame) {
    const auto& [model, parallelism] = GetParam();
    const Plan plan = small_plan(model, parallelism);
    const Outcome outcome = run(plan);
    EXPECT_LT(outcome.losses.back(), outcome.losses.front()) << "it does not learn";
    EXPECT_EQ(bit_difference(outcome, run(class_a_reference(plan))), "") << describe(parallelism);
    EXPECT_LE(difference(outcome, run(one_rank(plan))), 1e-12) << describe(parallelism);
}

std::string other_name(const ::testing::TestParamInfo<std::tuple<ModelSpec, Parallelism>>& info) {
    std::string name = std::get<0>(info.param).name + "_" + describe(std::get<1>(info.param));
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return name;
}

std::vector<Parallelism> few_spreads() {
    using Kind = Recompute::Kind;
    std::vector<Parallelism> out{spread(1, 1, 1), spread(1, 2, 2, 1), spread(2, 1, 1), spread(2, 1, 2, 2),
                                 spread(4, 1, 1), spread(2, 2, 2, 3), spread(2, 2, 1)};
    out[0].recompute = {Kind::full, 0};
    out[2].recompute = {Kind::selective, 0};
    out[3].sequence_parallel = out[4].sequence_parallel = out[5].sequence_parallel = true;
    out[4].recompute = {Kind::segment, 2};
    out[6].micro_batch_size = 2;
    return out;
}

INSTANTIATE_TEST_SUITE_P(Plans, EquivalenceOfOthers,
                         ::testing::Combine(::testing::Values(small_neox(), small_cohere(), small_gemma(), small_opt()),
                                            ::testing::ValuesIn(few_spreads())),
                         other_name);

// Sequences spread over context ranks, in both forms, with everything else.
Parallelism across(std::int64_t cp, ContextMethod method, Parallelism p) {
    p.context = cp;
    p.context_method = method;
    return p;
}

std::vector<Parallelism> context_spreads() {
    using Kind = Recompute::Kind;
    constexpr ContextMethod ring = ContextMethod::ring, exchange = ContextMethod::all_to_all;
    std::vector<Parallelism> out;
    const auto add = [&](Parallelism p, Recompute r = {}, bool sp = false, std::int64_t mbs = 1) {
        p.recompute = r;
        p.sequence_parallel = sp;
        p.micro_batch_size = mbs;
        out.push_back(p);
    };
    for (const ContextMethod method : {ring, exchange}) {
        for (const std::int64_t cp : {2, 4}) {
            add(across(cp, method, spread(1, 1, 1)));
            for (int zero = 1; zero <= 3; ++zero) add(across(cp, method, spread(1, 1, 1, zero)), {}, false, 2);
            add(across(cp, method, spread(1, 2, 1)), {Kind::full, 0}, false, 2);
            add(across(cp, method, spread(1, 2, 1, 3)), {Kind::segment, 2});
        }
        add(across(2, method, spread(2, 1, 1)), {}, true);
        add(across(2, method, spread(2, 1, 1)), {Kind::selective, 0});
        for (int zero = 0; zero <= 3; ++zero)
            add(across(2, method, spread(2, 1, 2, zero)), {Kind::selective, 0}, zero % 2 == 1);
        add(across(2, method, spread(2, 2, 1, 1)), {Kind::full, 0}, true);
        add(across(2, method, spread(1, 4, 1, 2)), {Kind::block, 1});
        add(across(2, method, spread(1, 2, 2, 1)));
        add(across(2, method, spread(1, 2, 1, 1)));
        out.back().virtual_pipeline = 2;
        add(across(2, method, spread(1, 2, 2, 3)), {Kind::full, 0});
        out.back().virtual_pipeline = 2;
    }
    for (const ContextMethod method : {ring, exchange}) {  // two chunks a stage
        add(across(2, method, spread(1, 2, 1, 2)), {Kind::selective, 0});
        out.back().virtual_pipeline = 2;
        add(across(2, method, spread(2, 2, 1, 1)), {}, true);
        out.back().virtual_pipeline = 2;
    }
    add(across(3, ring, spread(1, 1, 1, 1)), {Kind::every, 2});
    add(across(2, ring, spread(4, 1, 1)), {}, true);
    add(across(4, ring, spread(2, 1, 1, 3)), {}, true);
    out.back().schedule = Schedule::gpipe;
    out.back().overlap = {false, false};
    return out;
}

// Sharded over a part of the replicas, with everything else.
std::vector<Parallelism> shard_spreads() {
    using Kind = Recompute::Kind;
    constexpr ContextMethod ring = ContextMethod::ring, exchange = ContextMethod::all_to_all;
    std::vector<Parallelism> out;
    const auto add = [&](std::int64_t shard, Parallelism p, Recompute r = {}, std::int64_t mbs = 1) {
        p.zero_shard_size = shard;
        p.recompute = r;
        p.micro_batch_size = mbs;
        out.push_back(p);
    };
    for (int zero = 1; zero <= 3; ++zero) {
        add(2, spread(1, 1, 4, zero));
        add(2, spread(1, 1, 4, zero), {Kind::full, 0}, 2);
        add(4, spread(1, 1, 4, zero));  // all of them
        add(4, spread(1, 1, 8, zero));
        add(2, spread(1, 2, 4, zero), {Kind::selective, 0});
        add(2, spread(2, 1, 4, zero));
        out.back().sequence_parallel = true;
        add(2, across(2, ring, spread(1, 1, 2, zero)), {Kind::full, 0});
        add(4, across(2, exchange, spread(1, 1, 4, zero)));
        add(2, across(2, exchange, spread(1, 2, 2, zero)));
        out.back().virtual_pipeline = 2;
        out.back().overlap = {false, false};
    }
    return out;
}

INSTANTIATE_TEST_SUITE_P(ShardPlans, Equivalence,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(shard_spreads())), plan_name);

INSTANTIATE_TEST_SUITE_P(ContextPlans, Equivalence,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(context_spreads())), plan_name);

std::vector<Parallelism> few_context_spreads() {
    std::vector<Parallelism> out;
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all}) {
        out.push_back(across(2, method, spread(2, 1, 1, 1)));
        out.back().sequence_parallel = true;
        out.push_back(across(2, method, spread(1, 2, 1, 3)));
        out.back().recompute = {Recompute::Kind::selective, 0};
        out.push_back(across(4, method, spread(1, 1, 2, 2)));
        out.back().recompute = {Recompute::Kind::full, 0};
    }
    return out;
}

INSTANTIATE_TEST_SUITE_P(ContextPlans, EquivalenceOfOthers,
                         ::testing::Combine(::testing::Values(small_neox(), small_cohere(), small_gemma(), small_opt()),
                                            ::testing::ValuesIn(few_context_spreads())),
                         other_name);

TEST(EquivalenceInFloat, WithinTheStatedTolerance) {
    for (const Parallelism& p : {spread(2, 2, 2, 3), spread(4, 1, 2, 1), spread(1, 2, 4, 2),
                                 across(4, ContextMethod::ring, spread(1, 1, 2, 1)),
                                 across(2, ContextMethod::all_to_all, spread(2, 1, 2, 2))}) {
        Plan plan = small_plan(small_llama(), p);
        plan.training.precision = DType::fp32;
        EXPECT_LE(difference(run(plan), run(one_rank(plan))), 1e-5) << describe(p);
    }
}

// The law must be able to fail: programs that compute something else are told apart, by the engine,
// which holds replicas against each other, or by the difference.
TEST(EquivalenceMutation, IsCaught) {
    const Plan plan = small_plan(small_gpt(), spread(2, 2, 2, 1));
    const Outcome reference = run(one_rank(plan));
    const Program program = lower(make_skeleton(plan));
    ASSERT_LE(difference(run(program), reference), 1e-12);
    const auto mutated = [&](auto&& change) {
        Program copy = program;
        for (StageProgram& stage : copy.stages) {
            const auto found = std::find_if(stage.instructions.rbegin(), stage.instructions.rend(), change);
            EXPECT_NE(found, stage.instructions.rend());
        }
        try {
            return difference(run(copy), reference);
        } catch (const RunError& e) {
            EXPECT_NE(std::string(e.what()).find("replicas have drifted apart"), std::string::npos) << e.what();
            return 1.0;
        }
    };
    // A tensor all-reduce left out: every stage keeps its partial sums.
    EXPECT_GT(mutated([](Instruction& i) {
                  if (i.kind != InstructionKind::all_reduce || i.axis != Axis::tensor) return false;
                  i.kind = InstructionKind::record;
                  return true;
              }),
              1e-9);
    // Gradients of one unit not summed over the data ranks.
    EXPECT_GT(mutated([](Instruction& i) {
                  if (i.kind != InstructionKind::reduce_scatter) return false;
                  i.kind = InstructionKind::record;
                  return true;
              }),
              1e-9);
    // A microbatch taken twice in place of another.
    EXPECT_GT(mutated([](Instruction& i) {
                  if (i.kind != InstructionKind::load_batch) return false;
                  i.microbatch = 0;
                  return true;
              }),
              1e-9);
}

// Groups that each hold all shards and do not add theirs up: of any one unit, at any stage. They drift apart,
// which the engine sees, on whichever rank.
TEST(EquivalenceMutation, ADroppedSumOverGroupsIsCaught) {
    for (const int zero : {1, 2, 3}) {
        Parallelism p = spread(1, 1, 4, zero);
        p.zero_shard_size = 2;
        const Plan plan = small_plan(small_llama(), p);
        const Program program = lower(make_skeleton(plan));
        const Outcome reference = run(one_rank(plan));
        ASSERT_LE(difference(run(program), reference), 1e-12);
        int tried = 0;
        for (std::size_t i = 0; i < program.stages[0].instructions.size(); ++i) {
            if (program.stages[0].instructions[i].axis != Axis::replicate) continue;
            Program mutated = program;
            mutated.stages[0].instructions[i].kind = InstructionKind::record;
            EXPECT_THROW(run(mutated), RunError) << describe(p) << " instruction " << i;
            ++tried;
        }
        EXPECT_EQ(tried, 7) << "embedding, four layers, final norm, head";
    }
}

// The same across context ranks: an exchange that is left out, on all ranks alike, changes what is learnt.
TEST(EquivalenceMutation, ADroppedExchangeIsCaught) {
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all}) {
        const Plan plan = small_plan(small_llama(), across(2, method, spread(1, 1, 1)));
        const Outcome reference = run(one_rank(plan));
        const Program program = lower(make_skeleton(plan));
        ASSERT_LE(difference(run(program), reference), 1e-12);
        const InstructionKind kind =
            method == ContextMethod::ring ? InstructionKind::ring_shift : InstructionKind::all_to_all;
        std::vector<std::size_t> exchanges;
        for (std::size_t i = 0; i < program.stages[0].instructions.size(); ++i)
            if (program.stages[0].instructions[i].kind == kind) exchanges.push_back(i);
        // Of the first microbatch each, forward and backward.
        const std::size_t of_one = exchanges.size() / static_cast<std::size_t>(plan.microbatches());
        for (std::size_t n = 0; n < of_one; ++n) {
            Program mutated = program;
            mutated.stages[0].instructions[exchanges[n]].kind = InstructionKind::record;
            EXPECT_GT(difference(run(mutated), reference), 1e-9) << name_of(method) << " exchange " << n;
        }
    }
}

}  // namespace
}  // namespace foretrain::test
