#include "plan/program/body_passes.h"

#include <algorithm>

#include "base/error.h"
#include "plan/program/stage_state.h"

namespace foretrain {

namespace {

// A collective that the report counts where its unit is used.
Instruction in_section(Instruction i, std::int32_t section) {
    i.section = section;
    return i;
}

// What compute loses to a collective over the replicas that runs beside it.
Instruction stall_beside(const Instruction& collective, std::int16_t share) {
    Instruction i;
    i.kind = InstructionKind::stall;
    i.like = collective.kind;
    i.axis = collective.axis;
    i.type = collective.type;
    i.count = collective.count;
    i.section = collective.section;
    i.share = share;
    return i;
}

Instruction marker(Stream stream) {
    Instruction i;
    i.kind = InstructionKind::record;
    i.stream = stream;
    return i;
}

std::int32_t add_buffer(Body& body, BodyBuffer buffer) {
    body.buffers.push_back(buffer);
    return static_cast<std::int32_t>(body.buffers.size()) - 1;
}

const StageUnit& unit_at(const Stage& stage, std::int32_t unit) { return stage.units[static_cast<std::size_t>(unit)]; }

const UnitShape& shape_of(const Stage& stage, std::int32_t unit) {
    return stage.unit_shapes[static_cast<std::size_t>(unit_at(stage, unit).shape)];
}

const BodyBuffer& fixed_at(const Stage& stage, std::int32_t index) {
    return stage.fixed[static_cast<std::size_t>(index)];
}

// The unit that holds the weight: itself, or the one it is tied to.
std::int32_t weight_owner(const Stage& stage, std::int32_t unit) {
    const std::int32_t tied = unit_at(stage, unit).unit.tied_to;
    return tied < 0 ? unit : tied;
}

template <class F>
void for_operands(const Body& body, const Instruction& i, Home home, F&& f) {
    for (int o = 0; o < i.operands; ++o) {
        const std::int32_t b = i.operand[static_cast<std::size_t>(o)];
        if (body.buffers[static_cast<std::size_t>(b)].home == home) f(b);
    }
}

void resolve_weights_in_place(const Stage& stage, Body& body) {
    for (BodyBuffer& b : body.buffers) {
        if (b.home != Home::unit_weight) continue;
        b.home = Home::fixed;
        b.offset += fixed_at(stage, unit_at(stage, weight_owner(stage, b.unit)).unit.weight).offset;
    }
}

class GatherPass {
public:
    GatherPass(const StageContext& c, const Stage& stage, Body& body)
        : c_(c),
          stage_(stage),
          body_(body),
          runs_(weight_uses(stage, body)),
          rewriter_(body),
          entry_(gathered_entry_bytes(c, stage)),
          gathers_(runs_.size(), -1),
          last_used_(runs_.size(), -1) {}

    void run() {
        start_ = rewriter_.insert(marker(Stream::compute));
        if (prefetch()) gather(0), gather(1);
        std::size_t now = 0;  // the run that instruction i belongs to or comes before
        const auto n = static_cast<std::int32_t>(body_.code.size());
        for (std::int32_t i = 0; i < n; ++i) {
            while (now < runs_.size() && i > runs_[now].last) ++now;
            const bool begins = now < runs_.size() && i == runs_[now].first;
            if (begins && prefetch() && now >= 1) {
                stall_beside_gather(now);
                gather(now + 1);
            }
            if (begins && !prefetch()) gather(now);
            const std::int32_t kept = rewriter_.keep(i);
            if (rewriter_.at(kept).stream != Stream::host) latest_ = kept;
            if (begins) rewriter_.at(kept).add_wait({gathers_[now], Stream::gather});
            if (now < runs_.size() && i == runs_[now].last) last_used_[now] = kept;
            bind(i, now);
        }
        rewriter_.finish();
    }

private:
    bool prefetch() const { return c_.parallelism.overlap.parameter_gather; }
    static constexpr std::size_t entries = static_cast<std::size_t>(ring_entries);

    Bytes ring_offset(std::size_t run) const { return entry_ * static_cast<std::int64_t>(run % entries); }

