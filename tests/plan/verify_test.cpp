#include "plan/program/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "plan/check.h"
#include "plan/program/lower.h"
#include "plan/program/text.h"
#include "tests/plan/support/small_plans.h"

namespace foretrain {
namespace {

using testing::plan_name;
using testing::small_gpt;
using testing::small_llama;
using testing::small_plan;
using Kind = InstructionKind;

TEST(Verify, EveryPlanHolds) {
    const std::vector<Plan> plans = testing::varied_plans();
    EXPECT_GE(plans.size(), 60U);
    for (const Plan& plan : plans) {
        for (const Rejection& no : check(plan)) ADD_FAILURE() << plan_name(plan) << ": " << text(no);
        const Skeleton skeleton = make_skeleton(plan);
        EXPECT_EQ(verify(unroll(skeleton)).value_or(""), "") << "unrolled, " << plan_name(plan);
        EXPECT_EQ(verify(lower(skeleton)).value_or(""), "") << "lowered, " << plan_name(plan);
    }
}

// ---- memory: the closed form is what the program uses ---------------------------------------

Bytes end_of(const Buffer& b, const RankGrid& grid) {
    return b.offset + b.stride * (grid.size(b.axis) - 1) + b.bytes();
}

// The highest address that instructions touch in each region.
std::array<Bytes, region_count> used(const Program& program, const StageProgram& stage) {
    std::array<Bytes, region_count> most{};
    for (const Instruction& i : stage.instructions)
        for (int o = 0; o < i.operands; ++o) {
            const Buffer& b = stage.buffers[static_cast<std::size_t>(i.operand[static_cast<std::size_t>(o)])];
            Bytes& m = most[static_cast<std::size_t>(b.region)];
            m = std::max(m, end_of(b, program.grid));
        }
    return most;
}

// The text of what verify finds begins with the program's place; its rule stands behind that.
std::string rule_of(const Program& program) {
    const auto wrong = verify(program);
    if (!wrong) return "none";
    for (const char* rule :
         {"index", "region", "size", "match", "deadlock", "life", "overlap", "race", "unwritten", "added", "end"})
        if (wrong->find(std::string(" ") + rule + ": ") != std::string::npos) return rule;
    return *wrong;
}

TEST(Verify, RegionsAreAsLargeAsWhatTheyHold) {
    for (const Plan& plan : testing::varied_plans()) {
        const Skeleton skeleton = make_skeleton(plan);
        const Program program = lower(skeleton);
        for (std::size_t s = 0; s < program.stages.size(); ++s) {
            const StageProgram& stage = program.stages[s];
            EXPECT_EQ(stage.region_bytes, skeleton.stages[s].region_bytes);
            const auto most = used(program, stage);
            for (std::size_t r = 0; r < region_count; ++r) {
                EXPECT_GE(stage.region_bytes[r], most[r]) << plan_name(plan) << ", " << name_of(static_cast<Region>(r));
                const auto region = static_cast<Region>(r);
                const bool exact =
                    region == Region::activations || region == Region::transients || region == Region::communication;
                const std::int64_t bytes =
                    exact ? round_up(most[r].value, buffer_alignment) : stage.region_bytes[r].value;
                EXPECT_EQ(stage.region_bytes[r].value, bytes) << plan_name(plan) << ", " << name_of(region);
            }
        }
    }
}

// ---- mutations: each is caught, by the rule that it breaks ----------------------------------

Plan plan_of(const Parallelism& p, std::int64_t microbatches = 3) {
    Plan plan = small_plan(small_gpt(true), p);
    plan.training.global_batch_size = microbatches * p.data * p.micro_batch_size;
    return plan;
}

Program two_stages() { return lower(make_skeleton(plan_of({.pipeline = 2, .data = 2}))); }

// The n-th instruction of a stage that `is` holds for; -1 from the end is the last.
template <class Is>
std::int32_t find(const StageProgram& stage, Is&& is, std::int32_t n = 0) {
    std::vector<std::int32_t> found;
    for (std::size_t id = 0; id < stage.instructions.size(); ++id)
        if (is(stage.instructions[id])) found.push_back(static_cast<std::int32_t>(id));
    return found.at(static_cast<std::size_t>(n < 0 ? n + static_cast<std::int32_t>(found.size()) : n));
}

auto of_kind(Kind kind) {
    return [kind](const Instruction& i) { return i.kind == kind; };
}

Instruction& at(StageProgram& stage, std::int32_t id) { return stage.instructions[static_cast<std::size_t>(id)]; }

// Takes an instruction out; who waited for it waits no more.
void drop(StageProgram& stage, std::int32_t id) {
    stage.instructions.erase(stage.instructions.begin() + id);
    for (Instruction& i : stage.instructions) {
        const Instruction before = i;
        i.waits = 0;
        i.wait = {};
        for (int w = 0; w < before.waits; ++w) {
            Wait wait = before.wait[static_cast<std::size_t>(w)];
            if (wait.instruction == id) continue;
            if (wait.instruction > id) --wait.instruction;
            i.add_wait(wait);
        }
    }
}

void drop_wait(Instruction& i, int w) {
    for (int k = w; k + 1 < i.waits; ++k) i.wait[static_cast<std::size_t>(k)] = i.wait[static_cast<std::size_t>(k + 1)];
    i.wait[--i.waits] = {};
}

// What is complete, by stream, when the instruction begins.
std::array<std::int32_t, stream_count> clock_of(const StageProgram& stage, std::int32_t id) {
    std::vector<std::array<std::int32_t, stream_count>> clocks;
    std::array<std::int32_t, stream_count> latest, before;
    latest.fill(-1);
    for (std::int32_t n = 0; n <= id; ++n) {
        const Instruction& i = stage.instructions[static_cast<std::size_t>(n)];
        const auto own = static_cast<std::size_t>(i.stream);
        before.fill(-1);
        const auto join = [&](std::int32_t other) {
            if (other < 0) return;
            for (std::size_t s = 0; s < stream_count; ++s)
                before[s] = std::max(before[s], clocks[static_cast<std::size_t>(other)][s]);
        };
        join(latest[own]);
        for (int w = 0; w < i.waits; ++w) join(i.wait[static_cast<std::size_t>(w)].instruction);
        clocks.push_back(before);
        clocks.back()[own] = n;
        latest[own] = n;
    }
    return before;
}

std::string quoted(const Program& program, std::size_t id) {
    return to_text(program.stages[0].instructions[id], program.stages[0]);
}

struct Dropped {
    int total = 0, caught = 0, implied = 0, unneeded = 0;
    std::vector<std::string> missed;
};

// A wait that no memory needs, though it takes part in when things happen.
bool is_unneeded(const StageProgram& stage, const Instruction& i, Wait wait) {
    const Instruction& awaited = stage.instructions[static_cast<std::size_t>(wait.instruction)];
    // The first user of a ring's entry in a pass: there may have been none before it.
    if (awaited.kind == Kind::record) return true;
    // Without prefetching, a gather starts only when compute gets there, though the ring is free.
    if (i.kind == Kind::all_gather && i.stream == Stream::gather && wait.stream == Stream::compute) return true;
    // The tail's sums follow the last reduction, which follows the last kernel that it sums.
    return i.kind == Kind::all_reduce && i.microbatch < 0;
}

void drop_each_wait(Program program, Dropped& out) {
    for (StageProgram& stage : program.stages)
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(stage.instructions.size()); ++id)
            for (int w = 0; w < at(stage, id).waits; ++w) {
                const Instruction kept = at(stage, id);
                const auto with = clock_of(stage, id);
                drop_wait(at(stage, id), w);
                const bool implied = clock_of(stage, id) == with;
                const std::string rule = rule_of(program);
                at(stage, id) = kept;
                ++out.total;
                if (rule == "race" || rule == "end")
                    ++out.caught;
                else if (implied)
                    ++out.implied;
                else if (is_unneeded(stage, kept, kept.wait[static_cast<std::size_t>(w)]))
                    ++out.unneeded;
                else
                    out.missed.push_back(rule + ": " + to_text(kept, stage));
                EXPECT_FALSE(implied && rule != "none") << "an implied wait changes nothing";
            }
}

TEST(VerifyMutation, DroppingAnyNeededWaitIsCaught) {
    Dropped all;
    for (int zero : {0, 1, 2, 3})
        for (bool overlap : {true, false}) {
            Parallelism p{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true, .zero_stage = zero};
            p.overlap = {overlap, overlap};
            drop_each_wait(lower(make_skeleton(plan_of(p))), all);
        }
    drop_each_wait(lower(make_skeleton(plan_of({.pipeline = 4, .schedule = Schedule::gpipe}))), all);
    for (int zero : {1, 3}) {
        const Parallelism p{.pipeline = 2, .virtual_pipeline = 2, .data = 2, .zero_stage = zero};
        drop_each_wait(lower(make_skeleton(plan_of(p, 4))), all);
    }
    for (int zero : {1, 2, 3}) {
        Parallelism p{.pipeline = 2, .data = 4, .zero_stage = zero, .zero_shard_size = 2};
        p.overlap = {zero != 2, zero != 2};
        drop_each_wait(lower(make_skeleton(plan_of(p))), all);
    }
    for (const std::string& m : all.missed) ADD_FAILURE() << m;
    RecordProperty("total", all.total);
    RecordProperty("caught", all.caught);
    RecordProperty("implied", all.implied);
    RecordProperty("unneeded", all.unneeded);
    EXPECT_EQ(all.total, all.caught + all.implied + all.unneeded);
    EXPECT_GT(all.caught, (all.total - all.implied) * 4 / 5)
        << all.total << " waits: " << all.implied << " implied, " << all.unneeded << " unneeded";
}

TEST(VerifyMutation, ShardGroupsMakeUpTheReplicas) {
    const Program program = lower(make_skeleton(plan_of({.data = 4, .zero_stage = 2, .zero_shard_size = 2})));
    EXPECT_EQ(verify(program), std::nullopt);
    for (const std::int64_t shard : {-2, 3, 8}) {
        Program wrong = program;
        wrong.grid.shard = shard;
        EXPECT_EQ(rule_of(wrong), "index") << shard;
    }
    Program whole = program;  // of four shards the last would lie beyond the weights
    whole.grid.shard = 0;
    EXPECT_EQ(rule_of(whole), "region");
    Program huge = program;
    huge.grid.context = huge.grid.data = std::int64_t{1} << 33;
    EXPECT_EQ(rule_of(huge), "index");
}

TEST(VerifyMutation, SwappedSendsDoNotMatch) {
    Program program = two_stages();
    StageProgram& stage = program.stages[0];
    Instruction& a = at(stage, find(stage, of_kind(Kind::send), 0));
    Instruction& b = at(stage, find(stage, of_kind(Kind::send), 1));
    std::swap(a.microbatch, b.microbatch);
    std::swap(a.operand, b.operand);
    EXPECT_EQ(rule_of(program), "match");
}

TEST(VerifyMutation, DroppedReceiveHasNoPartner) {
    for (std::int32_t n : {0, -1}) {
        Program program = two_stages();
        StageProgram& stage = program.stages[1];
        drop(stage, find(stage, of_kind(Kind::recv), n));
        EXPECT_EQ(rule_of(program), "match");
    }
}

// Each stage sends only once it has received from the other.
TEST(VerifyMutation, WaitInACircleIsADeadlock) {
    const Program program = program_from_text(R"(
        program format=foretrain.program/1 pipeline=2 micro_batch_size=1 sequence_length=1 microbatches=1 vocabulary=1 type=fp32
        stage 0
        region weights bytes=8
        buffer b0 x region=weights type=fp32 elements=2
        %0 recv stream=recv_next count=2 peer=1 mb=0 writes=x
        %1 send stream=send_next count=2 peer=1 mb=0 reads=x waits=%0.recv_next
        %2 step_end waits=%1.send_next
        stage 1
        region weights bytes=8
        buffer b0 x region=weights type=fp32 elements=2
        %0 recv stream=recv_prev count=2 peer=0 mb=0 writes=x
        %1 wait waits=%0.recv_prev
        %2 send stream=send_prev count=2 peer=0 mb=0 reads=x waits=%1.compute
        %3 step_end waits=%2.send_prev
    )");
    EXPECT_EQ(rule_of(program), "deadlock");
    const std::string text = verify(program).value_or("");
    for (const char* line :
         {"stage 0 %0 recv", "stage 1 %2 send", "stage 1 %1 wait", "stage 1 %0 recv", "stage 0 %1 send"})
        EXPECT_NE(text.find(line), std::string::npos) << text;
    Program open = program;
    open.stages[1].instructions[2].waits = 0;
    open.stages[1].instructions[2].wait = {};
    EXPECT_EQ(rule_of(open), "race");  // it completes, but stage 1 sends what it may be receiving
}

TEST(VerifyMutation, FreeingTooEarlyOrNeverIsCaught) {
    Program program = two_stages();
    StageProgram& stage = program.stages[0];
    const auto frees_transient = [&](const Instruction& i) {
        return i.kind == Kind::free &&
               stage.buffers[static_cast<std::size_t>(i.operand[0])].region == Region::transients;
    };
    const std::int32_t id = find(stage, frees_transient, 5);
    std::int32_t user = id - 1;
    const auto uses = [&](const Instruction& i) {
        return std::find(i.operand.begin(), i.operand.begin() + i.operands, at(stage, id).operand[0]) !=
               i.operand.begin() + i.operands;
    };
    while (!uses(at(stage, user))) --user;
    Program early = program;
    std::swap(at(early.stages[0], id), at(early.stages[0], user));
    EXPECT_EQ(rule_of(early), "life");
    Program never = program;
    drop(never.stages[0], id);
    EXPECT_EQ(rule_of(never), "overlap");  // its address is given to the next
    never = program;
    drop(never.stages[0], find(stage, of_kind(Kind::free), -1));
    EXPECT_EQ(rule_of(never), "life");
    Program twice = program;
    at(twice.stages[0], user) = at(twice.stages[0], id);
    EXPECT_EQ(rule_of(twice), "life");
}

TEST(VerifyMutation, TwoLiveBuffersAtOneAddressAreCaught) {
    for (Region region : {Region::transients, Region::activations, Region::communication}) {
        Program program = two_stages();
        StageProgram& stage = program.stages[1];
        // The first that begins while another of its region lives moves onto that one.
        std::int32_t living = -1;
        for (const Instruction& i : stage.instructions) {
            const bool begins = i.kind == Kind::alloc;
            if ((!begins && i.kind != Kind::free) ||
                stage.buffers[static_cast<std::size_t>(i.operand[0])].region != region)
                continue;
            if (!begins) {
                living = living == i.operand[0] ? -1 : living;
            } else if (living < 0) {
                living = i.operand[0];
            } else {
                stage.buffers[static_cast<std::size_t>(i.operand[0])].offset =
                    stage.buffers[static_cast<std::size_t>(living)].offset;
                break;
            }
        }
        const std::string rule = rule_of(program);
        EXPECT_TRUE(rule == "overlap" || rule == "region") << name_of(region) << ": " << rule;
    }
}

TEST(VerifyMutation, CollectivesOfTheTiedWeightMustAgree) {
    const auto embedding = [](const Instruction& i) { return i.axis == Axis::embedding; };
    for (std::size_t side : {0U, 1U}) {
        Program program = two_stages();
        StageProgram& stage = program.stages[side];
        --at(stage, find(stage, embedding)).count;
        EXPECT_EQ(rule_of(program), "match");
        at(stage, find(stage, embedding)).count += 100;
        EXPECT_EQ(rule_of(program), "size");
        program = two_stages();
        at(program.stages[side], find(program.stages[side], embedding)).axis = Axis::data;
        EXPECT_EQ(rule_of(program), "match");
    }
}

// ---- context ranks --------------------------------------------------------------------------

Program around_a_ring() {
    Parallelism p;
    p.context = 2;
    return lower(make_skeleton(plan_of(p, 2)));
}

// What another rank's keys and values need: to be sent, to be awaited, and a place of their own.
TEST(VerifyMutation, RingShiftsAreNeededAwaitedAndApart) {
    const Program program = around_a_ring();
    ASSERT_EQ(rule_of(program), "none");
    int shifts = 0, awaits = 0;
    for (std::size_t id = 0; id < program.stages[0].instructions.size(); ++id) {
        const Instruction& i = program.stages[0].instructions[id];
        Program mutated = program;
        if (i.kind == Kind::ring_shift) {
            ++shifts;
            mutated.stages[0].instructions[id].operand[1] = i.operand[0];
            EXPECT_EQ(rule_of(mutated), "size") << quoted(program, id);
            mutated = program;
            drop_wait(mutated.stages[0].instructions[id], 0);
            EXPECT_EQ(rule_of(mutated), "race") << quoted(program, id);
            mutated = program;
            drop(mutated.stages[0], static_cast<std::int32_t>(id));
            EXPECT_EQ(rule_of(mutated), "unwritten") << quoted(program, id);
            continue;
        }
        for (int w = 0; w < i.waits; ++w) {
            if (i.wait[static_cast<std::size_t>(w)].stream != Stream::context) continue;
            ++awaits;
            mutated = program;
            drop_wait(mutated.stages[0].instructions[id], w);
            EXPECT_EQ(rule_of(mutated), "race") << quoted(program, id);
        }
    }
    // A layer sends keys and values once each way, and back their gradients once.
    EXPECT_EQ(shifts, 3 * 4 * 2);
    EXPECT_EQ(awaits, shifts);
}

TEST(VerifyMutation, AnExchangeMovesWholeTensors) {
    Parallelism p;
    p.context = 2;
    p.context_method = ContextMethod::all_to_all;
    Program program = lower(make_skeleton(plan_of(p, 2)));
    ASSERT_EQ(rule_of(program), "none");
    Instruction& i = at(program.stages[0], find(program.stages[0], of_kind(Kind::all_to_all)));
    i.count /= 2;
    EXPECT_EQ(rule_of(program), "size");
    i.count *= 2;
    i.operand[1] = i.operand[0];
    EXPECT_EQ(rule_of(program), "size");
}

TEST(VerifyMutation, IndicesOutOfRangeAreCaught) {
    const auto mutated = [](auto&& change) {
        Program program = two_stages();
        change(program.stages[1], at(program.stages[1], find(program.stages[1], of_kind(Kind::kernel), 3)));
        return rule_of(program);
    };
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.operand[0] = 100000; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.operand[0] = -1; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { --i.operands; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.kernel = 1000; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.section = 1000; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.microbatch = 3; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.kind = static_cast<Kind>(77); }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.stream = static_cast<Stream>(stream_count); }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.operands = 200; }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.add_wait({5000000, Stream::compute}); }), "index");
    EXPECT_EQ(mutated([](StageProgram&, Instruction& i) { i.add_wait({0, Stream::gather}); }), "index");
    EXPECT_EQ(mutated([](StageProgram& s, Instruction& i) {
                  s.buffers[static_cast<std::size_t>(i.operand[0])].elements += 1;
              }),
              "size");
    EXPECT_EQ(mutated([](StageProgram& s, Instruction&) { s.buffers[0].offset = Bytes{INT64_MAX}; }), "region");
    EXPECT_EQ(mutated([](StageProgram& s, Instruction&) { s.region_base[1] = Bytes{0}; }), "region");
    EXPECT_EQ(mutated([](StageProgram& s, Instruction&) { s.stage = 0; }), "index");
    EXPECT_EQ(mutated([](StageProgram& s, Instruction&) { s.instructions.pop_back(); }), "end");
}

