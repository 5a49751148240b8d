// The optimizer step of a stage, after its last backward pass.
#include <cmath>

#include "plan/program/pass_builder.h"

namespace foretrain {

namespace {

using Tensor = PassBuilder::Tensor;

class OptimizerBuilder {
public:
    OptimizerBuilder(const StageContext& context, Stage& stage) : c_(context), stage_(stage) {}

    // The gradients of a tied head on this stage join the embedding's; then each unit steps, its
    // gradients are cleared for the next step, and its weights are gathered again (ZeRO-1, 2).
    Body build() {
        PassBuilder b(c_, stage_, "optimizer", InstructionKind::optimizer_step);
        b.section("optimizer");
        b.end_layers(-1, {.host = {}, .stall = c_.added.stall_step + c_.added.stall_parameters});
        for (const StageUnit& u : stage_.units) {
            if (u.unit.tied_to < 0 || !u.unit.has_gradient()) continue;
            const Unit& owner = stage_.units[static_cast<std::size_t>(u.unit.tied_to)].unit;
            const std::int64_t n = c_.zero >= 1 ? u.unit.elements / c_.shards() : u.unit.elements;
            b.kernel(AccumulateArgs{n, c_.types.gradient, c_.types.gradient},
                     {b.fixed(reduced(u.unit)), b.fixed(reduced(owner))});
            clear(b, u.unit);
        }
        for (const StageUnit& u : stage_.units) {
            b.cut(u.layer);
            const UnitKind kind = stage_.unit_shapes[static_cast<std::size_t>(u.shape)].kind;
            if (u.unit.tied_to < 0) step(b, kind, u.unit);
        }
        return b.take();
    }

private:
    std::int32_t reduced(const Unit& unit) const { return c_.zero >= 1 ? unit.gradient_shard : unit.gradient; }

    void clear(PassBuilder& b, const Unit& unit) {
        const std::int32_t gradient = c_.zero >= 2 ? unit.gradient_shard : unit.gradient;
        Instruction i;
        i.kind = InstructionKind::fill;
        i.type = c_.types.gradient;
        i.count = stage_.fixed[static_cast<std::size_t>(gradient)].elements;
        i.add_operand(b.fixed(gradient));
        b.emit(i);
    }

    void step(PassBuilder& b, UnitKind kind, const Unit& unit) {
        const std::int64_t n = c_.zero >= 1 ? unit.elements / c_.shards(kind) : unit.elements;
        if (c_.parallelism.optimizer_on_host) return step_on_host(b, kind, unit, n);
        const Training& o = c_.training;
        const AdamwArgs args{.elements = n,
                             .learning_rate = o.learning_rate,
                             .beta1 = o.beta1,
                             .beta2 = o.beta2,
                             .epsilon = o.epsilon,
                             .weight_decay = o.weight_decay,
                             .master = c_.types.master,
                             .type = c_.types.weight,
                             .gradient = c_.types.gradient,
                             .optimizer = c_.types.optimizer};
        std::vector<Tensor> operands{b.fixed(c_.zero >= 1 ? unit.weight_shard : unit.weight), b.fixed(reduced(unit)),
                                     b.fixed(unit.momentum), b.fixed(unit.variance)};
        if (c_.types.master) operands.push_back(b.fixed(unit.master));
        const std::int32_t stepped = b.kernel(args, operands);
        clear(b, unit);
        gather_updated(b, kind, unit, n, stepped);
    }

    // Nothing is computed on the device while the host updates what it holds.
    void step_on_host(PassBuilder& b, UnitKind kind, const Unit& unit, std::int64_t n) {
        Instruction i;
        i.kind = InstructionKind::stall;
        i.count = std::llround(static_cast<double>(n) * c_.added.update_ps);
        const std::int32_t stepped = b.emit(i);
        clear(b, unit);
        gather_updated(b, kind, unit, n, stepped);
    }

    void gather_updated(PassBuilder& b, UnitKind kind, const Unit& unit, std::int64_t n, std::int32_t stepped) {
        if ((c_.zero != 1 && c_.zero != 2) || c_.shards(kind) == 1) return;
        Instruction i = collective(InstructionKind::all_gather, Stream::gather, c_.shard_axis(kind), c_.types.weight, n,
                                   {b.fixed(unit.weight_shard), b.fixed(unit.weight)});
        i.share = c_.added.parameter_share;
        i.add_wait({stepped, Stream::compute});
        b.emit(i);
    }

    const StageContext& c_;
    Stage& stage_;
};

}  // namespace

Body build_optimizer(const StageContext& context, Stage& stage) { return OptimizerBuilder(context, stage).build(); }

}  // namespace foretrain
