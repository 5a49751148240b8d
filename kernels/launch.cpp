#include "base/error.h"
#include "kernels/kernel_table.h"

namespace foretrain {

namespace {

// Picks the table's function by the type of the arguments.
struct Launch {
    const KernelTable& table;
    const KernelContext& context;

    void operator()(const GemmArgs& a) const { table.gemm(a, context); }
    void operator()(const BiasGradientArgs& a) const { table.bias_gradient(a, context); }
    void operator()(const NormForwardArgs& a) const { table.norm_forward(a, context); }
    void operator()(const NormBackwardArgs& a) const { table.norm_backward(a, context); }
    void operator()(const GeluArgs& a) const { table.gelu(a, context); }
    void operator()(const SwigluArgs& a) const { table.swiglu(a, context); }
    void operator()(const RopeArgs& a) const { table.rope(a, context); }
    void operator()(const QkNormArgs& a) const { table.qk_norm(a, context); }
    void operator()(const AttentionForwardArgs& a) const { table.attention_forward(a, context); }
    void operator()(const AttentionBackwardArgs& a) const { table.attention_backward(a, context); }
    void operator()(const RingAttentionArgs& a) const { table.ring_attention(a, context); }
    void operator()(const KeyValueArgs& a) const { table.key_value(a, context); }
    void operator()(const RelayoutArgs& a) const { table.relayout(a, context); }
    void operator()(const EmbeddingArgs& a) const { table.embedding(a, context); }
    void operator()(const PositionsArgs& a) const { table.positions(a, context); }
    void operator()(const ResidualAddArgs& a) const { table.residual_add(a, context); }
    void operator()(const AccumulateArgs& a) const { table.accumulate(a, context); }
    void operator()(const CastArgs& a) const { table.cast(a, context); }
    void operator()(const LossArgs& a) const { table.loss(a, context); }
    void operator()(const AdamwArgs& a) const { table.adamw(a, context); }
    // Predicted only: check_runnable refuses the models that have them.
    void operator()(const RouterArgs&) const { throw InternalError("no kernel routes tokens to experts"); }
    void operator()(const PermuteArgs&) const { throw InternalError("no kernel permutes the tokens of experts"); }
    void operator()(const LatentPackArgs&) const { throw InternalError("no kernel packs latent attention"); }
};

}  // namespace

void launch(const KernelTable& table, const KernelArgs& args, const KernelContext& context) {
    std::visit(Launch{table, context}, args);
}

}  // namespace foretrain