    void gather(std::size_t run) {
        if (run >= runs_.size()) return;
        const Unit& unit = unit_at(stage_, runs_[run].unit).unit;
        const BodyBuffer shard = fixed_at(stage_, unit.weight_shard);
        const std::int32_t part = add_buffer(body_, shard);
        const std::int32_t whole = add_buffer(body_, {.label = {"gathered", shard.label.layer},
                                                      .region = Region::gathered,
                                                      .type = shard.type,
                                                      .elements = unit.elements,
                                                      .offset = ring_offset(run)});
        const std::int32_t section = body_.code[static_cast<std::size_t>(runs_[run].first)].section;
        const UnitKind kind = shape_of(stage_, runs_[run].unit).kind;
        Instruction i = in_section(collective(InstructionKind::all_gather, Stream::gather, c_.shard_axis(kind),
                                              shard.type, unit.elements / c_.shards(kind), {part, whole}),
                                   section);
        const bool ring_is_free = run < entries;
        i.add_wait({ring_is_free ? start_ : last_used_[run - entries], Stream::compute});
        if (!prefetch() && latest_ >= 0) i.add_wait({latest_, rewriter_.at(latest_).stream});
        i.share = c_.added.data_share;
        gathers_[run] = rewriter_.insert(i);
    }

    void stall_beside_gather(std::size_t run) {
        if (c_.added.beside_data_share == 0) return;
        rewriter_.insert(stall_beside(rewriter_.at(gathers_[run]), c_.added.beside_data_share));
    }

    void bind(std::int32_t i, std::size_t run) {
        for_operands(body_, body_.code[static_cast<std::size_t>(i)], Home::unit_weight, [&](std::int32_t b) {
            BodyBuffer& buffer = body_.buffers[static_cast<std::size_t>(b)];
            buffer.home = Home::fixed;
            buffer.region = Region::gathered;
            buffer.offset += ring_offset(run);
        });
    }

    const StageContext& c_;
    const Stage& stage_;
    Body& body_;
    std::vector<UnitUse> runs_;
    Rewriter rewriter_;
    Bytes entry_;
    std::vector<std::int32_t> gathers_, last_used_;
    std::int32_t start_ = -1;
    std::int32_t latest_ = -1;
};

class ReducePass {
public:
    ReducePass(const StageContext& c, const Stage& stage, std::vector<KernelArgs>& kernels, Body& body,
               bool last_microbatch)
        : c_(c),
          stage_(stage),
          kernels_(kernels),
          body_(body),
          rewriter_(body),
          staged_(c.zero >= 2),
          last_microbatch_(last_microbatch),
          reduces_(staged_ || last_microbatch) {}

    void run() {
        find_contributions();
        bind_gradients();
        if (staged_) entry_ = rewriter_.insert(marker(Stream::reduce));
        const auto n = static_cast<std::int32_t>(body_.code.size());
        for (std::int32_t i = 0; i < n; ++i) {
            const std::int32_t kept = rewriter_.keep(i);
            if (!reduces_) continue;
            for (Contribution& u : contributions_) {
                if (staged_ && u.first == i) wait_for_ring(kept, u);
                if (u.last != i) continue;
                u.written = kept;
                if (overlaps()) reduce(u);
            }
        }
        if (reduces_ && !overlaps())
            for (Contribution& u : contributions_) {
                tail_.push_back({rewriter_.size(), unit_at(stage_, u.unit).layer});
                u.written = rewriter_.size() - 1 - behind_;
                reduce(u);
            }
        rewriter_.finish();
        body_.cuts.insert(body_.cuts.end(), tail_.begin(), tail_.end());
    }

private:
    struct Contribution : UnitUse {  // by the old numbering
        std::int32_t written = -1;   // last writer, new numbering
        std::int32_t done = -1;      // end of the chain that reduces it
        std::size_t order = 0;
    };

    bool overlaps() const { return staged_ || c_.parallelism.overlap.gradient_reduce; }

    void find_contributions() {
        for (const UnitUse& use : gradient_uses(body_)) {
            Contribution u;
            static_cast<UnitUse&>(u) = use;
            u.order = contributions_.size();
            contributions_.push_back(u);
        }
    }

