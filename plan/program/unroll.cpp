// From the skeleton to one stage's chunk-level instructions.
#include <algorithm>

#include "base/error.h"
#include "base/index.h"
#include "plan/program/skeleton.h"

namespace foretrain {

namespace {

// What of a chunk was emitted last, by microbatch: -1 for what was not yet.
struct ChunkTrail {
    explicit ChunkTrail(std::int64_t microbatches)
        : backward(at(microbatches), -1), sent(at(microbatches), -1), returned(at(microbatches), -1) {}
    std::vector<std::int32_t> backward, sent, returned;
    std::int64_t backwards = 0;  // so far
};

class Unroller {
public:
    Unroller(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out, bool lifetimes)
        : skeleton_(skeleton),
          s_(skeleton.stages[stage]),
          next_stage_(static_cast<std::int32_t>((stage + 1) % skeleton.stages.size())),
          previous_stage_(static_cast<std::int32_t>((stage + skeleton.stages.size() - 1) % skeleton.stages.size())),
          out_(out),
          lifetimes_(lifetimes),
          trails_(s_.chunks.size(), ChunkTrail(skeleton.listed)) {}

    void run() {
        out_.clear();
        if (s_.chunks.back().last()) clear_loss();
        for (const Pass& pass : s_.order) {
            chunk_ = pass.chunk;
            if (pass.backward)
                backward(pass.microbatch);
            else
                forward(pass.microbatch);
        }
        tail();
    }

private:
    const ChunkSkeleton& chunk() const { return s_.chunks[at(chunk_)]; }
    ChunkTrail& trail() { return trails_[at(chunk_)]; }

    std::int32_t emit(Instruction i) {
        i.chunk = static_cast<std::int16_t>(chunk_);
        out_.push_back(i);
        return static_cast<std::int32_t>(out_.size()) - 1;
    }

    void lifetime(InstructionKind kind, Home home, std::int32_t microbatch) {
        if (!lifetimes_) return;
        Instruction i;
        i.kind = kind;
        i.microbatch = microbatch;
        i.add_operand(chunk().ring_buffer(home, microbatch));
        emit(i);
    }

    std::int32_t message(InstructionKind kind, Stream stream, Home home, std::int32_t microbatch, Wait wait) {
        Instruction i;
        i.kind = kind;
        i.stream = stream;
        i.axis = Axis::pipeline;
        i.type = skeleton_.context.types.weight;
        i.microbatch = microbatch;
        i.peer = stream == Stream::send_next || stream == Stream::recv_next ? next_stage_ : previous_stage_;
        i.count = skeleton_.context.boundary_elements();
        i.add_operand(chunk().ring_buffer(home, microbatch));
        if (wait.instruction >= 0) i.add_wait(wait);
        const bool early = kind == InstructionKind::send || skeleton_.plan.parallelism.overlap.pipeline;
        if (!early && last_pass_ >= 0) i.add_wait({last_pass_, Stream::compute});
        return emit(i);
    }

    // Without overlap nothing is computed while a message is under way: it is received only once the pass
    // before is through, and the next pass waits for those that this stage has sent.
    void wait_for_sent(Instruction& pass) const {
        if (skeleton_.plan.parallelism.overlap.pipeline) return;
        if (last_sent_ >= 0) pass.add_wait({last_sent_, Stream::send_next});
        if (last_returned_ >= 0) pass.add_wait({last_returned_, Stream::send_prev});
    }

    Instruction pass(InstructionKind kind, std::int32_t body, std::int32_t microbatch) {
        Instruction i;
        i.kind = kind;
        i.body = chunk().body(body);
        i.microbatch = microbatch;
        if (unhidden_ >= 0) i.add_wait({unhidden_, Stream::reduce});
        unhidden_ = -1;
        return i;
    }

    void clear_loss() {
        chunk_ = static_cast<std::int32_t>(s_.chunks.size()) - 1;
        Instruction i;
        i.kind = InstructionKind::fill;
        i.type = DType::fp64;
        i.count = 1;
        i.add_operand(loss());
        emit(i);
    }

    std::int32_t loss() const { return chunk().first_buffer + chunk().stage->loss; }

    // The pass that used a ring's entry before microbatch k does, or -1.
    std::int32_t previous(const std::vector<std::int32_t>& done, Home home, std::int64_t k) const {
        const std::int64_t before = k - chunk().ring(home).entries;
        return before < 0 ? -1 : done[at(before)];
    }

