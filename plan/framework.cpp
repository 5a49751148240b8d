#include "plan/framework.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

// Our own engine: it holds nothing outside its regions but what the device states.
Framework foretrain_profile() {
    using Kind = Recompute::Kind;
    return {.name = "foretrain",
            .version = "0.1",
            .runnable = true,
            .zero_stages = {0, 1, 2, 3},
            .zero_stages_in_part = {1, 2, 3},
            .schedules = {Schedule::gpipe, Schedule::one_f_one_b},
            .interleaves = true,
            .precisions = {DType::fp32, DType::fp64, DType::bf16, DType::fp16},
            .recompute = {Kind::none, Kind::selective, Kind::full, Kind::block, Kind::segment, Kind::every},
            .context_methods = {ContextMethod::ring, ContextMethod::all_to_all},
            .default_sequence_parallel = false,
            .vocab_multiple = 1,
            .loss_fp32_copy = false,
            .recompute_stops_early = true,
            .reserved = Bytes{0},
            .sources = {"this engine's own rules: plan/program"}};
}

Framework megatron_profile() {
    using Kind = Recompute::Kind;
    const std::string repo = "github:NVIDIA/Megatron-LM@d98e8a64ddf3 ";
    return {
        .name = "megatron-lm",
        .version = "d98e8a64ddf3",
        .runnable = false,
        .zero_stages = {0, 1},
        .zero_stages_in_part = {1},
        .schedules = {Schedule::one_f_one_b},
        .interleaves = true,
        .precisions = {DType::bf16, DType::fp16, DType::fp32},
        .recompute = {Kind::none, Kind::selective, Kind::full, Kind::block, Kind::segment},
        .context_methods = {ContextMethod::ring, ContextMethod::all_to_all},
        .default_sequence_parallel = true,
        .vocab_multiple = 128,
        .loss_fp32_copy = true,
        .recompute_stops_early = false,
        .reserved = Bytes{0},
        .sources = {
            "zero_stages: " + repo +
                "docs/user-guide/features/dist_optimizer.md: the distributed optimizer shards "
                "optimizer state (stage 1); stages 2 and 3 are its FSDP, another profile",
            "zero_stages_in_part: " + repo +
                "megatron/core/distributed/param_and_grad_buffer.py: several distributed optimizer instances, "
                "each over its part of the replicas, and an all-reduce of the shards over them",
            "schedules: " + repo + "megatron/core/pipeline_parallel/schedules.py (1F1B; no GPipe)",
            "interleaves: " + repo +
                "megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving",
            "precisions: " + repo + "docs/user-guide/features/dist_optimizer.md (bf16, fp16, fp32)",
            "recompute: " + repo +
                "megatron/core/transformer/transformer_config.py: selective (core_attn), full with "
                "method block (block) or uniform (segment)",
            "context_methods: github:NVIDIA/TransformerEngine@015d22571b33 "
            "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, which its attention "
            "calls: cp_comm_type p2p (ring) and a2a (all-to-all); all_gather and a2a+p2p are not described here",
            "default_sequence_parallel: arXiv:2205.05198, the setting of its published runs; the option's own default "
            "is off",
            "vocab_multiple: " + repo + "megatron/training/vocab_utils.py, make_vocab_size_divisible_by",
            "loss_fp32_copy: " + repo +
                "megatron/core/tensor_parallel/cross_entropy.py; six bytes a logit reproduce "
                "its golden memory values to 1-2 %",
            "recompute_stops_early: " + repo +
                "megatron/core/tensor_parallel/random.py, CheckpointFunction runs the whole segment again",
            "reserved: none known beyond the device's own context and communicators"}};
}

const std::vector<Framework>& profiles() {
    static const std::vector<Framework> all{foretrain_profile(), megatron_profile()};
    return all;
}

}  // namespace

const Framework* find_framework(std::string_view name) {
    for (const Framework& f : profiles())
        if (f.name == name) return &f;
    return nullptr;
}

const Framework& framework_named(std::string_view name) {
    if (const Framework* f = find_framework(name)) return *f;
    const std::vector<std::string> names = framework_names();
    throw UserError({.field = "framework",
                     .found = fmt::format("\"{}\"", name.substr(0, 80)),
                     .expected = fmt::format("one of {}", fmt::join(names, ", ")),
                     .suggestion = nearest(name.substr(0, 80), names)});
}

std::vector<std::string> framework_names() {
    std::vector<std::string> names;
    for (const Framework& f : profiles()) names.push_back(f.name);
    return names;
}

StateTypes state_types(DType precision) {
    if (precision == DType::bf16 || precision == DType::fp16)
        return {.weight = precision, .gradient = DType::fp32, .optimizer = DType::fp32, .master = true};
    return {.weight = precision, .gradient = precision, .optimizer = precision, .master = false};
}

std::int64_t padded_vocabulary(const ModelSpec& model, const Framework& framework, std::int64_t tensor_ranks) {
    return round_up(model.vocab_size, framework.vocab_multiple * tensor_ranks);
}

}  // namespace foretrain
