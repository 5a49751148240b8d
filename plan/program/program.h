// The program: what one training step does on every rank, complete enough that an engine which
// knows nothing of models can run it, and a simulator which knows nothing of arithmetic can time it.
//
// There is one StageProgram per pipeline stage; all ranks of a stage run the same one. What differs
// between them (shards, token ranges) is an address that depends on the rank's coordinate, stated
// in the buffer, or a tensor or context rank that the kernel is given.
//
// Streams run in order; an instruction starts when its stream reaches it and all its waits are
// complete. A wait names an earlier instruction of the same stage and one of its streams (a chunk
// pass runs on several). Collectives meet the group's other members; Send and Recv meet each other,
// matched in stream order.
//
// The same type holds both levels: at chunk level (ForwardChunk, BackwardChunk, OptimizerStep name
// a body) it is what `estimate` folds; lowered, the bodies are unrolled into kernels.
//
//   Program program = lower(make_skeleton(plan));        // plan/program/lower.h
//   std::cout << to_text(program);                       // plan/program/text.h; parses back
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/units.h"
#include "plan/program/kernel_args.h"
#include "plan/rank_grid.h"

namespace foretrain {

// FIFO queues of a rank. Pipeline messages have one per direction and neighbour, so that an order
// that both sides share is never held up by a message of the other kind. Chunk passes run on the first
// `body_streams`. On `host` stands what the host of another framework takes to enqueue the rest; our own
// engine's programs have nothing there.
enum class Stream : std::uint8_t { compute, host, gather, reduce, context, send_next, recv_prev, send_prev, recv_next };
constexpr int stream_count = 9;
constexpr std::size_t body_streams = 5;
std::string_view name_of(Stream stream);

enum class InstructionKind : std::uint8_t {
    // chunk level: these name a body
    forward_chunk,
    backward_chunk,
    optimizer_step,
    // kernels and memory
    kernel,
    fill,        // operand 0 = zero
    copy,        // operand 1 = operand 0
    load_batch,  // operands: tokens, targets (int32) of this microbatch
    alloc,       // operand 0 begins to live
    free,        // operand 0 ends
    // communication
    all_reduce,      // operand 0, in place
    reduce_scatter,  // operand 0 (group size * count) -> operand 1 (count)
    all_gather,      // operand 0 (count) -> operand 1 (group size * count)
    all_to_all,      // operand 0 -> operand 1, both (group size, count): row j of member i is row i of member j
    ring_shift,      // operand 0 (count) -> the next member's operand 1 (count), around the group
    send,            // operand 0 to `peer`
    recv,            // operand 0 from `peer`
    // what other frameworks cost besides: predicted, never executed
    launch,  // the host enqueues a layer: `count` picoseconds on its stream
    stall,   // nothing runs on its stream: see StallFor
    // order
    record,    // completes when its stream gets there
    wait,      // holds its stream until its waits are complete
    step_end,  // the step is over on this rank when this completes
};
std::string_view name_of(InstructionKind kind);

enum class Reduction : std::uint8_t { sum, maximum };

struct Wait {
    std::int32_t instruction = -1;  // index in the same stage's list
    Stream stream = Stream::compute;
    bool operator==(const Wait&) const = default;
};

// Plain data of fixed size; unused fields keep their defaults. An instruction's id is its index.
struct Instruction {
    static constexpr int max_operands = 8;
    static constexpr int max_waits = 6;
    static constexpr std::int16_t whole = 1000;

    InstructionKind kind = InstructionKind::kernel;
    Stream stream = Stream::compute;
    Axis axis = Axis::none;  // group of a collective
    Reduction reduction = Reduction::sum;
    DType type = DType::fp32;                        // of those `count` elements
    std::uint8_t operands = 0;                       // used entries of `operand`
    std::uint8_t waits = 0;                          // used entries of `wait`
    InstructionKind like = InstructionKind::kernel;  // the collective that a stall takes a share of; kernel: none
    std::int16_t chunk = 0;                          // model chunk of the stage
    std::int16_t share = whole;    // per mille of what a collective takes, for which it holds its stream
    std::int32_t microbatch = -1;  // -1: of the whole step
    std::int32_t peer = -1;        // stage of the other side of a message
    std::int32_t body = -1;        // index in StageProgram::bodies, chunk level only
    std::int32_t kernel = -1;      // index in StageProgram::kernels
    std::int32_t section = -1;     // index in StageProgram::sections: where in the model
    std::int64_t count = 0;        // elements of a collective's smaller side, a message, fill, copy or load_batch;
                                   // picoseconds of a launch or stall
    std::array<std::int32_t, max_operands> operand{};  // indices in StageProgram::buffers
    std::array<Wait, max_waits> wait{};