    Bytes ring_offset(const Contribution& u) const {
        return staging_entry_bytes(c_, stage_) * static_cast<std::int64_t>(u.order % ring_entries);
    }

    void bind_gradients() {
        for (BodyBuffer& b : body_.buffers) {
            if (b.home != Home::unit_gradient) continue;
            b.home = Home::fixed;
            if (staged_) {
                const auto u = std::find_if(contributions_.begin(), contributions_.end(),
                                            [&](const Contribution& x) { return x.unit == b.unit; });
                b.region = Region::staging;
                b.offset += ring_offset(*u);
            } else {
                b.offset += fixed_at(stage_, unit_at(stage_, b.unit).unit.gradient).offset;
            }
        }
    }

    void wait_for_ring(std::int32_t writer, const Contribution& u) {
        const bool fresh = u.order < ring_entries;
        const std::int32_t before = fresh ? entry_ : contributions_[u.order - ring_entries].done;
        rewriter_.at(writer).add_wait({before, Stream::reduce});
    }

    // The unit's gradients as one buffer: in its main gradients or in the ring.
    BodyBuffer whole(const Contribution& u) const {
        const Unit& unit = unit_at(stage_, u.unit).unit;
        if (!staged_) return fixed_at(stage_, unit.gradient);
        return {.label = {"staged_gradient", unit_at(stage_, u.unit).layer},
                .region = Region::staging,
                .type = c_.types.gradient,
                .elements = unit.elements,
                .offset = ring_offset(u)};
    }

    void reduce(Contribution& u) {
        const std::int32_t before = rewriter_.size();
        const Wait written{u.written, Stream::compute};
        sum_replicated(u, written);
        sum_over_replicas(u, written);
        u.done = rewriter_.size() - 1;
        if (!c_.reduces_whole && c_.shard_groups() > 1 && last_microbatch_) sum_over_groups(u);
        behind_ += rewriter_.size() - before;
        // As if what runs beside it took as long as what ran before it: in a pass over one layer there is no other.
        if (overlaps() && c_.added.beside_data_share > 0 && c_.replicas(kind_of(u)) > 1)
            rewriter_.insert(stall_beside(rewriter_.at(reduced_), c_.added.beside_data_share));
    }

    void sum_replicated(Contribution& u, Wait written) {
        const UnitShape& shape = shape_of(stage_, u.unit);
        const bool over_tokens = c_.parallelism.sequence_parallel;
        const std::int64_t end = over_tokens ? shape.offsets.back() : shape.over_heads_to;
        const std::int64_t count = end - shape.replicated_from;
        if (c_.parallelism.tensor == 1 || count <= 0) return;
        BodyBuffer part = whole(u);
        part.elements = count;
        part.offset += Bytes{shape.replicated_from * size_of(part.type)};
        part.label.what = "replicated_gradient";
        Instruction i = in_section(collective(InstructionKind::all_reduce, Stream::reduce, Axis::tensor, part.type,
                                              count, {add_buffer(body_, part)}),
                                   section_of(u));
        i.add_wait(written);
        rewriter_.insert(i);
    }

    void sum_over_replicas(Contribution& u, Wait written) {
        const UnitKind kind = kind_of(u);
        if (c_.replicas(kind) == 1 && !staged_) return;
        const Unit& unit = unit_at(stage_, u.unit).unit;
        const std::int64_t part_count = unit.elements / c_.shards(kind);
        const BodyBuffer all = whole(u);
        const std::int32_t from = add_buffer(body_, all);
        Instruction i;
        if (c_.reduces_whole) {
            i = collective(InstructionKind::all_reduce, Stream::reduce, c_.replica_axis(kind), all.type, unit.elements,
                           {from});
        } else {
            const std::int32_t to =
                add_buffer(body_, staged_ ? staged_shard(u, part_count) : fixed_at(stage_, unit.gradient_shard));
            i = collective(InstructionKind::reduce_scatter, Stream::reduce, c_.shard_axis(kind), all.type, part_count,
                           {from, to});
        }
        i.section = section_of(u);
        i.share = c_.added.data_share;
        i.add_wait(written);
        reduced_ = rewriter_.insert(i);
        if (staged_) accumulate(u, part_count, i.operand[1]);
    }

