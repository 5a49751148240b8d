#include "plan/program/skeleton.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace foretrain {

const Ring& StageSkeleton::ring(Home home) const {
    switch (home) {
        case Home::output: return output;
        case Home::input_gradient: return input_gradient;
        case Home::output_gradient: return output_gradient;
        default: return input;
    }
}

UnitRef StageSkeleton::ref(const StageUnit& u) const {
    const UnitKind kind = stage->unit_shapes[static_cast<std::size_t>(u.shape)].kind;
    return {kind, u.layer < 0 ? 0 : first_layer + u.layer};
}

std::int32_t StageSkeleton::ring_buffer(Home home, std::int64_t microbatch) const {
    std::int64_t index = static_cast<std::int64_t>(stage->fixed.size()) + microbatch % ring(home).entries;
    if (home == Home::output) return static_cast<std::int32_t>(index);
    index += output.entries;
    if (home == Home::input_gradient) return static_cast<std::int32_t>(index);
    index += input_gradient.entries;
    if (home == Home::output_gradient) return static_cast<std::int32_t>(index);
    return static_cast<std::int32_t>(index + output_gradient.entries);
}

namespace {

void lay_out(const StageContext& c, StageSkeleton& s, bool first, bool last, std::int64_t microbatches) {
    const Stage& stage = *s.stage;
    s.slots = most_in_flight(s.order);
    s.region_bytes = stage.region_bytes;
    s.region_bytes[static_cast<std::size_t>(Region::activations)] = stage.slot_bytes * s.slots;
    const Bytes entry{round_up(stage.boundary_elements * size_of(c.types.weight), buffer_alignment)};
    Bytes end;
    const auto place = [&](Ring& ring, bool present, std::int64_t entries) {
        ring = {end, entry, present ? std::min(entries, microbatches) : 0};
        end += entry * ring.entries;
    };
    place(s.output, !last, 2);
    place(s.input_gradient, !first, 2);
    place(s.output_gradient, !last, 2);
    // An input is kept until its backward pass; one more, so that the next can arrive meanwhile.
    place(s.input, !first, s.slots + 1);
    s.region_bytes[static_cast<std::size_t>(Region::communication)] = end;
}

// The embedding is the first unit of the first stage, the head the last unit of the last.
std::int32_t tied_gradient(const Skeleton& skeleton, const Stage& stage) {
    const Unit& unit = (stage.shape.first ? stage.units.front() : stage.units.back()).unit;
    return skeleton.context.zero >= 1 ? unit.gradient_shard : unit.gradient;
}

// Writes one stage's chunk-level instructions.
class Unroller {
public:
    Unroller(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out)
        : skeleton_(skeleton),
          s_(skeleton.stages[stage]),
          stage_(static_cast<std::int32_t>(stage)),
          first_(skeleton.first(stage)),
          last_(skeleton.last(stage)),
          out_(out),
          forward_(static_cast<std::size_t>(skeleton.microbatches)),
          backward_(static_cast<std::size_t>(skeleton.microbatches)),
          sent_(static_cast<std::size_t>(skeleton.microbatches), -1),
          returned_(static_cast<std::size_t>(skeleton.microbatches), -1) {}

    void run() {
        out_.clear();
        if (last_) clear_loss();
        for (std::size_t i = 0; i < s_.order.size(); ++i) {
            const Pass& pass = s_.order[i];
            if (pass.backward)
                backward(pass.microbatch, i + 1 == s_.order.size());
            else
                forward(pass.microbatch);
        }
        tail();
    }

private:
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

    std::int32_t emit(Instruction i) {
        out_.push_back(i);
        return static_cast<std::int32_t>(out_.size()) - 1;
    }

    void lifetime(InstructionKind kind, Home home, std::int32_t microbatch) {
        Instruction i;
        i.kind = kind;
        i.microbatch = microbatch;
        i.add_operand(s_.ring_buffer(home, microbatch));
        emit(i);
    }

    std::int32_t message(InstructionKind kind, Stream stream, Home home, std::int32_t microbatch, std::int32_t peer,
                         Wait wait) {
        Instruction i;
        i.kind = kind;
        i.stream = stream;
        i.axis = Axis::pipeline;
        i.type = skeleton_.context.types.weight;
        i.microbatch = microbatch;
        i.peer = peer;
        i.count = s_.stage->boundary_elements;
        i.add_operand(s_.ring_buffer(home, microbatch));
        if (wait.instruction >= 0) i.add_wait(wait);
        return emit(i);
    }

    Instruction pass(InstructionKind kind, std::int32_t body, std::int32_t microbatch) const {
        Instruction i;
        i.kind = kind;
        i.body = body;
        i.microbatch = microbatch;
        return i;
    }

    void clear_loss() {
        Instruction i;
        i.kind = InstructionKind::fill;
        i.type = DType::fp64;
        i.count = 1;
        i.add_operand(s_.stage->loss);
        emit(i);
    }

    // The pass that used a ring's entry before microbatch k does, or -1.
    std::int32_t previous(const std::vector<std::int32_t>& done, Home home, std::int64_t k) const {
        const std::int64_t before = k - s_.ring(home).entries;
        return before < 0 ? -1 : done[at(before)];
    }

