#include "plan/program/text.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "plan/program/lower.h"
#include "plan/program/verify.h"
#include "tests/plan/support/small_plans.h"

namespace foretrain {
namespace {

// Two stages of two passes, written by hand: what a line looks like is part of the promise.
const char* const by_hand =
    R"(program format=foretrain.program/1 pipeline=2 micro_batch_size=1 sequence_length=4 microbatches=1 vocabulary=8 type=fp32

stage 0
region communication bytes=512
kernel k0 gelu_forward rows=4 width=2 type=fp32
section s0 layer0.mlp
buffer b0 output#0 region=communication type=fp32 elements=8
buffer b1 "two words" region=communication type=fp32 elements=8 offset=256
%0 alloc operands=output#0
%1 alloc operands=~1
%2 fill writes=~1
%3 kernel gelu_forward.k0 mb=0 at=layer0.mlp reads=~1 writes=output#0
%4 send stream=send_next count=8 peer=1 mb=0 reads=output#0 waits=%3.compute
%5 free operands=output#0
%6 free operands=~1
%7 step_end waits=%4.send_next

stage 1
region communication bytes=256
buffer b0 input#0 region=communication type=fp32 elements=8
%0 alloc operands=input#0
%1 recv stream=recv_prev count=8 peer=0 mb=0 writes=input#0
%2 free operands=input#0
%3 step_end waits=%1.recv_prev
)";

UserErrorText error_of(const std::string& text) {
    try {
        program_from_text(text);
    } catch (const UserError& e) {
        return e.text();
    }
    ADD_FAILURE() << "no error in:\n" << text;
    return {};
}

std::string with(const std::string& from, const std::string& to) {
    std::string text = by_hand;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(ProgramText, WrittenByHandReadsAndPrintsTheSame) {
    const Program program = program_from_text(by_hand);
    EXPECT_EQ(to_text(program), by_hand);
    EXPECT_EQ(verify(program).value_or(""), "");
    EXPECT_EQ(program.stages[0].buffers[1].name, "two words");
    EXPECT_EQ(to_text(program.stages[1].instructions[1], program.stages[1]),
              "recv stream=recv_prev count=8 peer=0 mb=0 writes=input#0");
}

TEST(ProgramText, CommentsAndBlankLinesSayNothing) {
    const std::string text =
        with("%5 free operands=output#0", "\n  # a comment\n\t%5  free operands=output#0  # one more");
    EXPECT_EQ(program_from_text(text), program_from_text(by_hand));
    EXPECT_EQ(program_from_text(with("type=fp32\nsection", "type=fp32 # why\r\nsection")), program_from_text(by_hand));
}

void expect_round_trip(const Program& program, const std::string& name) {
    const std::string text = to_text(program);
    const Program back = program_from_text(text);
    EXPECT_TRUE(back == program) << name;
    EXPECT_EQ(to_text(back), text) << name;
}

TEST(ProgramText, EveryPlanReadsBackExactly) {
    const std::vector<Plan> plans = testing::varied_plans();
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Skeleton skeleton = make_skeleton(plans[i]);
        expect_round_trip(unroll(skeleton), testing::plan_name(plans[i]));
        if (i % 3 == 0) expect_round_trip(lower(skeleton), testing::plan_name(plans[i]));
    }
}

TEST(ProgramText, OddNamesAndEveryFieldReadBack) {
    Program program;
    program.grid = {2, 3, 4, 5};
    program.type = DType::fp8;
    StageProgram& s = program.stages.emplace_back();
    s.stage = -7;
    s.region_base[3] = Bytes{5};
    for (const char* name : {"", "a", "a", "a~1", "b0", "#x", "q\"\\\n\x01\xff", "a,b", "a=b", "~", "%0"})
        s.buffers.push_back({name, Region::staging, DType::int32, Axis::data, 3, Bytes{-4}, Bytes{1} * INT64_MAX});
    s.sections = {"", "same", "same", "other"};
    s.bodies = {"x y", "x y"};
    s.units = {{"u v", 3, 0, 1, 2, 3, 4, 5, 6, 0}, {}};
    s.parameters = {{"p", 2, 3, 4, true, 2, 0.1, 1, 9}, {"", 1, 1, 1, false, -3, -1e-300, 0, 0}};
    s.loss = 2;
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(s.buffers.size()); ++b) {
        Instruction i;
        i.kind = static_cast<InstructionKind>(b);
        i.stream = static_cast<Stream>(b % stream_count);
        i.axis = static_cast<Axis>(b % 6);
        i.reduction = static_cast<Reduction>(b % 2);
        i.type = static_cast<DType>(b % 6);
        i.chunk = static_cast<std::int16_t>(b);
        i.microbatch = b * 1000;
        i.peer = b - 2;
        i.body = b % 2;
        i.kernel = b - 1;
        i.section = b % 4;
        i.like = static_cast<InstructionKind>(3 + b);
        i.share = static_cast<std::int16_t>(1000 - b);
        i.count = INT64_MAX - b;
        for (int o = 0; o < b % 9; ++o) i.add_operand((b + o) % 11);
        for (std::int32_t w = 0; w < b % 7; ++w) i.add_wait({w, static_cast<Stream>(w)});
        s.instructions.push_back(i);
    }
    EXPECT_EQ(program_from_text(to_text(program)), program) << to_text(program);
    EXPECT_EQ(program_from_text(to_text(Program{})), Program{});
}

