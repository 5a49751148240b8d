#include "exec/rank_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/context_split.h"
#include "base/error.h"
#include "plan/program/access.h"

namespace foretrain {

namespace {

bool is_bookkeeping(InstructionKind kind) { return kind == InstructionKind::alloc || kind == InstructionKind::free; }

Axis axis_of(const Instruction& i) { return is_message(i.kind) ? Axis::pipeline : i.axis; }

// Groups of one axis that are used from different streams must not be forced into one order, so each
// stream has its own. The two ends of a message are on different streams and share the sender's;
// the embedding's two stages may issue their sum from different ones and share one.
std::int64_t channel_of(const Instruction& i) {
    if (axis_of(i) == Axis::embedding) return stream_count;
    switch (i.stream) {
        case Stream::recv_prev: return static_cast<std::int64_t>(Stream::send_next);
        case Stream::recv_next: return static_cast<std::int64_t>(Stream::send_prev);
        default: return static_cast<std::int64_t>(i.stream);
    }
}

}  // namespace

std::string describe(const StageProgram& stage, std::int32_t instruction) {
    if (instruction < 0 || static_cast<std::size_t>(instruction) >= stage.instructions.size()) return "no instruction";
    const Instruction& i = stage.instructions[static_cast<std::size_t>(instruction)];
    std::string what(name_of(i.kind));
    if (i.kind == InstructionKind::kernel) {
        what = name_of(kind_of(stage.kernels[static_cast<std::size_t>(i.kernel)]));
    } else if (is_message(i.kind)) {
        what += fmt::format(" {} stage {}", i.kind == InstructionKind::send ? "to" : "from", i.peer);
    } else if (is_communication(i.kind)) {
        what += fmt::format(" {}", name_of(i.axis));
    }
    std::string text = fmt::format("instruction {} ({} on {}", instruction, what, name_of(i.stream));
    if (i.section >= 0) text += ", " + stage.sections[static_cast<std::size_t>(i.section)];
    if (i.microbatch >= 0) text += fmt::format(", microbatch {}", i.microbatch);
    if (i.chunk > 0) text += fmt::format(", chunk {}", i.chunk);
    return text + ")";
}

RankRun::RankRun(const Program& program, std::int64_t rank, std::uint64_t seed, Device& device, World& world)
    : program_(program),
      stage_(program.stages.at(static_cast<std::size_t>(program.grid.coordinate(rank, Axis::pipeline)))),
      rank_(rank),
      device_(device),
      world_(world),
      shard_{program.grid.tensor, program.grid.coordinate(rank, Axis::tensor),
             program.grid.coordinate(rank, Axis::shard)},
      data_rank_(program.grid.coordinate(rank, Axis::data)),
      context_rank_(program.grid.coordinate(rank, Axis::context)),
      data_(seed, program.vocabulary, program.sequence_length) {
    allocate();
    make_streams();
    make_events();
    join_groups();
    prepare_batches();
    initialise_weights(
        stage_, shard_, seed, [this](std::int32_t b) { return address_[static_cast<std::size_t>(b)]; }, device_);
}

void RankRun::allocate() {
    for (std::size_t r = 0; r < region_count; ++r) {
        const Bytes before = device_.allocated();
        if (stage_.region_bytes[r].value > 0) regions_[r] = device_.allocate(stage_.region_bytes[r]);
        allocated_[r] = device_.allocated() - before;
    }
    for (const Buffer& b : stage_.buffers) {
        const auto r = static_cast<std::size_t>(b.region);
        const Bytes place = b.offset + b.stride * program_.grid.coordinate(rank_, b.axis);
        FORETRAIN_CHECK(place.value >= 0 && place + b.bytes() <= allocated_[r], b.name + " lies outside its region");
        address_.push_back(regions_[r] + place.value);
    }
    for (const Instruction& i : stage_.instructions) {
        auto& addresses = operands_.emplace_back();
        for (std::size_t k = 0; k < i.operands; ++k)
            addresses[k] = i.operand[k] < 0 ? nullptr : address_.at(static_cast<std::size_t>(i.operand[k]));
    }
    live_.resize(stage_.buffers.size());
    live_bytes_ = live_peak_ = stage_.standing();
}

void RankRun::make_streams() {
    for (const Instruction& i : stage_.instructions) {
        DeviceStream*& stream = streams_[static_cast<std::size_t>(i.stream)];
        if (stream == nullptr && !is_bookkeeping(i.kind))
            stream = &device_.make_stream(fmt::format("{}.{}", rank_, name_of(i.stream)),
                                          i.stream == Stream::compute ? StreamUse::compute : StreamUse::communication);
        span_index_.push_back(leaves_span(i.kind) ? static_cast<std::int32_t>(spans_.size()) : -1);
        if (leaves_span(i.kind)) spans_.emplace_back();
    }
}

void RankRun::make_events() {
    events_.resize(stage_.instructions.size(), nullptr);
    for (const Instruction& i : stage_.instructions) {
        for (std::size_t w = 0; w < i.waits; ++w) {
            const auto awaited = static_cast<std::size_t>(i.wait[w].instruction);
            const Stream stream = stage_.instructions.at(awaited).stream;
            if (stream == i.stream || events_[awaited] != nullptr) continue;  // a stream is in order anyway
            if (streams_[static_cast<std::size_t>(stream)] == nullptr) continue;
            events_[awaited] = &device_.make_event();
        }
    }
}

void RankRun::join_groups() {
    for (const Instruction& i : stage_.instructions)
        communicator_.push_back(is_communication(i.kind) ? &joined(axis_of(i), channel_of(i)) : nullptr);
}

Communicator& RankRun::joined(Axis axis, std::int64_t channel) {
    for (const Joined& g : groups_)
        if (g.axis == axis && g.channel == channel) return *g.end;
    // Axes of equal members are still different groups, each with its own order.
    constexpr std::int64_t channels = stream_count + 1;
    auto end =
        world_.join(program_.grid.members(rank_, axis), rank_, static_cast<std::int64_t>(axis) * channels + channel);
    groups_.push_back({axis, channel, std::move(end)});
    return *groups_.back().end;
}

void RankRun::prepare_batches() {
    for (const Instruction& i : stage_.instructions) {
        auto& work = batches_.emplace_back();
        if (i.kind != InstructionKind::load_batch) continue;
        for (std::size_t which = 0; which < 2; ++which) {
            work[which] = [this, microbatch = i.microbatch, which](void* host) {
                read_batch(microbatch, which == 1, static_cast<std::int32_t*>(host));
            };
        }
    }
}

// Of each sample what this context rank holds of it.
void RankRun::read_batch(std::int64_t microbatch, bool targets, std::int32_t* out) const {
    const std::int64_t length = program_.sequence_length, ranks = program_.grid.context;
    const std::int64_t first = first_sample(program_, step_, microbatch, data_rank_);
    std::vector<std::int32_t> sample(static_cast<std::size_t>(length));
    for (std::int64_t j = 0; j < program_.micro_batch_size; ++j) {
        targets ? data_.targets(first + j, sample) : data_.tokens(first + j, sample);
        for (std::int64_t i = 0; i < length / ranks; ++i)
            *out++ = sample[static_cast<std::size_t>(position_in_sequence(i, length, ranks, context_rank_))];
    }
}

RankStep RankRun::step(std::int64_t number) {
    step_ = number;
    const auto count = static_cast<std::int32_t>(stage_.instructions.size());
    for (std::int32_t i = 0; i < count; ++i)
        if (Span* span = span_of(i)) *span = Span{.instruction = i, .start = {}, .end = {}};

    const Time start = device_.now();
    try {
        for (std::int32_t i = 0; i < count; ++i) issue(i);
    } catch (const std::exception& error) {
        // What was issued may wait for ranks that wait for what was not; it holds our addresses.
        world_.abort(rank_, error.what());
        device_.synchronize();
        throw;
    }
    device_.synchronize();

    RankStep result;
    for (Span& span : spans_) {
        span.start -= start;
        span.end -= start;
        const Instruction& i = stage_.instructions[static_cast<std::size_t>(span.instruction)];
        if (i.kind == InstructionKind::step_end) result.duration = std::max(result.duration, span.end);
    }
    result.spans = spans_;
    result.loss = mean_loss();
    return result;
}

Span* RankRun::span_of(std::int32_t index) {
    const std::int32_t span = span_index_[static_cast<std::size_t>(index)];
    return span < 0 ? nullptr : &spans_[static_cast<std::size_t>(span)];
}

void RankRun::issue(std::int32_t index) {
    const Instruction& i = stage_.instructions[static_cast<std::size_t>(index)];
    if (is_bookkeeping(i.kind)) keep_books(i);
    DeviceStream* stream = streams_[static_cast<std::size_t>(i.stream)];
    if (stream == nullptr) return;  // bookkeeping of a stream without work
    for (std::size_t w = 0; w < i.waits; ++w) {
        const auto awaited = static_cast<std::size_t>(i.wait[w].instruction);
        if (stage_.instructions[awaited].stream != i.stream && events_[awaited] != nullptr)
            stream->wait(*events_[awaited]);
    }
    if (Span* span = span_of(index)) {
        stream->begin(*span);
        issue_work(index, *stream);
        stream->end(*span);
    }
    if (DeviceEvent* event = events_[static_cast<std::size_t>(index)]) stream->record(*event);
}

void RankRun::issue_work(std::int32_t index, DeviceStream& stream) {
    const Instruction& i = stage_.instructions[static_cast<std::size_t>(index)];
    const auto bytes_of = [&](std::size_t which) { return buffer(i.operand[which]).bytes(); };
    switch (i.kind) {
        case InstructionKind::kernel: {
            const std::span<void* const> operands(operands_[static_cast<std::size_t>(index)].data(), i.operands);
            stream.kernel(stage_.kernels[static_cast<std::size_t>(i.kernel)], {.operand = operands,
                                                                               .tensor_rank = shard_.tensor_rank,
                                                                               .context_rank = context_rank_,
                                                                               .step = step_ + 1});
            return;
        }
        case InstructionKind::fill: stream.fill(operand(index, 0), bytes_of(0)); return;
        case InstructionKind::copy: stream.copy(operand(index, 1), operand(index, 0), bytes_of(1)); return;
        case InstructionKind::load_batch:
            for (std::size_t k = 0; k < i.operands; ++k)
                if (i.operand[k] >= 0)
                    stream.produce(operand(index, k), bytes_of(k), batches_[static_cast<std::size_t>(index)].at(k));
            return;
        case InstructionKind::step_end: return;
        default: break;
    }
    FORETRAIN_CHECK(is_communication(i.kind), fmt::format("{} is not lowered", name_of(i.kind)));
    issue_communication(index, stream);
}

void RankRun::issue_communication(std::int32_t index, DeviceStream& stream) {
    const Instruction& i = stage_.instructions[static_cast<std::size_t>(index)];
    Communicator& group = *communicator_[static_cast<std::size_t>(index)];
    void* a = operand(index, 0);
    switch (i.kind) {
        case InstructionKind::all_reduce: group.all_reduce(stream, a, i.count, i.type, i.reduction); return;
        case InstructionKind::reduce_scatter:
            group.reduce_scatter(stream, a, operand(index, 1), i.count, i.type, i.reduction);
            return;
        case InstructionKind::all_gather: group.all_gather(stream, a, operand(index, 1), i.count, i.type); return;
        case InstructionKind::all_to_all: group.all_to_all(stream, a, operand(index, 1), i.count, i.type); return;
        case InstructionKind::ring_shift: group.ring_shift(stream, a, operand(index, 1), i.count, i.type); return;
        case InstructionKind::send: group.send(stream, a, i.count, i.type, i.peer); return;
        case InstructionKind::recv: group.recv(stream, a, i.count, i.type, i.peer); return;
        default: return;
    }
}

void RankRun::keep_books(const Instruction& i) {
    const Buffer& b = buffer(i.operand[0]);
    const auto index = static_cast<std::size_t>(i.operand[0]);
    const bool begins = i.kind == InstructionKind::alloc;
    FORETRAIN_CHECK(live_[index] != begins, fmt::format("{} of {} twice", name_of(i.kind), b.name));
    live_[index] = begins;
    live_bytes_ += begins ? b.bytes() : Bytes{-b.bytes().value};
    live_peak_ = std::max(live_peak_, live_bytes_);
    FORETRAIN_CHECK(live_peak_ <= stage_.arena(), "more is live than the arena holds");
}

double RankRun::mean_loss() {
    if (stage_.loss < 0) return 0;
    double sum = 0;
    device_.read(&sum, address_[static_cast<std::size_t>(stage_.loss)], Bytes{sizeof(double)});
    const std::int64_t samples = program_.micro_batch_size * program_.microbatches * program_.grid.data;
    return sum / static_cast<double>(samples * program_.sequence_length);
}

WireCount RankRun::wire() const {
    WireCount count;
    for (const Joined& g : groups_)
        for (const InstructionKind kind :
             {InstructionKind::all_reduce, InstructionKind::reduce_scatter, InstructionKind::all_gather,
              InstructionKind::all_to_all, InstructionKind::ring_shift, InstructionKind::send})
            if (const Bytes bytes = g.end->wire(kind); bytes.value > 0) count[wire_key(g.axis, kind)] += bytes;
    return count;
}

RankTrace RankRun::trace() const {
    RankTrace trace;
    trace.rank = rank_;
    trace.stage = stage_.stage;
    for (std::size_t r = 0; r < region_count; ++r)
        trace.allocated[std::string(name_of(static_cast<Region>(r)))] = allocated_[r];
    trace.live_peak = live_peak_;
    return trace;
}

void RankRun::add_state(StateCollector& state) {
    state.add(
        rank_, stage_, shard_, [this](std::int32_t b) { return address_[static_cast<std::size_t>(b)]; }, device_);
}

}  // namespace foretrain
