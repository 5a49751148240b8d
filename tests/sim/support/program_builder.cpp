#include "tests/sim/support/program_builder.h"

#include <algorithm>

#include "tests/sim/support/devices.h"

namespace foretrain::support {

namespace {
constexpr std::int64_t floats_per_us = 250;  // of a message; a cast reads and writes, so 125 elements
}

ProgramBuilder::ProgramBuilder(std::int64_t stages, std::int64_t data) {
    program.grid = {.data = data, .pipeline = stages};
    program.stages.resize(static_cast<std::size_t>(stages));
    for (std::int64_t s = 0; s < stages; ++s)
        program.stages[static_cast<std::size_t>(s)].stage = static_cast<std::int32_t>(s);
}

std::int32_t ProgramBuilder::add(std::int64_t stage, Instruction instruction, const Ids& after) {
    auto& code = program.stages.at(static_cast<std::size_t>(stage)).instructions;
    for (const std::int32_t id : after) instruction.add_wait({id, code.at(static_cast<std::size_t>(id)).stream});
    code.push_back(instruction);
    return static_cast<std::int32_t>(code.size() - 1);
}

std::int32_t ProgramBuilder::kernel(std::int64_t stage, std::int64_t us, const Ids& after, Stream stream) {
    auto& kernels = program.stages.at(static_cast<std::size_t>(stage)).kernels;
    const KernelArgs args = CastArgs{.elements = 125 * us};
    const auto found = std::find(kernels.begin(), kernels.end(), args);
    const auto index = static_cast<std::int32_t>(found - kernels.begin());
    if (found == kernels.end()) kernels.push_back(args);
    return add(stage, {.kind = InstructionKind::kernel, .stream = stream, .kernel = index}, after);
}

std::int32_t ProgramBuilder::send(std::int64_t stage, std::int64_t peer, std::int64_t us, const Ids& after,
                                  bool backwards) {
    return add(stage,
               {.kind = InstructionKind::send,
                .stream = backwards ? Stream::send_prev : Stream::send_next,
                .peer = static_cast<std::int32_t>(peer),
                .count = floats_per_us * us},
               after);
}

std::int32_t ProgramBuilder::recv(std::int64_t stage, std::int64_t peer, std::int64_t us, const Ids& after,
                                  bool backwards) {
    return add(stage,
               {.kind = InstructionKind::recv,
                .stream = backwards ? Stream::recv_next : Stream::recv_prev,
                .peer = static_cast<std::int32_t>(peer),
                .count = floats_per_us * us},
               after);
}

std::int32_t ProgramBuilder::all_reduce_embedding(std::int64_t stage, std::int64_t us, const Ids& after) {
    return add(stage,
               {.kind = InstructionKind::all_reduce,
                .stream = Stream::reduce,
                .axis = Axis::embedding,
                .count = floats_per_us * us},
               after);
}

std::int32_t ProgramBuilder::all_gather_data(std::int64_t stage, std::int64_t shard_elements, const Ids& after) {
    return add(
        stage,
        {.kind = InstructionKind::all_gather, .stream = Stream::gather, .axis = Axis::data, .count = shard_elements},
        after);
}

std::int32_t ProgramBuilder::plain(std::int64_t stage, InstructionKind kind, const Ids& after, Stream stream) {
    return add(stage, {.kind = kind, .stream = stream}, after);
}

std::int32_t ProgramBuilder::lifetime(std::int64_t stage, InstructionKind kind, std::int32_t buffer) {
    Instruction instruction{.kind = kind};
    instruction.add_operand(buffer);
    return add(stage, instruction, {});
}

std::int32_t ProgramBuilder::buffer(std::int64_t stage, std::int64_t bytes) {
    auto& buffers = program.stages.at(static_cast<std::size_t>(stage)).buffers;
    buffers.push_back({.name = "b", .type = DType::fp8, .elements = bytes});
    return static_cast<std::int32_t>(buffers.size() - 1);
}

CostModel ProgramBuilder::cost() const { return {round_cluster(1), program.grid}; }

Program one_forward_one_backward(std::int64_t stages, std::int64_t microbatches, std::int64_t kernels) {
    ProgramBuilder b(stages);
    for (std::int64_t s = 0; s < stages; ++s) {
        const auto forward = [&] {
            ProgramBuilder::Ids after;
            if (s > 0) after = {b.recv(s, s - 1, 0)};
            std::int32_t last = b.kernel(s, 1, after);
            for (std::int64_t k = 1; k < kernels; ++k) last = b.kernel(s, 1);
            if (s + 1 < stages) b.send(s, s + 1, 0, {last});
        };
        const auto backward = [&] {
            ProgramBuilder::Ids after;
            if (s + 1 < stages) after = {b.recv(s, s + 1, 0, {}, true)};
            std::int32_t last = b.kernel(s, 1, after);
            for (std::int64_t k = 1; k < 2 * kernels; ++k) last = b.kernel(s, 1);
            if (s > 0) b.send(s, s - 1, 0, {last}, true);
        };
        const std::int64_t warm_up = std::min(stages - 1 - s, microbatches);
        for (std::int64_t i = 0; i < warm_up; ++i) forward();
        for (std::int64_t i = warm_up; i < microbatches; ++i) {
            forward();
            backward();
        }
        for (std::int64_t i = 0; i < warm_up; ++i) backward();
        b.plain(s, InstructionKind::step_end);
    }
    return std::move(b.program);
}

}  // namespace foretrain::support
