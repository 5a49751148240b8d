#include "plan/program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/index.h"
#include "models/parameters.h"

namespace foretrain {

namespace {

// A stage's chunks have tables of their own; where they hold the same entry the stage has it once.
// Answers with the stage's index of each of the chunk's.
template <class T>
std::vector<std::int32_t> merge(const std::vector<T>& chunk, std::vector<T>& stage) {
    std::vector<std::int32_t> out;
    const std::size_t before = stage.size();
    for (const T& entry : chunk) {
        // A chunk's own entries differ from each other: look among those of the chunks before it.
        const auto end = stage.begin() + static_cast<std::ptrdiff_t>(before);
        const auto same = std::find(stage.begin(), end, entry);
        out.push_back(
            static_cast<std::int32_t>(same == end ? stage.size() : static_cast<std::size_t>(same - stage.begin())));
        if (same == end) stage.push_back(entry);
    }
    return out;
}

std::vector<std::string> section_names(const ChunkSkeleton& chunk) {
    std::vector<std::string> out;
    for (const Label& label : chunk.stage->sections) out.push_back(text(label, chunk.first_layer));
    return out;
}

// Everything of a stage program but its instructions: buffers with names, units, parameters.
class StageTables {
public:
    StageTables(const Skeleton& skeleton, std::size_t stage, StageProgram& out)
        : skeleton_(skeleton), s_(skeleton.stages[stage]), out_(out) {
        out_.stage = static_cast<std::int32_t>(stage);
    }

    void fill() {
        for (const ChunkSkeleton& chunk : s_.chunks) {
            merge(chunk.stage->kernels, out_.kernels);
            merge(section_names(chunk), out_.sections);
            for (const Body& body : chunk.stage->bodies) out_.bodies.push_back(prefix(chunk) + body.name);
            for (const BodyBuffer& b : chunk.stage->fixed)
                out_.buffers.push_back(buffer(b, text(b.label, chunk.first_layer), chunk));
            fill_units(chunk);
            if (chunk.last()) out_.loss = chunk.first_buffer + chunk.stage->loss;
        }
        for (const ChunkSkeleton& chunk : s_.chunks) fill_rings(chunk);
        Bytes base;
        out_.region_bytes = s_.region_bytes;
        for (std::size_t r = 0; r < region_count; ++r) {
            out_.region_base[r] = base;
            base += s_.region_bytes[r];
        }
    }

    static Buffer buffer(const BodyBuffer& b, std::string name, const ChunkSkeleton& chunk) {
        const Bytes base = chunk.base[static_cast<std::size_t>(b.region)];
        return {std::move(name), b.region, b.type, b.axis, b.elements, base + b.offset, b.stride};
    }

private:
    // Of what every chunk has.
    std::string prefix(const ChunkSkeleton& chunk) const {
        return s_.chunks.size() == 1 ? "" : fmt::format("chunk{}.", &chunk - s_.chunks.data());
    }

    void fill_units(const ChunkSkeleton& chunk) {
        for (const StageUnit& u : chunk.stage->units) {
            const UnitShape& shape = chunk.stage->unit_shapes[at(u.shape)];
            Unit unit = u.unit;
            unit.name = name_of(chunk.ref(u));
            if (unit.tied_to >= 0) unit.tied_to += chunk.first_unit;
            for (std::int32_t* b : {&unit.weight, &unit.weight_shard, &unit.gradient, &unit.gradient_shard,
                                    &unit.momentum, &unit.variance, &unit.master})
                if (*b >= 0) {
                    const std::string_view what = chunk.stage->fixed[at(*b)].label.what;
                    *b += chunk.first_buffer;
                    out_.buffers[at(*b)].name = unit.name + "." + std::string(what);
                }
            const auto specs = unit_parameters(skeleton_.plan.model, chunk.ref(u), skeleton_.context.vocabulary);
            for (std::size_t p = 0; p < specs.size(); ++p)
                out_.parameters.push_back({specs[p].name, specs[p].outer, specs[p].sharded, specs[p].inner,
                                           specs[p].replicated, static_cast<std::int8_t>(specs[p].init),
                                           specs[p].init_std, static_cast<std::int32_t>(out_.units.size()),
                                           shape.offsets[p]});
            out_.units.push_back(unit);
        }
    }

    void fill_rings(const ChunkSkeleton& chunk) {
        const std::pair<const Ring*, const char*> rings[] = {{&chunk.output, "output"},
                                                             {&chunk.input_gradient, "input_gradient"},
                                                             {&chunk.output_gradient, "output_gradient"},
                                                             {&chunk.input, "input"}};
        for (const auto& [ring, name] : rings)
            for (std::int64_t e = 0; e < ring->entries; ++e)
                out_.buffers.push_back({prefix(chunk) + name + "#" + std::to_string(e), Region::communication,
                                        skeleton_.context.types.weight, Axis::none,
                                        skeleton_.context.boundary_elements(), ring->offset + ring->entry * e,
                                        Bytes{}});
    }