    bool operator==(const Instruction&) const = default;
    void add_wait(Wait w);  // ignores a duplicate
    void add_operand(std::int32_t buffer);
};

// Why a stall's stream stands still, and for how long.
enum class StallFor : std::uint8_t {
    pause,    // whatever happens meanwhile: `count` picoseconds
    message,  // on the pipeline's axis: `count` picoseconds, or a `share` of what a message `like` it takes
    beside,   // as much as computing lost to a collective `like` it: at most a `share` of that (sim/durations.h)
};
// Precondition: a stall.
StallFor stall_for(const Instruction& stall);

// What a run of memory is for. The order is the layout in the arena.
enum class Region : std::uint8_t {
    weights,
    gradients,
    optimizer,
    activations,    // slots: the most microbatches in flight times a chunk's saved tensors
    transients,     // one body's working set
    gathered,       // ring of gathered parameters (ZeRO-3)
    staging,        // ring of gradients on their way to their shard (ZeRO-2, ZeRO-3)
    communication,  // pipeline messages
};
constexpr int region_count = 8;
std::string_view name_of(Region region);

// Whether the region's tensors begin and end within a step, by alloc and free; the others' stand all
// through it.
constexpr bool has_life(Region r) {
    return r == Region::activations || r == Region::transients || r == Region::communication;
}

// A tensor's place in its rank's arena: address = region base + offset + coordinate(axis) * stride.
struct Buffer {
    std::string name;
    Region region = Region::transients;
    DType type = DType::fp32;
    Axis axis = Axis::none;  // the coordinate that shifts the address: a rank's own shard of a whole
    std::int64_t elements = 0;
    Bytes offset;
    Bytes stride;
    bool operator==(const Buffer&) const = default;
    Bytes bytes() const { return Bytes{elements * size_of(type)}; }
};

// A parameter tensor of this stage and where it stands: what the engine needs to set initial values
// and to compare plans. Element e of the local tensor (outer, sharded/t, inner) stands at
// unit_offset + e of its unit's flat run.
struct Parameter {
    std::string name;
    std::int64_t outer = 1, sharded = 1, inner = 1;  // global view, see models/parameters.h
    bool replicated = false;                         // over the tensor group
    std::int8_t init = 0;                            // Init of models/parameters.h
    double init_std = 0;
    std::int32_t unit = 0;
    std::int64_t unit_offset = 0;  // elements
    bool operator==(const Parameter&) const = default;
};

// A run of parameters that is reduced, sharded and gathered as one. `elements` is padded to a
// multiple of the replicas that share it out. Buffers are -1 where the plan has none.
struct Unit {
    std::string name;
    std::int64_t elements = 0;
    std::int32_t weight = -1;        // whole (ZeRO-0..2), else -1
    std::int32_t weight_shard = -1;  // this replica's part (ZeRO-1..3); an alias of part of `weight` below 3
    std::int32_t gradient = -1;      // whole (ZeRO-0, 1)
    std::int32_t gradient_shard = -1;
    std::int32_t momentum = -1, variance = -1, master = -1;
    std::int32_t tied_to = -1;  // the unit whose weight this one uses (a tied head on the embedding's stage)
    bool has_gradient() const { return gradient >= 0 || gradient_shard >= 0; }  // of its own
    bool operator==(const Unit&) const = default;
};

struct StageProgram {
    std::int32_t stage = 0;
    std::vector<Buffer> buffers;
    std::vector<KernelArgs> kernels;    // each distinct call once
    std::vector<std::string> sections;  // "layer3.attention", "head", ...
    std::vector<std::string> bodies;    // names of the bodies that chunk-level instructions refer to
    std::vector<Unit> units;
    std::vector<Parameter> parameters;
    std::vector<Instruction> instructions;
    std::array<Bytes, region_count> region_base{};
    std::array<Bytes, region_count> region_bytes{};
    std::int32_t loss = -1;  // buffer with the sum of token losses (fp64), last stage only

    Bytes arena() const;     // sum of the regions
    Bytes standing() const;  // of those whose tensors stand all through the step
    bool operator==(const StageProgram&) const = default;
};

struct Program {
    RankGrid grid;
    std::int64_t micro_batch_size = 0;
    std::int64_t sequence_length = 0;
    std::int64_t microbatches = 0;
    std::int64_t vocabulary = 0;
    DType type = DType::fp32;
    std::vector<StageProgram> stages;
    bool operator==(const Program&) const = default;
};

// A collective on a stream: operand 0, and for all but all_reduce operand 1, as above.
Instruction collective(InstructionKind kind, Stream stream, Axis axis, DType type, std::int64_t count,
                       std::initializer_list<std::int32_t> operands);

// Bytes that member `index` of a group of `size` puts on the wire for one collective or message, by
// the volume-optimal (ring) algorithm: all-reduce hands each rank one of `size` nearly equal runs of
// the elements to reduce and to give out. See block_range.
Bytes wire_bytes(const Instruction& instruction, std::int64_t size, std::int64_t index);

// Run `index` of `size` of `count` elements: [first, second).
std::pair<std::int64_t, std::int64_t> block_range(std::int64_t count, std::int64_t size, std::int64_t index);

}  // namespace foretrain