// What a framework adds stands on its own stream, is a time or a share of a collective, and of no more.
TEST(VerifyMutation, MisplacedCostsAreCaught) {
    Plan plan = small_plan(small_llama(), {.data = 2, .zero_stage = 3});
    plan.framework = "fsdp@torchtitan";
    const Program program = lower(make_skeleton(plan));
    ASSERT_FALSE(verify(program).has_value());
    EXPECT_EQ(program_from_text(to_text(program)), program);
    const auto mutated = [&](auto&& which, auto&& change) {
        Program other = program;
        change(at(other.stages[0], find(other.stages[0], which)));
        return rule_of(other);
    };
    const auto shared = [](const Instruction& i) { return i.like != Kind::kernel; };
    const auto launch = of_kind(Kind::launch), stall = of_kind(Kind::stall), kernel = of_kind(Kind::kernel);
    EXPECT_EQ(mutated(stall, [](Instruction& i) { i.stream = Stream::gather; }), "added");
    EXPECT_EQ(mutated(launch, [](Instruction& i) { i.count = -1; }), "added");
    EXPECT_EQ(mutated(launch, [](Instruction& i) { i.count = INT64_MAX; }), "added");
    EXPECT_EQ(mutated(launch, [](Instruction& i) { i.share = 500; }), "added");
    EXPECT_EQ(mutated(kernel, [](Instruction& i) { i.like = Kind::all_gather; }), "added");
    EXPECT_EQ(mutated(kernel, [](Instruction& i) { i.share = -1; }), "added");
    EXPECT_EQ(mutated(shared, [](Instruction& i) { i.like = Kind::send; }), "added");
    EXPECT_EQ(mutated(shared, [](Instruction& i) { i.like = static_cast<Kind>(99); }), "index");
}