    const Skeleton& skeleton_;
    const StageSkeleton& s_;
    StageProgram& out_;
};

// What lowering knows of one chunk: the stage's indices of its tables' entries.
struct ChunkTables {
    std::vector<std::int32_t> kernels, sections;
    std::vector<std::vector<ParameterSpec>> unit_parameters;
    std::vector<std::vector<std::int32_t>> transients;  // by body and buffer; -1: not named yet
};

// Unrolls bodies into a stage program that holds the chunk-level instructions' tables.
class StageLowering {
public:
    StageLowering(const Skeleton& skeleton, std::size_t stage, StageProgram& out)
        : s_(skeleton.stages[stage]), out_(out), slots_of_passes_(slots_of_passes(s_, skeleton.microbatches)) {
        latest_.fill(-1);
        for (std::size_t b = 0; b < out_.buffers.size(); ++b)
            places_.emplace(place(out_.buffers[b]), static_cast<std::int32_t>(b));
        for (const ChunkSkeleton& chunk : s_.chunks) {
            ChunkTables& tables = tables_.emplace_back();
            tables.kernels = merge(chunk.stage->kernels, out_.kernels);
            tables.sections = merge(section_names(chunk), out_.sections);
            for (const Body& body : chunk.stage->bodies) tables.transients.emplace_back(body.buffers.size(), -1);
            for (const StageUnit& u : chunk.stage->units)
                tables.unit_parameters.push_back(
                    unit_parameters(skeleton.plan.model, chunk.ref(u), skeleton.context.vocabulary));
        }
    }

    void run(const std::vector<Instruction>& chunks) {
        exits_.reserve(chunks.size());
        for (const Instruction& chunk : chunks) {
            if (chunk.body < 0)
                push(renumbered(chunk));
            else
                unroll(chunk, s_.body(chunk));
            exits_.push_back(latest_);
        }
        out_.bodies.clear();
    }

private:
    using Place = std::tuple<Region, std::int64_t, std::int64_t, DType, Axis>;
    static Place place(const Buffer& b) { return {b.region, b.offset.value, b.elements, b.type, b.axis}; }

    const ChunkSkeleton& chunk_of(const Instruction& pass) const { return s_.chunks[at(pass.chunk)]; }
    ChunkTables& tables_of(const Instruction& pass) { return tables_[at(pass.chunk)]; }

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

    void unroll(const Instruction& pass, const Body& body) {
        const auto base = static_cast<std::int32_t>(out_.instructions.size());
        const Instruction entry = renumbered(pass);
        const ChunkTables& tables = tables_of(pass);
        for (Instruction i : body.code) {
            i.chunk = pass.chunk;
            i.microbatch = pass.microbatch;
            if (i.kernel >= 0) i.kernel = tables.kernels[at(i.kernel)];
            if (i.section >= 0) i.section = tables.sections[at(i.section)];
            for (int o = 0; o < i.operands; ++o) i.operand[at(o)] = bind(pass, body, i.operand[at(o)]);
            for (int w = 0; w < i.waits; ++w) i.wait[at(w)].instruction += base;
            if (i.kind == InstructionKind::wait)
                for (int w = 0; w < entry.waits; ++w) i.add_wait(entry.wait[at(w)]);
            push(i);
        }
    }

    std::int32_t add(Buffer buffer) {
        out_.buffers.push_back(std::move(buffer));
        return static_cast<std::int32_t>(out_.buffers.size()) - 1;
    }

    static std::string tensor_name(const BodyBuffer& b, const ChunkSkeleton& chunk, const ChunkTables& tables) {
        if (b.tensor < 0) return text(b.label, chunk.first_layer);
        std::string name = tables.unit_parameters[at(b.unit)][at(b.tensor)].name;
        if (b.region == Region::gradients) name += ".gradient";
        if (b.region == Region::gathered) name += "@" + std::to_string(b.offset.value);
        if (b.region == Region::staging) name += ".gradient@" + std::to_string(b.offset.value);
        return name;
    }

    // The stage's buffer for a body's buffer in the pass at hand.
    std::int32_t bind(const Instruction& pass, const Body& body, std::int32_t index) {
        const BodyBuffer& b = body.buffers[at(index)];
        const ChunkSkeleton& chunk = chunk_of(pass);
        switch (b.home) {
            case Home::input:
            case Home::output:
            case Home::input_gradient:
            case Home::output_gradient: return chunk.ring_buffer(b.home, pass.microbatch);
            case Home::slot: return slot(pass, b);
            default: break;
        }
        if (b.owned) {
            std::int32_t& known = tables_of(pass).transients[at(pass.body - chunk.first_body)][at(index)];
            if (known < 0)
                known =
                    add(StageTables::buffer(b, text(b.label, chunk.first_layer) + "'" + std::to_string(index), chunk));
            return known;
        }
        Buffer buffer = StageTables::buffer(b, "", chunk);
        const auto [entry, fresh] = places_.try_emplace(place(buffer), -1);
        if (fresh) {
            buffer.name = tensor_name(b, chunk, tables_of(pass));
            entry->second = add(std::move(buffer));
        }
        return entry->second;
    }

    std::int32_t slot(const Instruction& pass, const BodyBuffer& b) {
        const std::int32_t number = slots_of_passes_[at(pass.chunk)][at(pass.microbatch)];
        const ChunkSkeleton& chunk = chunk_of(pass);
        const auto [entry, fresh] = slots_.try_emplace({pass.chunk, b.saved, number}, -1);
        if (fresh) {
            Buffer buffer =
                StageTables::buffer(b, text(b.label, chunk.first_layer) + "#" + std::to_string(number), chunk);
            buffer.offset += chunk.stage->slot_bytes * number;
            entry->second = add(std::move(buffer));
        }
        return entry->second;
    }

    const StageSkeleton& s_;
    StageProgram& out_;
    std::vector<std::vector<std::int32_t>> slots_of_passes_;
    std::vector<ChunkTables> tables_;
    std::map<Place, std::int32_t> places_;
    std::map<std::tuple<std::int16_t, std::int32_t, std::int32_t>, std::int32_t> slots_;  // chunk, tensor, slot
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
            count += chunk.body < 0 ? 1 : static_cast<std::int64_t>(skeleton.stages[i].body(chunk).code.size());
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
