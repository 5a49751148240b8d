// Rules of layers with experts: how ranks share them out, and which layers the program knows.
#include <fmt/format.h>

#include "plan/check_rules.h"

namespace foretrain::check_rules {

namespace {

void check_without_experts(const Plan& plan, std::vector<Rejection>& out) {
    for (const auto& [field, ranks] : {std::pair{"parallelism.expert", plan.parallelism.expert},
                                       std::pair{"parallelism.expert_tensor", plan.parallelism.expert_tensor}})
        if (ranks != 1)
            out.push_back({.reason = "experts_to_share_out",
                           .field = field,
                           .found = std::to_string(ranks),
                           .rule = "shares out experts, of which the model has none",
                           .allowed = "1",
                           .suggestion = "1"});
    if (plan.training.expert_imbalance != 0)
        out.push_back({.reason = "imbalance_of_experts",
                       .field = "training.expert_imbalance",
                       .found = fmt::format("{:g}", plan.training.expert_imbalance),
                       .rule = "is of experts, of which the model has none",
                       .allowed = "left out"});
}

void check_imbalance(const Plan& plan, std::vector<Rejection>& out) {
    const double most = plan.parallelism.most_imbalance(plan.model.moe);
    if (plan.training.expert_imbalance > most)
        out.push_back({.reason = "imbalance_of_experts",
                       .field = "training.expert_imbalance",
                       .found = fmt::format("{:g}", plan.training.expert_imbalance),
                       .rule = "is more than the busiest rank's experts can get",
                       .allowed = fmt::format("1 to {:g}: at most the expert ranks, and experts / topk", most),
                       .suggestion = fmt::format("{:g}", most)});
}

// The tokens that a rank routes are its own rows of the residual stream.
void check_rows(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    // Others share experts by part of the tensor ranks too; our engine was never proven with those.
    const Framework* f = find_framework(plan.framework);
    const bool part = f != nullptr && !f->runnable && p.tensor % p.expert_tensor == 0;
    if (p.expert_tensor != 1 && p.expert_tensor != p.tensor && !part)
        out.push_back({.reason = "expert_tensor_is_one_or_tensor",
                       .field = "parallelism.expert_tensor",
                       .found = std::to_string(p.expert_tensor),
                       .rule = "ranks that share an expert's matrices are tensor ranks",
                       .allowed = f != nullptr && f->runnable ? fmt::format("1, {}", p.tensor)
                                                              : fmt::format("divisors of {}", p.tensor),
                       .suggestion = "1"});
    if (p.tensor > 1 && !p.sequence_parallel)
        out.push_back({.reason = "experts_need_sequence_parallel",
                       .field = "parallelism.sequence_parallel",
                       .found = "false",
                       .rule = fmt::format("tensor = {} ranks route tokens of their own to experts, as Megatron-LM "
                                           "demands",
                                           p.tensor),
                       .allowed = "true",
                       .suggestion = "true"});
}

void check_layers(const Plan& plan, std::vector<Rejection>& out) {
    const ModelSpec& m = plan.model;
    if (m.is_parallel() || m.post_norms)
        out.push_back({.reason = "experts_in_sequential_blocks",
                       .field = "model.moe",
                       .found = m.is_parallel() ? "experts beside attention" : "experts behind a norm of their own",
                       .rule = "is described only where experts follow attention, and their sum joins the residual "
                               "stream"});
    if (plan.parallelism.zero_shard_size > 0)
        out.push_back({.reason = "experts_shard_over_all",
                       .field = "parallelism.zero_shard_size",
                       .found = std::to_string(plan.parallelism.zero_shard_size),
                       .rule = "of a model with experts all ranks that hold the same share out its state",
                       .allowed = "0",
                       .suggestion = "0"});
}

}  // namespace

void check_experts(const Plan& plan, std::vector<Rejection>& out) {
    const ModelSpec& m = plan.model;
    const Parallelism& p = plan.parallelism;
    if (!m.has_experts()) return check_without_experts(plan, out);
    check_rows(plan, out);
    check_layers(plan, out);
    check_imbalance(plan, out);
    if (m.moe.experts % p.expert != 0)
        out.push_back(must_divide("expert_divides_experts", "parallelism.expert", p.expert, "experts", m.moe.experts));
    if (m.moe.ffn_hidden_size % p.expert_tensor != 0)
        out.push_back(must_divide("expert_tensor_divides_ffn", "parallelism.expert_tensor", p.expert_tensor,
                                  "moe.ffn_hidden_size", m.moe.ffn_hidden_size));
    const std::optional<std::int64_t> ranks = product({p.tensor, p.context, p.data});
    const std::optional<std::int64_t> sharing = product({p.expert, p.expert_tensor});
    if (ranks && sharing && *ranks % *sharing != 0)
        out.push_back(
            {.reason = "expert_divides_stage",
             .field = "parallelism.expert",
             .found = std::to_string(p.expert),
             .rule = fmt::format("expert x expert_tensor = {} must divide the {} ranks of a stage", *sharing, *ranks)});
}

}  // namespace foretrain::check_rules