TEST(ProgramText, ErrorsNameLineFoundExpectedAndSuggestion) {
    struct Case {
        const char* from;
        const char* to;
        const char* field;
        const char* found;
        const char* suggestion;
    };
    const Case cases[] = {
        {"%2 fill", "%2 fil", "line 11", "fil", "fill"},
        {"stream=send_next", "stream=send_nxt", "line 13", "send_nxt", "send_next"},
        {"reads=~1", "reads=outptu#0", "line 12", "outptu#0", "output#0"},
        {"count=8", "cuont=8", "line 13", "\"cuont=\"", "count"},
        {"count=8", "count=99999999999999999999", "line 13", "99999999999999999999", ""},
        {"%3 kernel", "%4 kernel", "line 12", "\"%4\"", ""},
        {"gelu_forward.k0", "gelu_forward.k1", "line 12", "gelu_forward.k1", ""},
        {"gelu_forward.k0", "gemm.k0", "line 12", "gemm.k0", ""},
        {"rows=4 width", "rows=4 widht", "line 5: gelu_forward", "\"widht\"", "width"},
        {"rows=4", "rows=4000000000000000000", "line 5: gelu_forward", "", ""},
        {"region communication", "region comunication", "line 4", "comunication", "communication"},
        {"waits=%3.compute", "waits=%3", "line 13", "\"%3\"", ""},
        {"waits=%3.compute", "waits=%0.gather,%0.gather,%0.gather,%0.gather,%0.gather,%0.gather,%0.gather", "line 13",
         "\"7 waits\"", ""},
        {"peer=1", "peer=1 peer=1", "line 13", "\"peer=\"", ""},
        {"reads=~1 writes=output#0", "reads=~1,~1", "line 12", "\"too few of them\"", ""},
        {"reads=~1 writes=output#0", "reads=~1", "line 12", "\"1 buffers\"", ""},
        {"\"two words\"", "\"two words", "line 8", "\"the end of the line\"", ""},
        {"program format", "programme format", "line 1", "programme", "program"},
        {"/1", "/2", "line 1", "foretrain.program/2", ""},
        {"stage 1", "stage one", "line 18", "one", ""},
    };
    for (const Case& c : cases) {
        const UserErrorText e = error_of(with(c.from, c.to));
        EXPECT_EQ(e.file, "<program text>") << c.to;
        EXPECT_EQ(e.field, c.field) << c.to;
        EXPECT_NE(e.found.find(c.found), std::string::npos) << c.to << ": " << e.found;
        EXPECT_EQ(e.suggestion, c.suggestion) << c.to;
        EXPECT_FALSE(e.expected.empty()) << c.to;
    }
    EXPECT_EQ(error_of("").found, "\"the end of the text\"");
}

// Random damage is either read or refused; whatever is read can be printed and verified.
TEST(ProgramText, DamageNeverCrashes) {
    std::vector<std::string> texts{by_hand};
    Parallelism p{.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true, .zero_stage = 3};
    Plan plan = testing::small_plan(testing::small_gpt(true), p);
    plan.training.global_batch_size = 2;
    plan.model.layers = 2;
    texts.push_back(to_text(lower(make_skeleton(plan))));
    std::mt19937 random(20240601);
    const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    const std::string junk = "0123456789=%.,~#\"\\-abk \n\t\xff";
    int read = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text = texts[round % 20 == 0 ? 1 : 0];
        for (std::size_t changes = 1 + below(2); changes > 0; --changes) {
            const std::size_t at = below(text.size());
            switch (below(4)) {
                case 0: text[at] = junk[below(text[at] >= '0' && text[at] <= '9' ? 10 : junk.size())]; break;
                case 1: text.insert(at, 1, junk[below(junk.size())]); break;
                case 2: text.erase(at, 1 + below(8)); break;
                default: text.insert(at, text.substr(below(text.size()), 1 + below(30))); break;
            }
        }
        try {
            const Program program = program_from_text(text);
            ++read;
            EXPECT_EQ(program_from_text(to_text(program)), program);
            verify(program);
        } catch (const UserError&) {
        }
    }
    EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace foretrain
