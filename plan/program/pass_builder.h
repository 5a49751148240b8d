// Writes a body as plain arithmetic: kernels and tensor collectives on the compute stream, in
// order, with named tensors. Weights and gradients are named by unit and tensor; where they stand is
// decided by the passes of body_passes.h.
//
//   PassBuilder b(context, stage, "forward", InstructionKind::forward_chunk);
//   auto y = b.transient("y", rows * width, type);
//   b.kernel(NormForwardArgs{...}, {x, y, b.weight(unit, 0), b.weight(unit, 1)});
//   stage.bodies.push_back(b.take());
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "plan/program/stage.h"

namespace foretrain {

class PassBuilder {
public:
    using Tensor = std::int32_t;  // index in the body's buffers

    PassBuilder(const StageContext& context, Stage& stage, const char* name, InstructionKind kind);

    void section(const char* what, std::int32_t layer = -1);
    // The code of layers from `layer` on begins here; -1: of none.
    void cut(std::int32_t layer) { body_.cuts.push_back({static_cast<std::int32_t>(body_.code.size()), layer}); }
    void recomputing(bool on) { recomputing_ = on; }

    Tensor transient(const char* what, std::int64_t elements, DType type);
    // A tensor that lives from the forward to the backward pass: `save` makes one in the stage's
    // slot, `saved` refers to it again.
    std::int32_t save(const char* what, std::int32_t layer, std::int64_t elements, DType type);
    Tensor saved(std::int32_t index);
    // It lives while the last instruction on the compute stream runs, though that has no use for it; none: nothing.
    void hold(Tensor t) {
        if (t >= 0) body_.holds.push_back({computed_, t});
    }
    Tensor ring(Home home, const char* what);
    Tensor fixed(std::int32_t index);
    Tensor weight(std::int32_t unit, std::int32_t tensor);
    Tensor gradient(std::int32_t unit, std::int32_t tensor);

    std::int32_t kernel(const KernelArgs& args, std::span<const Tensor> operands);
    std::int32_t kernel(const KernelArgs& args, std::initializer_list<Tensor> operands) {
        return kernel(args, std::span(operands.begin(), operands.size()));
    }
    // Over the tensor group, or the ranks that share experts' matrices, on the compute stream.
    void all_reduce(Tensor x, std::int64_t count, Reduction reduction = Reduction::sum);
    void reduce_scatter(Tensor whole, Tensor part, std::int64_t part_count, Axis axis = Axis::tensor);
    void all_gather(Tensor part, Tensor whole, std::int64_t part_count, Axis axis = Axis::tensor);
    // Over the ranks that share out experts.
    void exchange_tokens(Tensor from, Tensor to, std::int64_t part_count);
    // Over the context group. A ring shift runs beside what is computed after it, on a stream of its own;
    // whoever reads `to` awaits it.
    void all_to_all(Tensor from, Tensor to, std::int64_t part_count);
    std::int32_t ring_shift(Tensor from, Tensor to, std::int64_t count);
    void await(std::int32_t instruction, std::int32_t shift);
    std::int32_t emit(Instruction instruction);
    // Around the code of a run of layers: the host begins to enqueue it, and compute goes on from the end of
    // it no sooner than the host is through, `stall` later. Nothing where the framework adds nothing.
    struct Added {
        Time host, stall;
    };
    std::int32_t begin_layers(std::int32_t layer);
    // The same of what comes before the first layer or after the last; -1 where the host has nothing to do there.
    std::int32_t begin_embedding(Time host);
    std::int32_t begin_head(Time host);
    void end_layers(std::int32_t begun, Added added);

    Body take();

private:
    std::int32_t launch(const char* what, std::int32_t layer, bool waits);
    std::int32_t intern(const KernelArgs& args);
    Tensor add(BodyBuffer buffer);
    void tensor_collective(Instruction instruction);
    DType type_of(Tensor t) const { return body_.buffers[static_cast<std::size_t>(t)].type; }

    const StageContext& context_;
    Stage& stage_;
    Body body_;
    std::int32_t section_ = -1;
    std::int32_t interned_ = -1;  // the kernel interned last
    std::int32_t computed_ = -1;  // the last instruction on the compute stream
    bool recomputing_ = false;
    bool launched_ = false;      // something
    std::vector<Tensor> saved_;  // by index in Stage::saved: this body's buffer, or -1
};

}  // namespace foretrain
