// The arguments of Megatron-LM that change neither the memory nor the work of a step, and those that say that
// something else is trained than a plan can say.
#include <algorithm>
#include <array>

#include "plan/megatron_args.h"

namespace foretrain {

namespace {

// Of data, logs, checkpoints, schedules and values.
constexpr std::array ignored{"adam-beta1",
                             "adam-beta2",
                             "adam-eps",
                             "apply-layernorm-1p",
                             "apply-query-key-layer-scaling",
                             "async-save",
                             "async-strategy",
                             "attention-softmax-in-fp32",
                             "auto-detect-ckpt-format",
                             "calculate-per-token-loss",
                             "check-weight-hash-across-dp-replicas-interval",
                             "ckpt-format",
                             "clip-grad",
                             "data-cache-path",
                             "data-path",
                             "ddp-average-in-collective",
                             "ddp-num-buckets",
                             "ddp-pad-buckets-for-high-nccl-busbw",
                             "disable-gloo-process-groups",
                             "dist-ckpt-strictness",
                             "distributed-backend",
                             "distributed-timeout-minutes",
                             "empty-unused-memory-level",
                             "enable-experimental",
                             "eod-mask-loss",
                             "eval-interval",
                             "eval-iters",
                             "exit-duration-in-mins",
                             "exit-interval",
                             "export-default-te-spec",
                             "fim-rate",
                             "fim-spm-rate",
                             "finetune",
                             "high-priority-stream-groups",
                             "init-method-std",
                             "load",
                             "log-interval",
                             "log-memory-to-tensorboard",
                             "log-num-zeros-in-grad",
                             "log-params-norm",
                             "log-progress",
                             "log-throughput",
                             "log-timers-to-tensorboard",
                             "log-validation-ppl-to-tensorboard",
                             "loss-scale",
                             "lr",
                             "lr-decay-iters",
                             "lr-decay-samples",
                             "lr-decay-style",
                             "lr-warmup-fraction",
                             "lr-warmup-iters",
                             "lr-warmup-samples",
                             "manual-gc",
                             "manual-gc-interval",
                             "merge-file",
                             "min-lr",
                             "mock-data",
                             "moe-aux-loss-coeff",
                             "moe-per-layer-logging",
                             "moe-router-bias-update-rate",
                             "moe-router-enable-expert-bias",
                             "moe-router-fusion",
                             "moe-router-group-topk",
                             "moe-router-load-balancing-type",
                             "moe-router-num-groups",
                             "moe-router-pre-softmax",
                             "moe-router-score-function",
                             "moe-router-topk-scaling-factor",
                             "moe-z-loss-coeff",
                             "mscale",
                             "mscale-all-dim",
                             "no-bias-gelu-fusion",
                             "no-bias-swiglu-fusion",
                             "no-check-for-nan-in-loss-and-grad",
                             "no-load-optim",
                             "no-load-rng",
                             "no-mmap-bin-files",
                             "no-persist-layer-norm",
                             "no-rope-fusion",
                             "no-save-optim",
                             "no-use-layer-wise-param-layout",
                             "no-use-tokenizer-model-from-checkpoint-args",
                             "norm-epsilon",
                             "num-dataset-builder-threads",
                             "num-workers",
                             "override-opt_param-scheduler",
                             "overlap-param-gather",
                             "overlap-p2p-communication-warmup-flush",
                             "profile",
                             "rerun-mode",
                             "rotary-interleaved",
                             "rotary-scaling-factor",
                             "save",
                             "save-interval",
                             "save-retain-interval",
                             "seed",
                             "spec",
                             "split",
                             "straggler-minmax-count",
                             "tensorboard-dir",
                             "te-rng-tracker",
                             "test-mode",
                             "tiktoken-pattern",
                             "timing-log-level",
                             "timing-log-option",
                             "tokenizer-model",
                             "train-iters",
                             "train-samples",
                             "use-checkpoint-args",
                             "use-checkpoint-opt_param-scheduler",
                             "use-dist-ckpt",
                             "use-flash-attn",
                             "use-mcore-models",
                             "verify-integrity",
                             "vocab-file",
                             "wandb-entity",
                             "wandb-exp-name",
                             "wandb-project",
                             "weight-decay",
                             "weight-decay-incr-style"};

// An argument that says that something else is trained, or in another way.
struct Beyond {
    const char* argument;
    const char* value;  // nullptr: whatever it is
    const char* what;
};
constexpr std::array beyond{Beyond{"perform-rl-step", nullptr, "reinforcement learning"},
                            Beyond{"model-provider", nullptr, "multimodal"},
                            Beyond{"img-h", nullptr, "multimodal"},
                            Beyond{"flextron", nullptr, "Flextron"},
                            Beyond{"export-kd-cfg", nullptr, "distillation"},
                            Beyond{"is-hybrid-model", nullptr, "Mamba hybrid"},
                            Beyond{"hybrid-layer-pattern", nullptr, "Mamba hybrid"},
                            Beyond{"hybrid-override-pattern", nullptr, "Mamba hybrid"},
                            Beyond{"decoder-num-layers", nullptr, "T5"},
                            Beyond{"bert-no-binary-head", nullptr, "BERT"},
                            Beyond{"optimizer", "muon", "Muon"},
                            Beyond{"optimizer", "dist_muon", "Muon"},
                            Beyond{"optimizer", "sgd", "SGD"},
                            Beyond{"cuda-graph-impl", nullptr, "CUDA graphs"},
                            Beyond{"mtp-num-layers", nullptr, "multi-token prediction"},
                            Beyond{"fp8-format", nullptr, "fp8"},
                            Beyond{"fp4-format", nullptr, "fp4"},
                            Beyond{"cpu-offloading", nullptr, "activation offload"},
                            Beyond{"optimizer-cpu-offload", nullptr, "optimizer offload"}};

}  // namespace

bool megatron_ignores(std::string_view name) {
    return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
}

std::string megatron_beyond(const MegatronArguments& arguments, const MegatronSetting& setting) {
    static const std::map<std::string, std::string> families{{"bert", "BERT"},
                                                             {"t5", "T5"},
                                                             {"hybrid", "Mamba hybrid"},
                                                             {"multimodal-llava", "multimodal"},
                                                             {"mimo", "multimodal"}};
    for (const Beyond& b : beyond) {
        const auto found = arguments.find(b.argument);
        if (found != arguments.end() && (b.value == nullptr || found->second == b.value)) return b.what;
    }
    const auto family = families.find(setting.family);
    return family == families.end() ? "" : family->second;
}

}  // namespace foretrain
