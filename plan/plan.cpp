#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace foretrain {

std::int64_t boundary_elements(const ModelSpec& model, const Training& training, const Parallelism& p) {
    return p.rows(training.sequence_length) * model.hidden_size;
}

std::string_view name_of(Schedule schedule) { return schedule == Schedule::gpipe ? "gpipe" : "1f1b"; }

std::string_view name_of(ContextMethod method) { return method == ContextMethod::ring ? "ring" : "all-to-all"; }

std::string_view name_of(Recompute::Kind kind) {
    switch (kind) {
        case Recompute::Kind::none: return "none";
        case Recompute::Kind::selective: return "selective";
        case Recompute::Kind::full: return "full";
        case Recompute::Kind::block: return "block N";
        case Recompute::Kind::segment: return "segment N";
        case Recompute::Kind::every: return "every N";
        case Recompute::Kind::operators: return "selective_op";
        case Recompute::Kind::offload: return "offload N";
    }
    return "?";
}

std::string describe(const Recompute& recompute) {
    switch (recompute.kind) {
        case Recompute::Kind::none: return "none";
        case Recompute::Kind::selective: return "selective";
        case Recompute::Kind::full: return "full";
        case Recompute::Kind::block: return fmt::format("block {}", recompute.layers);
        case Recompute::Kind::segment: return fmt::format("segment {}", recompute.layers);
        case Recompute::Kind::every: return fmt::format("every {}", recompute.layers);
        case Recompute::Kind::operators: return "selective_op";
        case Recompute::Kind::offload: return fmt::format("offload {}", recompute.layers);
    }
    return "?";
}

std::string describe_zero(const Parallelism& p) {
    return p.zero_shard_size == 0 ? fmt::format("{}", p.zero_stage)
                                  : fmt::format("{}/{}", p.zero_stage, p.zero_shard_size);
}

std::string describe(const Parallelism& p) {
    std::string s = fmt::format("tp {}", p.tensor);
    if (p.context != 1) s += fmt::format(" cp {} {}", p.context, name_of(p.context_method));
    if (p.expert != 1) s += fmt::format(" ep {}", p.expert);
    if (p.expert_tensor != 1) s += fmt::format(" etp {}", p.expert_tensor);
    s += fmt::format(" pp {}", p.pipeline);
    if (p.virtual_pipeline != 1) s += fmt::format(" v {}", p.virtual_pipeline);
    s += fmt::format(" dp {} zero {} mbs {} {}{} recompute {}", p.data, describe_zero(p), p.micro_batch_size,
                     name_of(p.schedule), p.sequence_parallel ? " sp" : "", describe(p.recompute));
    if (p.optimizer_on_host) s += " optimizer on host";
    if (!p.stage_layers.empty()) s += fmt::format(" layers {}", fmt::join(p.stage_layers, ","));
    if (p.first_stage_layers != 0) s += fmt::format(" first {}", p.first_stage_layers);
    if (p.last_stage_layers != 0) s += fmt::format(" last {}", p.last_stage_layers);
    if (p.embedding_and_head_as_layers) s += " embedding and head as layers";
    return s;
}

std::string_view name_of(AttentionKind kind) {
    switch (kind) {
        case AttentionKind::unfused: return "unfused";
        case AttentionKind::flash1: return "flash1";
        case AttentionKind::flash2: return "flash2";
        case AttentionKind::flash3: return "flash3";
        case AttentionKind::cudnn: return "cudnn";
    }
    return "?";
}

std::string_view name_of(CrossEntropy kind) {
    switch (kind) {
        case CrossEntropy::fp32_copy: return "fp32-copy";
        case CrossEntropy::native: return "native";
        case CrossEntropy::fused: return "fused";
    }
    return "?";
}

}  // namespace foretrain
