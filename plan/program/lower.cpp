#include "plan/program/lower.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <tuple>

#include "base/error.h"
#include "models/parameters.h"

namespace foretrain {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Everything of a stage program but its instructions: buffers with names, units, parameters.
class StageTables {
public:
    StageTables(const Skeleton& skeleton, std::size_t stage, StageProgram& out)
        : skeleton_(skeleton), s_(skeleton.stages[stage]), stage_(*s_.stage), out_(out) {
        out_.stage = static_cast<std::int32_t>(stage);
    }

    void fill() {
        out_.kernels = stage_.kernels;
        for (const Label& label : stage_.sections) out_.sections.push_back(text(label, s_.first_layer));
        for (const Body& body : stage_.bodies) out_.bodies.emplace_back(body.name);
        for (const BodyBuffer& b : stage_.fixed) out_.buffers.push_back(buffer(b, text(b.label, s_.first_layer)));
        fill_units();
        fill_rings();
        out_.loss = stage_.loss;
        Bytes base;
        out_.region_bytes = s_.region_bytes;
        for (std::size_t r = 0; r < region_count; ++r) {
            out_.region_base[r] = base;
            base += s_.region_bytes[r];
        }
    }

    static Buffer buffer(const BodyBuffer& b, std::string name) {
        return {std::move(name), b.region, b.type, b.axis, b.elements, b.offset, b.stride};
    }

private:
    void fill_units() {
        for (const StageUnit& u : stage_.units) {
            const UnitShape& shape = stage_.unit_shapes[at(u.shape)];
            Unit unit = u.unit;
            unit.name = name_of(s_.ref(u));
            for (std::int32_t b : {unit.weight, unit.weight_shard, unit.gradient, unit.gradient_shard, unit.momentum,
                                   unit.variance, unit.master})
                if (b >= 0) out_.buffers[at(b)].name = unit.name + "." + std::string(stage_.fixed[at(b)].label.what);
            const auto specs = unit_parameters(skeleton_.plan.model, s_.ref(u), skeleton_.context.vocabulary);
            for (std::size_t p = 0; p < specs.size(); ++p)
                out_.parameters.push_back({specs[p].name, specs[p].outer, specs[p].sharded, specs[p].inner,
                                           specs[p].replicated, static_cast<std::int8_t>(specs[p].init),
                                           specs[p].init_std, static_cast<std::int32_t>(out_.units.size()),
                                           shape.offsets[p]});
            out_.units.push_back(unit);
        }
    }

    void fill_rings() {
        const std::pair<const Ring*, const char*> rings[] = {{&s_.output, "output"},
                                                             {&s_.input_gradient, "input_gradient"},
                                                             {&s_.output_gradient, "output_gradient"},
                                                             {&s_.input, "input"}};
        for (const auto& [ring, name] : rings)
            for (std::int64_t e = 0; e < ring->entries; ++e)
                out_.buffers.push_back({std::string(name) + "#" + std::to_string(e), Region::communication,
                                        skeleton_.context.types.weight, Axis::none, stage_.boundary_elements,
                                        ring->offset + ring->entry * e, Bytes{}});
    }

    const Skeleton& skeleton_;
    const StageSkeleton& s_;
    const Stage& stage_;
    StageProgram& out_;
};

// Unrolls bodies into a stage program that holds the chunk-level instructions' tables.
class StageLowering {
public:
    StageLowering(const Skeleton& skeleton, std::size_t stage, StageProgram& out)
        : s_(skeleton.stages[stage]), stage_(*s_.stage), out_(out), transients_(stage_.bodies.size()) {
        latest_.fill(-1);
        for (std::size_t b = 0; b < stage_.bodies.size(); ++b)
            transients_[b].assign(stage_.bodies[b].buffers.size(), -1);
        for (std::size_t b = 0; b < out_.buffers.size(); ++b)
            places_.emplace(place(out_.buffers[b]), static_cast<std::int32_t>(b));
        unit_parameters_.reserve(stage_.units.size());
        for (const StageUnit& u : stage_.units)
            unit_parameters_.push_back(unit_parameters(skeleton.plan.model, s_.ref(u), skeleton.context.vocabulary));
    }

    void run(const std::vector<Instruction>& chunks) {
        exits_.reserve(chunks.size());
        for (const Instruction& chunk : chunks) {
            if (chunk.body < 0)
                push(renumbered(chunk));
            else
                unroll(chunk, stage_.bodies[at(chunk.body)]);
            exits_.push_back(latest_);
        }
        out_.bodies.clear();
    }

private:
    using Place = std::tuple<Region, std::int64_t, std::int64_t, DType, Axis>;
    static Place place(const Buffer& b) { return {b.region, b.offset.value, b.elements, b.type, b.axis}; }

    std::int32_t push(const Instruction& i) {
        out_.instructions.push_back(i);
        const auto id = static_cast<std::int32_t>(out_.instructions.size()) - 1;
        latest_[at(static_cast<std::int64_t>(i.stream))] = id;
        return id;
    }

    // A wait on a chunk pass becomes a wait on the last instruction of that stream until its end.
    Instruction renumbered(Instruction i) const {
        const Instruction before = i;
        i.waits = 0;
        i.wait = {};
        for (int w = 0; w < before.waits; ++w) {
            const Wait wait = before.wait[at(w)];
            const std::int32_t id = exits_[at(wait.instruction)][at(static_cast<std::int64_t>(wait.stream))];
            if (id >= 0) i.add_wait({id, wait.stream});
        }
        return i;
    }

