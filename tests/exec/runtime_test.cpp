// The runtime on a program small enough to follow by hand: two stages of two data ranks.
//
//   stage 0: a += batch; send a; sum over data of a               (streams compute, send_next, reduce)
//   stage 1: receive; loss = sum of what came, summed over data
#include "exec/runtime.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "exec/data.h"
#include "exec/rank_run.h"
#include "plan/program/text.h"

namespace foretrain {
namespace {

constexpr std::int64_t micro_batch = 2;
constexpr std::int64_t sequence = 8;
constexpr std::int64_t tokens = micro_batch * sequence;

// Stands in for real kernels: `cast` turns tokens (int32) into doubles, `accumulate` adds them up.
KernelTable toy_kernels() {
    KernelTable table{};
    table.cast = [](const CastArgs& args, const KernelContext& context) {
        const auto* from = static_cast<const std::int32_t*>(context.operand[0]);
        auto* to = static_cast<double*>(context.operand[1]);
        for (std::int64_t e = 0; e < args.elements; ++e) to[e] = from[e];
    };
    table.accumulate = [](const AccumulateArgs& args, const KernelContext& context) {
        const auto* from = static_cast<const double*>(context.operand[0]);
        auto* to = static_cast<double*>(context.operand[1]);
        for (std::int64_t e = 0; e < args.elements; ++e) *to += from[e];
    };
    return table;
}

class Builder {
public:
    explicit Builder(StageProgram& stage) : stage_(stage) {}

    std::int32_t buffer(const char* name, DType type, std::int64_t elements, Region region) {
        Buffer b;
        b.name = name;
        b.type = type;
        b.elements = elements;
        b.region = region;
        Bytes& size = stage_.region_bytes[static_cast<std::size_t>(region)];
        b.offset = size;
        size += Bytes{round_up(b.bytes().value, 64)};
        stage_.buffers.push_back(b);
        return static_cast<std::int32_t>(stage_.buffers.size()) - 1;
    }

    std::int32_t add(InstructionKind kind, Stream stream, std::initializer_list<std::int32_t> operands,
                     std::initializer_list<std::int32_t> waits = {}) {
        Instruction i;
        i.kind = kind;
        i.stream = stream;
        for (const std::int32_t o : operands) i.add_operand(o);
        for (const std::int32_t w : waits) i.add_wait({w, stage_.instructions[static_cast<std::size_t>(w)].stream});
        stage_.instructions.push_back(i);
        return static_cast<std::int32_t>(stage_.instructions.size()) - 1;
    }
    Instruction& last() { return stage_.instructions.back(); }

    void kernel(const KernelArgs& args) {
        last().kernel = static_cast<std::int32_t>(stage_.kernels.size());
        stage_.kernels.push_back(args);
    }