    void forward(std::int32_t k) {
        Instruction f = pass(InstructionKind::forward_chunk, s_.stage->forward, k);
        if (!first_) {
            lifetime(InstructionKind::alloc, Home::input, k);
            const std::int32_t reader = previous(backward_, Home::input, k);
            f.add_wait({message(InstructionKind::recv, Stream::recv_prev, Home::input, k, stage_ - 1,
                                {reader, Stream::compute}),
                        Stream::recv_prev});
        }
        if (!last_) {
            lifetime(InstructionKind::alloc, Home::output, k);
            const std::int32_t sender = previous(sent_, Home::output, k);
            if (sender >= 0) f.add_wait({sender, Stream::send_next});
        }
        forward_[at(k)] = emit(f);
        if (last_) return;
        sent_[at(k)] = message(InstructionKind::send, Stream::send_next, Home::output, k, stage_ + 1,
                               {forward_[at(k)], Stream::compute});
        lifetime(InstructionKind::free, Home::output, k);
    }

    void backward(std::int32_t k, bool final_pass) {
        Instruction b =
            pass(InstructionKind::backward_chunk, final_pass ? s_.stage->backward_last : s_.stage->backward, k);
        if (!last_) {
            lifetime(InstructionKind::alloc, Home::output_gradient, k);
            const std::int32_t reader = previous(backward_, Home::output_gradient, k);
            b.add_wait({message(InstructionKind::recv, Stream::recv_next, Home::output_gradient, k, stage_ + 1,
                                {reader, Stream::compute}),
                        Stream::recv_next});
        }
        if (!first_) {
            lifetime(InstructionKind::alloc, Home::input_gradient, k);
            const std::int32_t sender = previous(returned_, Home::input_gradient, k);
            if (sender >= 0) b.add_wait({sender, Stream::send_prev});
        }
        const std::int32_t done = emit(b);
        backward_[at(k)] = done;
        if (!last_) lifetime(InstructionKind::free, Home::output_gradient, k);
        if (first_) return;
        returned_[at(k)] = message(InstructionKind::send, Stream::send_prev, Home::input_gradient, k, stage_ - 1,
                                   {done, Stream::compute});
        lifetime(InstructionKind::free, Home::input_gradient, k);
        lifetime(InstructionKind::free, Home::input, k);
    }

    std::int32_t reduce_at_tail(Axis axis, DType type, std::int64_t count, std::int32_t buffer, std::int32_t after) {
        Instruction i = collective(InstructionKind::all_reduce, Stream::reduce, axis, type, count, {buffer});
        i.add_wait({after, Stream::compute});
        return emit(i);
    }

    void tail() {
        const std::int32_t final_backward = backward_[at(s_.order.back().microbatch)];
        Instruction end;
        end.kind = InstructionKind::step_end;
        if (last_ && skeleton_.plan.parallelism.data > 1)
            end.add_wait({reduce_at_tail(Axis::data, DType::fp64, 1, s_.stage->loss, final_backward), Stream::reduce});
        Instruction step = pass(InstructionKind::optimizer_step, s_.stage->optimizer, -1);
        step.add_wait({final_backward, Stream::reduce});
        if (skeleton_.tied_across_stages() && (first_ || last_))
            step.add_wait({reduce_tied(final_backward), Stream::reduce});
        const std::int32_t stepped = emit(step);
        end.add_wait({stepped, Stream::gather});
        if (!last_) end.add_wait({sent_.back(), Stream::send_next});
        if (!first_) end.add_wait({returned_.back(), Stream::send_prev});
        emit(end);
    }

    std::int32_t reduce_tied(std::int32_t after) {
        const std::int32_t gradient = tied_gradient(skeleton_, *s_.stage);
        const BodyBuffer& buffer = s_.stage->fixed[at(gradient)];
        return reduce_at_tail(Axis::embedding, buffer.type, buffer.elements, gradient, after);
    }

    const Skeleton& skeleton_;
    const StageSkeleton& s_;
    std::int32_t stage_;
    bool first_, last_;
    std::vector<Instruction>& out_;
    std::vector<std::int32_t> forward_, backward_, sent_, returned_;  // by microbatch
};

}  // namespace

Skeleton make_skeleton(const Plan& plan, Depth depth) {
    Skeleton skeleton;
    skeleton.plan = plan;
    skeleton.context = make_context(plan);
    skeleton.microbatches = plan.microbatches();
    const std::vector<std::int64_t> layers = layers_by_stage(plan);
    std::map<StageShape, std::shared_ptr<const Stage>> built;
    const std::int64_t period = window_alternation(plan.model, plan.training.sequence_length);
    std::int64_t first_layer = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const StageShape shape{layers[i], i == 0, i + 1 == layers.size(), first_layer % period};
        std::shared_ptr<const Stage>& stage = built[shape];
        if (!stage) stage = build_stage(skeleton.context, shape, depth);
        StageSkeleton s;
        s.stage = stage;
        s.first_layer = first_layer;
        s.order = schedule_order(plan.parallelism.schedule, plan.parallelism.pipeline, static_cast<std::int64_t>(i),
                                 skeleton.microbatches);
        lay_out(skeleton.context, s, shape.first, shape.last, skeleton.microbatches);
        first_layer += layers[i];
        skeleton.stages.push_back(std::move(s));
    }
    return skeleton;
}

Bytes tied_gradient_bytes(const Skeleton& skeleton) {
    const Stage& stage = *skeleton.stages.front().stage;
    return stage.fixed[static_cast<std::size_t>(tied_gradient(skeleton, stage))].bytes();
}

void unroll_stage(const Skeleton& skeleton, std::size_t stage, std::vector<Instruction>& out) {
    Unroller(skeleton, stage, out).run();
}

}  // namespace foretrain