// A kernel that is left out leaves its output unwritten, and someone reads that.
TEST(VerifyMutation, MostDroppedKernelsLeaveSomethingUnwritten) {
    const Program program = lower(make_skeleton(small_plan(small_llama(), {})));
    const StageProgram& stage = program.stages[0];
    int kernels = 0, caught = 0;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(stage.instructions.size()); id += 5) {
        if (stage.instructions[static_cast<std::size_t>(id)].kind != Kind::kernel) continue;
        Program without = program;
        drop(without.stages[0], id);
        ++kernels;
        if (rule_of(without) == "unwritten") ++caught;
    }
    EXPECT_GT(kernels, 100);
    EXPECT_GT(2 * caught, kernels);  // the others add to gradients or work in place
}

TEST(VerifyMutation, FailureQuotesThePlaceAndTheGrid) {
    Program program = two_stages();
    StageProgram& stage = program.stages[1];
    const std::int32_t id = find(stage, of_kind(Kind::send), 1);
    drop_wait(at(stage, id), 0);
    const std::string text = verify(program).value_or("");
    EXPECT_NE(text.find("stage 1: %" + std::to_string(id) + " send"), std::string::npos) << text;
    EXPECT_NE(text.find("race: it reads input_gradient#1"), std::string::npos) << text;
    EXPECT_NE(text.find("  stage 0    F0   F1   B0   F2   B1   B2   S"), std::string::npos) << text;
    EXPECT_NE(text.find("[B1]"), std::string::npos) << text;
    EXPECT_LT(text.size(), 1000U) << text;
}

}  // namespace
}  // namespace foretrain