    void done() {
        Bytes base;
        for (std::size_t r = 0; r < region_count; ++r) {
            stage_.region_base[r] = base;
            base += stage_.region_bytes[r];
        }
    }

private:
    StageProgram& stage_;
};

using Kind = InstructionKind;

StageProgram first_stage() {
    StageProgram stage;
    Builder b(stage);
    const auto batch = b.buffer("tokens", DType::int32, tokens, Region::transients);
    const auto a = b.buffer("a", DType::fp64, tokens, Region::transients);
    const auto copy = b.buffer("copy", DType::fp64, tokens, Region::gradients);

    b.add(Kind::alloc, Stream::compute, {batch});
    b.add(Kind::load_batch, Stream::compute, {batch});
    b.last().microbatch = 0;
    b.add(Kind::alloc, Stream::compute, {a});
    b.add(Kind::fill, Stream::compute, {a});
    const auto cast = b.add(Kind::kernel, Stream::compute, {batch, a});
    b.kernel(CastArgs{.elements = tokens});
    b.add(Kind::free, Stream::compute, {batch});
    const auto copied = b.add(Kind::copy, Stream::compute, {a, copy}, {cast});
    const auto send = b.add(Kind::send, Stream::send_next, {copy}, {copied});
    b.last().peer = 1;
    b.last().count = tokens;
    b.last().type = DType::fp64;
    const auto sum = b.add(Kind::all_reduce, Stream::reduce, {a}, {copied});
    b.last().axis = Axis::data;
    b.last().count = tokens;
    b.last().type = DType::fp64;
    b.add(Kind::free, Stream::compute, {a}, {sum});
    b.add(Kind::step_end, Stream::compute, {}, {send, sum});
    b.done();
    return stage;
}

StageProgram last_stage() {
    StageProgram stage;
    stage.stage = 1;
    Builder b(stage);
    const auto a = b.buffer("a", DType::fp64, tokens, Region::communication);
    const auto loss = b.buffer("loss", DType::fp64, 1, Region::activations);
    stage.loss = loss;
    const auto recv = b.add(Kind::recv, Stream::recv_prev, {a});
    b.last().peer = 0;
    b.last().count = tokens;
    b.last().type = DType::fp64;
    b.add(Kind::fill, Stream::compute, {loss});
    b.add(Kind::kernel, Stream::compute, {a, loss}, {recv});
    b.kernel(AccumulateArgs{.elements = tokens});
    b.add(Kind::all_reduce, Stream::compute, {loss});
    b.last().axis = Axis::data;
    b.last().count = 1;
    b.last().type = DType::fp64;
    b.add(Kind::step_end, Stream::compute, {});
    b.done();
    return stage;
}

Program toy_program() {
    Program p;
    p.grid = {.tensor = 1, .context = 1, .data = 2, .pipeline = 2};
    p.micro_batch_size = micro_batch;
    p.sequence_length = sequence;
    p.microbatches = 1;
    p.vocabulary = 50;
    p.type = DType::fp64;
    p.stages = {first_stage(), last_stage()};
    return p;
}

double expected_loss(const Program& p, std::uint64_t seed, std::int64_t step) {
    const SyntheticData data(seed, p.vocabulary, sequence);
    std::vector<std::int32_t> row(static_cast<std::size_t>(sequence));
    double sum = 0;
    for (std::int64_t sample = 4 * step; sample < 4 * (step + 1); ++sample) {
        data.tokens(sample, row);
        for (const std::int32_t t : row) sum += t;
    }
    return sum / static_cast<double>(4 * sequence);
}

TEST(Runtime, RunsAStepByHand) {
    const Program program = toy_program();
    const KernelTable kernels = toy_kernels();
    std::vector<StepReport> reports;
    const RunResult result = run_program(program, {.kernels = &kernels,
                                                   .steps = 5,
                                                   .seed = 9,
                                                   .on_step = [&](const StepReport& r) { reports.push_back(r); },
                                                   .keep_state = true});
    ASSERT_EQ(reports.size(), 5u);
    for (std::size_t s = 0; s < 5; ++s) {
        EXPECT_EQ(reports[s].step, static_cast<std::int64_t>(s));
        EXPECT_DOUBLE_EQ(reports[s].loss, expected_loss(program, 9, static_cast<std::int64_t>(s)));
        EXPECT_GT(reports[s].duration.value, 0);
    }
    EXPECT_TRUE(result.state.empty());  // no parameters
    EXPECT_EQ(result.trace.kind, "measured");
    EXPECT_GT(result.trace.peak_resident.value, 1 << 20);
    ASSERT_EQ(result.trace.ranks.size(), 4u);
}

TEST(Runtime, TheTraceTellsWhatHappened) {
    const Program program = toy_program();
    const KernelTable kernels = toy_kernels();
    const Trace trace = run_program(program, {.kernels = &kernels, .steps = 2}).trace;
    for (const RankTrace& rank : trace.ranks) {
        const StageProgram& stage = program.stages[static_cast<std::size_t>(rank.stage)];
        EXPECT_EQ(rank.stage, rank.rank / 2);
        ASSERT_EQ(rank.steps.size(), 2u);
        for (const RankStep& step : rank.steps) {
            EXPECT_EQ(step.spans.size(), rank.stage == 0 ? 7u : 5u);
            std::map<std::int32_t, Span> by_instruction;
            for (const Span& s : step.spans) {
                EXPECT_GE(s.start.value, 0);
                EXPECT_LE(s.start, s.end);
                EXPECT_LE(s.end, step.duration);
                by_instruction[s.instruction] = s;
            }
            // Waits hold: an instruction starts after those that it waits for.
            for (const auto& [id, span] : by_instruction) {
                const Instruction& i = stage.instructions[static_cast<std::size_t>(id)];
                for (std::size_t w = 0; w < i.waits; ++w)
                    EXPECT_LE(by_instruction.at(i.wait[w].instruction).end, span.start);
            }
        }
        EXPECT_EQ(rank.allocated.at("communication"), stage.region_bytes[7]);
    }
    EXPECT_EQ(trace.ranks[0].wire,
              (WireCount{{"data.all_reduce", Bytes{8 * tokens}}, {"pipeline.send", Bytes{8 * tokens}}}));
    // One element over two ranks: one of them reduces it and gives it back.
    EXPECT_EQ(trace.ranks[2].wire.at("data.all_reduce") + trace.ranks[3].wire.at("data.all_reduce"), Bytes{16});
    // Gradients stand for good, and the batch and `a` at once.
    EXPECT_EQ(trace.ranks[0].live_peak, Bytes{8 * tokens + 4 * tokens + 8 * tokens});
}

TEST(Runtime, AFailingKernelNamesRankAndInstruction) {
    const Program program = toy_program();
    KernelTable kernels = toy_kernels();
    kernels.accumulate = [](const AccumulateArgs&, const KernelContext&) { throw RunError("out of luck"); };
    const auto start = std::chrono::steady_clock::now();
    try {
        run_program(program, {.kernels = &kernels, .steps = 3});
        FAIL() << "the error was lost";
    } catch (const RunError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("instruction 2 (accumulate on compute): out of luck"), std::string::npos) << text;
        EXPECT_TRUE(text.rfind("rank 2 failed", 0) == 0 || text.rfind("rank 3 failed", 0) == 0) << text;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Runtime, AMissingMessageIsNamedByTheWatchdog) {
    Program program = toy_program();
    for (Instruction& i : program.stages[0].instructions)
        if (i.kind == Kind::send) i.kind = Kind::record;
    const KernelTable kernels = toy_kernels();
    try {
        run_program(program, {.kernels = &kernels, .steps = 1, .watchdog = std::chrono::milliseconds(300)});
        FAIL() << "it hung, but ended";
    } catch (const RunError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("nothing moved"), std::string::npos) << text;
    }
}

TEST(Runtime, BookkeepingIsChecked) {
    Program program = toy_program();
    for (Instruction& i : program.stages[0].instructions)
        if (i.kind == Kind::free) i.kind = Kind::alloc;
    const KernelTable kernels = toy_kernels();
    EXPECT_THROW(run_program(program, {.kernels = &kernels}), RunError);
}

TEST(Runtime, StreamsOverlap) {
    // A slow kernel on `compute` and a slow one on `reduce` together take the time of one.
    Program program;
    program.grid = {};
    program.micro_batch_size = program.sequence_length = program.microbatches = program.vocabulary = 1;
    StageProgram stage;
    Builder b(stage);
    const auto x = b.buffer("x", DType::fp64, 1, Region::transients);
    b.add(Kind::kernel, Stream::compute, {x, x});
    b.kernel(CastArgs{.elements = 1});
    const auto other = b.add(Kind::kernel, Stream::reduce, {x, x});
    b.kernel(CastArgs{.elements = 1});
    b.add(Kind::step_end, Stream::compute, {}, {other});
    b.done();
    program.stages = {stage};
    KernelTable kernels{};
    kernels.cast = [](const CastArgs&, const KernelContext&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    const RunResult result = run_program(program, {.kernels = &kernels});
    const double duration = seconds(result.trace.ranks[0].steps[0].duration);
    EXPECT_GE(duration, 0.05);
    EXPECT_LT(duration, 0.09);
}

TEST(Trace, SurvivesAFile) {
    const Program program = toy_program();
    const KernelTable kernels = toy_kernels();
    const Trace trace = run_program(program, {.kernels = &kernels, .steps = 2}).trace;
    const std::string text = trace_to_json(trace).dump();
    const Trace back = trace_from_json(Json::parse(text, "trace"));
    EXPECT_EQ(back.kind, trace.kind);
    EXPECT_EQ(back.program, fingerprint(program));
    EXPECT_EQ(back.peak_resident, trace.peak_resident);
    ASSERT_EQ(back.ranks.size(), trace.ranks.size());
    for (std::size_t r = 0; r < back.ranks.size(); ++r) {
        EXPECT_EQ(back.ranks[r].steps, trace.ranks[r].steps);
        EXPECT_EQ(back.ranks[r].wire, trace.ranks[r].wire);
        EXPECT_EQ(back.ranks[r].allocated, trace.ranks[r].allocated);
        EXPECT_EQ(back.ranks[r].live_peak, trace.ranks[r].live_peak);
    }
    EXPECT_EQ(trace_to_json(back).dump(), text);
}

}  // namespace
}  // namespace foretrain