    // The step's sum of a shard over the groups that each hold all shards: behind its last part on the
    // same stream. The ring does not wait for it.
    void sum_over_groups(const Contribution& u) {
        const BodyBuffer shard = fixed_at(stage_, unit_at(stage_, u.unit).unit.gradient_shard);
        rewriter_.insert(in_section(collective(InstructionKind::all_reduce, Stream::reduce, Axis::replicate, shard.type,
                                               shard.elements, {add_buffer(body_, shard)}),
                                    section_of(u)));
    }

    BodyBuffer staged_shard(const Contribution& u, std::int64_t count) const {
        return {.label = {"staged_shard", unit_at(stage_, u.unit).layer},
                .region = Region::staging,
                .type = c_.types.gradient,
                .elements = count,
                .offset = ring_offset(u) + staging_shard_offset(c_, stage_)};
    }

    void accumulate(const Contribution& u, std::int64_t count, std::int32_t from) {
        const KernelArgs args = AccumulateArgs{count, c_.types.gradient, c_.types.gradient};
        const auto found = std::find(kernels_.begin(), kernels_.end(), args);
        Instruction i;
        i.stream = Stream::reduce;
        i.kernel = static_cast<std::int32_t>(found - kernels_.begin());
        if (found == kernels_.end()) kernels_.push_back(args);
        i.section = section_of(u);
        i.add_operand(from);
        i.add_operand(add_buffer(body_, fixed_at(stage_, unit_at(stage_, u.unit).unit.gradient_shard)));
        rewriter_.insert(i);
    }

    UnitKind kind_of(const Contribution& u) const { return shape_of(stage_, u.unit).kind; }

    std::int32_t section_of(const Contribution& u) const {
        return body_.code[static_cast<std::size_t>(u.last)].section;
    }

    const StageContext& c_;
    const Stage& stage_;
    std::vector<KernelArgs>& kernels_;
    Body& body_;
    Rewriter rewriter_;
    bool staged_, last_microbatch_, reduces_;
    std::vector<Contribution> contributions_;  // in the order of their first write
    std::int32_t entry_ = -1;
    std::vector<Cut> tail_;      // of reductions after all passes
    std::int32_t reduced_ = -1;  // the last collective over the replicas
    std::int32_t behind_ = 0;    // instructions inserted after the last compute instruction
};

}  // namespace

std::vector<UnitUse> weight_uses(const Stage& stage, const Body& body) {
    std::vector<UnitUse> uses;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.code.size()); ++i)
        for_operands(body, body.code[static_cast<std::size_t>(i)], Home::unit_weight, [&](std::int32_t b) {
            const std::int32_t unit = weight_owner(stage, body.buffers[static_cast<std::size_t>(b)].unit);
            if (uses.empty() || uses.back().unit != unit) uses.push_back({unit, i, i});
            uses.back().last = i;
        });
    return uses;
}

std::vector<UnitUse> gradient_uses(const Body& body) {
    std::vector<UnitUse> uses;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(body.code.size()); ++i)
        for_operands(body, body.code[static_cast<std::size_t>(i)], Home::unit_gradient, [&](std::int32_t b) {
            const std::int32_t unit = body.buffers[static_cast<std::size_t>(b)].unit;
            auto u = std::find_if(uses.begin(), uses.end(), [&](const UnitUse& x) { return x.unit == unit; });
            if (u == uses.end()) u = uses.insert(u, {unit, i, i});
            u->last = i;
        });
    return uses;
}

void add_parameter_gather(const StageContext& context, const Stage& stage, Body& body) {
    if (context.zero < 3)
        resolve_weights_in_place(stage, body);
    else
        GatherPass(context, stage, body).run();
}

void add_gradient_reduce(const StageContext& context, const Stage& stage, std::vector<KernelArgs>& kernels, Body& body,
                         bool last_microbatch) {
    ReducePass(context, stage, kernels, body, last_microbatch).run();
}

}  // namespace foretrain