    void unroll(const Instruction& chunk, const Body& body) {
        const auto base = static_cast<std::int32_t>(out_.instructions.size());
        const Instruction entry = renumbered(chunk);
        for (Instruction i : body.code) {
            i.microbatch = chunk.microbatch;
            for (int o = 0; o < i.operands; ++o) i.operand[at(o)] = bind(chunk, body, i.operand[at(o)]);
            for (int w = 0; w < i.waits; ++w) i.wait[at(w)].instruction += base;
            if (i.kind == InstructionKind::wait)
                for (int w = 0; w < entry.waits; ++w) i.add_wait(entry.wait[at(w)]);
            push(i);
        }
    }

    std::int32_t add(const BodyBuffer& b, std::string name, Bytes shift) {
        Buffer buffer = StageTables::buffer(b, std::move(name));
        buffer.offset += shift;
        out_.buffers.push_back(std::move(buffer));
        return static_cast<std::int32_t>(out_.buffers.size()) - 1;
    }

    std::string tensor_name(const BodyBuffer& b) const {
        if (b.tensor < 0) return text(b.label, s_.first_layer);
        std::string name = unit_parameters_[at(b.unit)][at(b.tensor)].name;
        if (b.region == Region::gradients) name += ".gradient";
        if (b.region == Region::gathered) name += "@" + std::to_string(b.offset.value);
        if (b.region == Region::staging) name += ".gradient@" + std::to_string(b.offset.value);
        return name;
    }

    // The stage's buffer for a body's buffer in the pass at hand.
    std::int32_t bind(const Instruction& chunk, const Body& body, std::int32_t index) {
        const BodyBuffer& b = body.buffers[at(index)];
        switch (b.home) {
            case Home::input:
            case Home::output:
            case Home::input_gradient:
            case Home::output_gradient: return s_.ring_buffer(b.home, chunk.microbatch);
            case Home::slot: return slot(b, chunk.microbatch % s_.slots);
            default: break;
        }
        if (b.owned) {
            std::int32_t& known = transients_[at(chunk.body)][at(index)];
            if (known < 0) known = add(b, text(b.label, s_.first_layer) + "'" + std::to_string(index), Bytes{});
            return known;
        }
        const auto [entry, fresh] = places_.try_emplace({b.region, b.offset.value, b.elements, b.type, b.axis}, -1);
        if (fresh) entry->second = add(b, tensor_name(b), Bytes{});
        return entry->second;
    }

    std::int32_t slot(const BodyBuffer& b, std::int64_t number) {
        const auto [entry, fresh] = slots_.try_emplace({b.saved, number}, -1);
        if (fresh)
            entry->second =
                add(b, text(b.label, s_.first_layer) + "#" + std::to_string(number), stage_.slot_bytes * number);
        return entry->second;
    }

    const StageSkeleton& s_;
    const Stage& stage_;
    StageProgram& out_;
    std::vector<std::vector<ParameterSpec>> unit_parameters_;
    std::vector<std::vector<std::int32_t>> transients_;
    std::map<Place, std::int32_t> places_;
    std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> slots_;
    std::array<std::int32_t, stream_count> latest_{};
    std::vector<std::array<std::int32_t, stream_count>> exits_;  // by chunk-level instruction
};

Program frame(const Skeleton& skeleton) {
    Program program;
    program.grid = skeleton.plan.grid();
    program.micro_batch_size = skeleton.plan.parallelism.micro_batch_size;
    program.sequence_length = skeleton.plan.training.sequence_length;
    program.microbatches = skeleton.microbatches;
    program.vocabulary = skeleton.plan.model.vocab_size;
    program.type = skeleton.context.types.weight;
    program.stages.resize(skeleton.stages.size());
    for (std::size_t i = 0; i < program.stages.size(); ++i) StageTables(skeleton, i, program.stages[i]).fill();
    return program;
}

}  // namespace

Program unroll(const Skeleton& skeleton) {
    Program program = frame(skeleton);
    for (std::size_t i = 0; i < program.stages.size(); ++i) unroll_stage(skeleton, i, program.stages[i].instructions);
    return program;
}

std::int64_t instruction_count(const Skeleton& skeleton) {
    std::int64_t count = 0;
    std::vector<Instruction> chunks;
    for (std::size_t i = 0; i < skeleton.stages.size(); ++i) {
        unroll_stage(skeleton, i, chunks);
        for (const Instruction& chunk : chunks)
            count += chunk.body < 0
                         ? 1
                         : static_cast<std::int64_t>(skeleton.stages[i].stage->bodies[at(chunk.body)].code.size());
    }
    return count;
}

std::optional<Rejection> check_lowerable(const Skeleton& skeleton) {
    constexpr std::int64_t most = std::int64_t{1} << 26;  // 10 GB, with what a simulation keeps of each
    const std::int64_t count = instruction_count(skeleton);
    if (count <= most) return std::nullopt;
    return Rejection{.reason = "program_too_long",
                     .field = "training.global_batch_size",
                     .found = fmt::format("{} microbatches, {} instructions", skeleton.microbatches, count),
                     .rule = fmt::format("must make a program of at most {} instructions", most),
                     .allowed = "",
                     .suggestion = "`foretrain estimate`, which does not write it out"};
}

Program lower(const Skeleton& skeleton) {
    Program program = frame(skeleton);
    std::vector<Instruction> chunks;
    for (std::size_t i = 0; i < program.stages.size(); ++i) {
        unroll_stage(skeleton, i, chunks);
        StageLowering(skeleton, i, program.stages[i]).run(chunks);
    }
    return program;
}

}  // namespace foretrain