    void forward(std::int32_t k) {
        const bool first = chunk().first(), last = chunk().last();
        Instruction f = pass(InstructionKind::forward_chunk, Stage::forward, k);
        if (!first) {
            lifetime(InstructionKind::alloc, Home::input, k);
            const std::int32_t reader = previous(trail().backward, Home::input, k);
            f.add_wait({message(InstructionKind::recv, Stream::recv_prev, Home::input, k, {reader, Stream::compute}),
                        Stream::recv_prev});
        }
        if (!last) {
            lifetime(InstructionKind::alloc, Home::output, k);
            const std::int32_t sender = previous(trail().sent, Home::output, k);
            if (sender >= 0) f.add_wait({sender, Stream::send_next});
        }
        wait_for_sent(f);
        const std::int32_t done = last_pass_ = emit(f);
        if (last) return;
        last_sent_ = trail().sent[at(k)] =
            message(InstructionKind::send, Stream::send_next, Home::output, k, {done, Stream::compute});
        lifetime(InstructionKind::free, Home::output, k);
    }

    void backward(std::int32_t k) {
        const bool first = chunk().first(), last = chunk().last();
        const bool final_pass = ++trail().backwards == skeleton_.listed;
        Instruction b = pass(InstructionKind::backward_chunk, final_pass ? Stage::backward_last : Stage::backward, k);
        if (!last) {
            lifetime(InstructionKind::alloc, Home::output_gradient, k);
            const std::int32_t reader = previous(trail().backward, Home::output_gradient, k);
            b.add_wait(
                {message(InstructionKind::recv, Stream::recv_next, Home::output_gradient, k, {reader, Stream::compute}),
                 Stream::recv_next});
        }
        if (!first) {
            lifetime(InstructionKind::alloc, Home::input_gradient, k);
            const std::int32_t sender = previous(trail().returned, Home::input_gradient, k);
            if (sender >= 0) b.add_wait({sender, Stream::send_prev});
        }
        wait_for_sent(b);
        const std::int32_t done = trail().backward[at(k)] = last_backward_ = last_pass_ = emit(b);
        // Without overlap no chunk computes while another's gradients are reduced.
        if (final_pass && !skeleton_.plan.parallelism.overlap.gradient_reduce) unhidden_ = done;
        if (!last) lifetime(InstructionKind::free, Home::output_gradient, k);
        if (first) return;
        last_returned_ = trail().returned[at(k)] =
            message(InstructionKind::send, Stream::send_prev, Home::input_gradient, k, {done, Stream::compute});
        lifetime(InstructionKind::free, Home::input_gradient, k);
        lifetime(InstructionKind::free, Home::input, k);
    }

    std::int32_t reduce_at_tail(Axis axis, DType type, std::int64_t count, std::int32_t buffer) {
        Instruction i = collective(InstructionKind::all_reduce, Stream::reduce, axis, type, count, {buffer});
        i.add_wait({last_backward_, Stream::compute});
        return emit(i);
    }

    // All chunks step once all gradients are there: reductions are in order on their stream, the last
    // backward pass's come last.
    void tail() {
        unhidden_ = -1;
        Instruction end;
        end.kind = InstructionKind::step_end;
        std::int32_t tied = -1;
        chunk_ = static_cast<std::int32_t>(s_.chunks.size()) - 1;
        if (chunk().last() && skeleton_.context.replicas() > 1)
            end.add_wait({reduce_at_tail(Axis::replica, DType::fp64, 1, loss()), Stream::reduce});
        if (skeleton_.tied_across_stages() && chunk().last()) tied = reduce_tied();
        chunk_ = 0;
        if (skeleton_.tied_across_stages() && chunk().first()) tied = reduce_tied();
        std::int32_t stepped = -1;
        for (; chunk_ < static_cast<std::int32_t>(s_.chunks.size()); ++chunk_) {
            Instruction step = pass(InstructionKind::optimizer_step, Stage::optimizer, -1);
            if (stepped < 0) step.add_wait({last_backward_, Stream::reduce});
            if (stepped < 0 && tied >= 0) step.add_wait({tied, Stream::reduce});
            stepped = emit(step);
        }
        chunk_ = 0;
        end.add_wait({stepped, Stream::gather});
        if (last_sent_ >= 0) end.add_wait({last_sent_, Stream::send_next});
        if (last_returned_ >= 0) end.add_wait({last_returned_, Stream::send_prev});
        emit(end);
    }

    std::int32_t reduce_tied() {
        const std::int32_t gradient = tied_gradient(skeleton_, *chunk().stage);
        const BodyBuffer& buffer = chunk().stage->fixed[at(gradient)];
        return reduce_at_tail(Axis::embedding, buffer.type, buffer.elements, chunk().first_buffer + gradient);
    }

    const Skeleton& skeleton_;
    const StageSkeleton& s_;
    std::int32_t next_stage_, previous_stage_;
    std::vector<Instruction>& out_;
    bool lifetimes_;
    std::vector<ChunkTrail> trails_;
    std::int32_t chunk_ = 0;  // of what is being emitted
    std::int32_t last_pass_ = -1, last_backward_ = -1, last_sent_ = -1, last_returned_ = -1;
    std::int32_t unhidden_ = -1;  // a backward pass whose reductions must be over before the next pass
};

}  // namespace

void unroll_stage(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out, bool lifetimes) {
    Unroller(skeleton, stage, out, lifetimes).run();
}

}  // namespace foretrain
