#include "plan/program/pass_builder.h"

#include <algorithm>

#include "base/error.h"

namespace foretrain {

PassBuilder::PassBuilder(const StageContext& context, Stage& stage, const char* name, InstructionKind kind)
    : context_(context), stage_(stage) {
    body_.name = name;
    body_.kind = kind;
    Instruction entry;
    entry.kind = InstructionKind::wait;
    emit(entry);
}

void PassBuilder::section(const char* what, std::int32_t layer) {
    const Label label{what, layer};
    const auto found = std::find(stage_.sections.begin(), stage_.sections.end(), label);
    section_ = static_cast<std::int32_t>(found - stage_.sections.begin());
    if (found == stage_.sections.end()) stage_.sections.push_back(label);
}

PassBuilder::Tensor PassBuilder::add(BodyBuffer buffer) {
    body_.buffers.push_back(buffer);
    return static_cast<Tensor>(body_.buffers.size()) - 1;
}

PassBuilder::Tensor PassBuilder::transient(const char* what, std::int64_t elements, DType type) {
    const std::int32_t layer = section_ < 0 ? -1 : stage_.sections[static_cast<std::size_t>(section_)].layer;
    return add({.label = {what, layer}, .type = type, .owned = true, .elements = elements});
}

std::int32_t PassBuilder::save(const char* what, std::int32_t layer, std::int64_t elements, DType type) {
    BodyBuffer b{.label = {what, layer},
                 .home = Home::slot,
                 .region = Region::activations,
                 .type = type,
                 .owned = true,
                 .elements = elements,
                 .offset = stage_.slot_bytes};
    stage_.slot_bytes += Bytes{round_up(b.bytes().value, buffer_alignment)};
    stage_.saved.push_back(b);
    return static_cast<std::int32_t>(stage_.saved.size()) - 1;
}

PassBuilder::Tensor PassBuilder::saved(std::int32_t index) {
    const auto i = static_cast<std::size_t>(index);
    if (saved_.size() <= i) saved_.resize(stage_.saved.size(), -1);
    if (saved_[i] < 0) {
        BodyBuffer b = stage_.saved[i];
        b.saved = index;
        saved_[i] = add(b);
    }
    return saved_[i];
}

PassBuilder::Tensor PassBuilder::ring(Home home, const char* what) {
    return add({.label = {what, -1},
                .home = home,
                .region = Region::communication,
                .type = context_.types.weight,
                .elements = context_.boundary_elements()});
}

PassBuilder::Tensor PassBuilder::fixed(std::int32_t index) {
    return add(stage_.fixed[static_cast<std::size_t>(index)]);
}

PassBuilder::Tensor PassBuilder::weight(std::int32_t unit, std::int32_t tensor) {
    const StageUnit& u = stage_.units[static_cast<std::size_t>(unit)];
    const UnitShape& shape = stage_.unit_shapes[static_cast<std::size_t>(u.shape)];
    const auto t = static_cast<std::size_t>(tensor);
    const DType type = context_.types.weight;
    return add({.label = {"w", u.layer},
                .home = Home::unit_weight,
                .region = Region::weights,
                .type = type,
                .unit = unit,
                .tensor = tensor,
                .elements = shape.offsets[t + 1] - shape.offsets[t],
                .offset = Bytes{shape.offsets[t] * size_of(type)}});
}

PassBuilder::Tensor PassBuilder::gradient(std::int32_t unit, std::int32_t tensor) {
    const StageUnit& u = stage_.units[static_cast<std::size_t>(unit)];
    if (u.unit.tied_to >= 0 && !u.unit.has_gradient()) return gradient(u.unit.tied_to, tensor);
    const UnitShape& shape = stage_.unit_shapes[static_cast<std::size_t>(u.shape)];
    const auto t = static_cast<std::size_t>(tensor);
    const DType type = context_.types.gradient;
    return add({.label = {"dw", u.layer},
                .home = Home::unit_gradient,
                .region = Region::gradients,
                .type = type,
                .unit = unit,
                .tensor = tensor,
                .elements = shape.offsets[t + 1] - shape.offsets[t],
                .offset = Bytes{shape.offsets[t] * size_of(type)}});
}

std::int32_t PassBuilder::intern(const KernelArgs& args) {
    // Layers call the same kernels in the same order: the one after the last is most often meant.
    const auto guess = static_cast<std::size_t>(interned_ + 1);
    if (guess < stage_.kernels.size() && stage_.kernels[guess] == args) return ++interned_;
    const auto found = std::find(stage_.kernels.begin(), stage_.kernels.end(), args);
    interned_ = static_cast<std::int32_t>(found - stage_.kernels.begin());
    if (found == stage_.kernels.end()) stage_.kernels.push_back(args);
    return interned_;
}

std::int32_t PassBuilder::emit(Instruction instruction) {
    instruction.section = section_;
    body_.code.push_back(instruction);
    body_.recomputed.push_back(recomputing_ ? 1 : 0);
    const auto index = static_cast<std::int32_t>(body_.code.size()) - 1;
    if (instruction.stream == Stream::compute) computed_ = index;
    return index;
}

std::int32_t PassBuilder::kernel(const KernelArgs& args, std::span<const Tensor> operands) {
    Instruction i;
    i.kind = InstructionKind::kernel;
    i.kernel = intern(args);
    for (Tensor t : operands) i.add_operand(t);
    return emit(i);
}

// What the framework hides of it is behind products whose time counts in full. Nothing is behind what the tokens of
// experts wait for.
void PassBuilder::tensor_collective(Instruction instruction) {
    const bool backward = body_.kind == InstructionKind::backward_chunk && !recomputing_;
    if (instruction.axis == Axis::tensor)
        instruction.share = backward ? context_.added.tensor_backward : context_.added.tensor_forward;
    emit(instruction);
}

void PassBuilder::all_reduce(Tensor x, std::int64_t count, Reduction reduction) {
    Instruction i = collective(InstructionKind::all_reduce, Stream::compute, Axis::tensor, type_of(x), count, {x});
    i.reduction = reduction;
    tensor_collective(i);
}

void PassBuilder::reduce_scatter(Tensor whole, Tensor part, std::int64_t part_count, Axis axis) {
    tensor_collective(
        collective(InstructionKind::reduce_scatter, Stream::compute, axis, type_of(whole), part_count, {whole, part}));
}

void PassBuilder::all_gather(Tensor part, Tensor whole, std::int64_t part_count, Axis axis) {
    tensor_collective(
        collective(InstructionKind::all_gather, Stream::compute, axis, type_of(part), part_count, {part, whole}));
}

void PassBuilder::exchange_tokens(Tensor from, Tensor to, std::int64_t part_count) {
    Instruction i =
        collective(InstructionKind::all_to_all, Stream::compute, Axis::expert, type_of(from), part_count, {from, to});
    i.share = context_.added.expert_exchange;
    emit(i);
}

void PassBuilder::all_to_all(Tensor from, Tensor to, std::int64_t part_count) {
    emit(
        collective(InstructionKind::all_to_all, Stream::compute, Axis::context, type_of(from), part_count, {from, to}));
}

// It waits for all that is computed before it: for what it sends, and for whoever used the place where
// it receives.
std::int32_t PassBuilder::ring_shift(Tensor from, Tensor to, std::int64_t count) {
    Instruction i =
        collective(InstructionKind::ring_shift, Stream::context, Axis::context, type_of(from), count, {from, to});
    i.add_wait({computed_, Stream::compute});
    return emit(i);
}

void PassBuilder::await(std::int32_t instruction, std::int32_t shift) {
    if (shift >= 0) body_.code[static_cast<std::size_t>(instruction)].add_wait({shift, Stream::context});
}

std::int32_t PassBuilder::launch(const char* what, std::int32_t layer, bool waits) {
    section(what, layer);
    Instruction launch;
    launch.kind = InstructionKind::launch;
    launch.stream = Stream::host;
    constexpr std::int32_t entry = 0;
    if (waits && !launched_) launch.add_wait({entry, Stream::compute});
    launched_ = true;
    return emit(launch);
}

std::int32_t PassBuilder::begin_layers(std::int32_t layer) {
    return context_.added.launches() ? launch("layers", layer, context_.added.host_waits) : -1;
}

std::int32_t PassBuilder::begin_embedding(Time host) {
    const bool batch = context_.added.host_waits_for_batches && body_.kind == InstructionKind::forward_chunk;
    return host > Time{} || batch ? launch("batch", -1, context_.added.host_waits || batch) : -1;
}

std::int32_t PassBuilder::begin_head(Time host) {
    return host > Time{} ? launch("head", -1, context_.added.host_waits) : -1;
}

void PassBuilder::end_layers(std::int32_t begun, Added added) {
    if (begun < 0 && added.stall == Time{}) return;
    Instruction stall;
    stall.kind = InstructionKind::stall;
    stall.count = added.stall.value;
    if (begun >= 0) {
        const auto first = body_.code.begin() + begun;
        const auto collectives = std::count_if(first, body_.code.end(), [](const Instruction& i) {
            return i.axis == Axis::tensor || i.axis == Axis::expert_tensor;
        });
        first->count = (added.host + context_.added.launch_collective * collectives).value;
        stall.add_wait({begun, Stream::host});
    }
    emit(stall);
}

Body PassBuilder::take() { return std::move(body_); }

}  // namespace foretrain
