#include "tests/reports/support/examples.h"

namespace foretrain::examples {

namespace {

Bytes of_gib(std::int64_t n) { return Bytes{n * GiB}; }

Instruction make(InstructionKind kind, Stream stream) {
    Instruction i;
    i.kind = kind;
    i.stream = stream;
    return i;
}

Instruction gemm(std::int32_t microbatch) {
    Instruction i = make(InstructionKind::kernel, Stream::compute);
    i.kernel = 0;
    i.section = 0;
    i.microbatch = microbatch;
    return i;
}

Instruction message(InstructionKind kind, Stream stream, std::int32_t peer) {
    Instruction i = make(kind, stream);
    i.axis = Axis::pipeline;
    i.peer = peer;
    i.count = 100;
    i.microbatch = 0;
    return i;
}

Instruction reduction() {
    Instruction i = make(InstructionKind::all_reduce, Stream::reduce);
    i.axis = Axis::data;
    i.count = 6;
    return i;
}

Time us(double t) { return from_microseconds(t); }

// One step from the durations of instructions 0, 1 and 2, one after the other.
RankStep step(double first, double second, double third, double loss) {
    RankStep s;
    s.duration = us(first + second + third);
    s.spans = {
        {0, us(0), us(first)}, {1, us(first), us(first + second)}, {2, us(first + second), us(first + second + third)}};
    s.loss = loss;
    return s;
}

RankTrace measured_rank(std::int64_t rank, RankStep usual) {
    RankTrace t;
    t.rank = rank;
    t.stage = rank / 2;
    RankStep slow = usual;
    slow.duration = 2 * slow.duration;
    for (Span& span : slow.spans) span.end = span.start + 2 * (span.end - span.start);
    if (usual.loss > 0) slow.loss = usual.loss + 1;
    t.steps = {slow, usual, usual};
    // An all-reduce of 6 elements between two: 3 to reduce, 3 to give out, 4 bytes each.
    t.wire = {{wire_key(Axis::data, InstructionKind::all_reduce), Bytes{24}}};
    if (t.stage == 0) t.wire[wire_key(Axis::pipeline, InstructionKind::send)] = Bytes{400};
    t.allocated = {{"weights", Bytes{1024}}, {"activations", Bytes{512}}};
    return t;
}

}  // namespace

Prediction two_stages() {
    Prediction p;
    p.plan.model.name = "toy";
    p.plan.cluster.name = "bench";
    p.plan.cluster.devices_per_node = 8;
    p.plan.cluster.device.peak[DType::bf16] = FlopRate::tera(100);
    p.plan.framework = "foretrain";
    p.plan.training = {.global_batch_size = 16, .sequence_length = 1000, .precision = DType::bf16};
    p.plan.parallelism = {.tensor = 2, .pipeline = 2, .data = 2, .zero_stage = 1};
    p.step = from_seconds(2);
    StageTime first{.step = from_seconds(1.5), .forward = from_seconds(1.5)};
    StageTime second{.step = from_seconds(2),
                     .forward = from_seconds(0.5),
                     .backward = from_seconds(0.75),
                     .recompute = from_seconds(0.25),
                     .optimizer = from_seconds(0.125),
                     .tensor_exposed = from_seconds(0.125),
                     .data_exposed = from_seconds(0.05),
                     .pipeline_exposed = from_seconds(0.2),
                     .gemm = from_seconds(0.75),
                     .attention = from_seconds(0.25),
                     .head = from_seconds(0.15),
                     .bubble = from_seconds(0.125)};
    p.times = {first, second};
    StageMemory small{.weights = of_gib(1), .gradients = of_gib(1), .optimizer = of_gib(2), .reserved = of_gib(1)};
    StageMemory large = small;
    large.activations = of_gib(3);
    large.live_peak = of_gib(6);
    p.memory = {small, large};
    p.wire = {{{"tensor.all_reduce", Bytes{10}}, {"data.reduce_scatter", Bytes{20}}, {"pipeline.send", Bytes{5}}},
              {{"tensor.all_reduce", Bytes{7}}, {"data.all_gather", Bytes{30}}, {"embedding.all_reduce", Bytes{9}}}};
    p.capacity = of_gib(10);
    p.model_flops = 0.4 * 100e12 * 8 * 2;
    p.model_flops_causal = p.model_flops / 2;
    p.hardware_flops = p.model_flops * 1.25;
    return p;
}

Program message_and_reduction() {
    Program program;
    program.grid = {.tensor = 1, .context = 1, .data = 2, .pipeline = 2};
    program.microbatches = 1;
    StageProgram stage;
    stage.kernels = {GemmArgs{.m = 4, .n = 8, .k = 16}};
    stage.sections = {"layer0"};
    stage.region_bytes[static_cast<std::size_t>(Region::weights)] = Bytes{1024};
    stage.region_bytes[static_cast<std::size_t>(Region::activations)] = Bytes{512};
    const Instruction end = make(InstructionKind::step_end, Stream::compute);
    program.stages = {stage, stage};
    program.stages[1].stage = 1;
    program.stages[0].instructions = {gemm(0), message(InstructionKind::send, Stream::send_next, 1), reduction(), end};
    program.stages[1].instructions = {message(InstructionKind::recv, Stream::recv_prev, 0), gemm(0), reduction(), end};
    return program;
}

Trace simulated() {
    Trace trace{.kind = "simulated"};
    trace.ranks = {{.rank = 0, .stage = 0, .steps = {step(100, 10, 20, 0)}},
                   {.rank = 2, .stage = 1, .steps = {step(10, 100, 20, 0)}}};
    return trace;
}

Trace measured() {
    Trace trace{.kind = "measured"};
    trace.ranks = {measured_rank(0, step(110, 12, 70, 0)), measured_rank(1, step(110, 12, 25, 0)),
                   measured_rank(2, step(60, 110, 25, 9)), measured_rank(3, step(60, 110, 25, 9))};
    trace.peak_resident = Bytes{1 << 20};
    return trace;
}

}  // namespace foretrain::examples
