#include "plan/megatron_mapping.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace foretrain {

namespace {

std::int64_t round_to(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& expected) {
    throw Unsupported({.field = field, .found = found, .expected = expected});
}

// ---- model ----------------------------------------------------------------------------------

// The vocabularies of tokenizers by name (megatron/core/tokenizers; GPT-2's is the one of its default files).
std::int64_t vocabulary(MegatronReader& args, std::vector<std::string>& assumed) {
    const std::string type = args.text("tokenizer-type", "GPT2BPETokenizer"), model = args.text("tokenizer-model");
    const std::int64_t extra = args.integer("vocab-extra-ids", 0);
    if (args.flag("vocab-size")) return args.integer("vocab-size", 0) + extra;
    std::int64_t size = 50257;
    if (model.find("nemotron_2_256k") != std::string::npos)
        size = 256000;
    else if (type == "Llama2Tokenizer")
        size = 32000;
    else if (type == "BertWordPieceCase")
        size = 28996;
    else if (type != "GPT2BPETokenizer")
        assumed.push_back(fmt::format("a vocabulary of {}: {} is not known", size, type));
    return size + extra;
}

Json positions_of(MegatronReader& args) {
    const std::string type = args.text("position-embedding-type", "learned_absolute");
    if (args.flag("use-rotary-position-embeddings") || type == "rope") return Json("rope");
    if (type == "learned_absolute") return Json("learned");
    if (type == "none") return Json("none");
    refuse("--position-embedding-type", type, "learned_absolute, rope or none");
}

void set_rotation(MegatronReader& args, std::int64_t head_dim, Json& model) {
    const double theta = args.number("rotary-base", 10000), share = args.number("rotary-percent", 1);
    if (model.at("positions").string() != "rope") return;
    model.set("rope_theta", theta);
    if (share < 1) model.set("rotary_dim", static_cast<std::int64_t>(share * static_cast<double>(head_dim)));
}

// "([0]*3+[1]*11)" by its elements; a whole number N is every N-th layer.
std::vector<int> routed_layers(const std::string& pattern) {
    std::vector<int> out;
    std::size_t at = 0;
    const auto number = [&] {
        std::int64_t n = 0;
        for (; at < pattern.size() && '0' <= pattern[at] && pattern[at] <= '9'; ++at)
            n = std::min<std::int64_t>(n * 10 + (pattern[at] - '0'), 10000);
        return n;
    };
    while (at < pattern.size()) {
        if (pattern[at] != '[') {
            ++at;
            continue;
        }
        std::vector<int> piece;
        for (++at; at < pattern.size() && pattern[at] != ']'; ++at)
            if (pattern[at] == '0' || pattern[at] == '1') piece.push_back(pattern[at] - '0');
        std::int64_t times = 1;
        if (at + 1 < pattern.size() && pattern[at + 1] == '*') at += 2, times = number();
        for (; times > 0; --times) out.insert(out.end(), piece.begin(), piece.end());
    }
    return out;
}

// Which layers have experts, as far as a plan can say: all after the first few, or each n-th.
void set_routed_layers(MegatronReader& args, Json& moe) {
    const std::string pattern = args.text("moe-layer-freq", "1");
    if (pattern.find('[') == std::string::npos) {
        moe.set("every", args.integer("moe-layer-freq", 1));
        if (args.integer("moe-layer-freq", 1) > 1) refuse("--moe-layer-freq", pattern, "1, or a list");
        return;
    }
    const std::vector<int> routed = routed_layers(pattern);
    const auto first = std::find(routed.begin(), routed.end(), 1);
    if (std::find(first, routed.end(), 0) != routed.end())
        refuse("--moe-layer-freq", pattern, "experts in all layers after the first that has some");
    moe.set("first_dense_layers", static_cast<std::int64_t>(first - routed.begin()));
}

void set_experts(MegatronReader& args, std::int64_t ffn, Json& model) {
    const std::int64_t experts = args.integer("num-experts", 0);
    if (experts == 0) return;
    Json moe = Json::object();
    moe.set("experts", experts)
        .set("topk", args.integer("moe-router-topk", 2))
        .set("moe_ffn", args.integer("moe-ffn-hidden-size", ffn));
    if (const std::int64_t shared = args.integer("moe-shared-expert-intermediate-size", 0); shared > 0)
        moe.set("shared_ffn", shared);
    if (args.flag("moe-shared-expert-gate")) moe.set("shared_gate", true);
    if (args.flag("moe-expert-capacity-factor"))
        moe.set("capacity_factor", args.number("moe-expert-capacity-factor", 1))
            .set("pad_to_capacity", args.flag("moe-pad-expert-input-to-capacity"));
    set_routed_layers(args, moe);
    model.set("moe", std::move(moe));
}

void set_latents(MegatronReader& args, std::int64_t heads, Json& model, std::vector<std::string>& assumed) {
    if (!args.flag("multi-latent-attention")) return;
    if (model.at("bias").boolean()) {
        model.set("bias", false).set("mlp_bias", true);
        assumed.emplace_back("latent attention without biases");
    }
    const std::int64_t nope = args.integer("qk-head-dim", 128), rope = args.integer("qk-pos-emb-head-dim", 64);
    Json mla = Json::object();
    mla.set("kv_lora", args.integer("kv-lora-rank", 512))
        .set("qk_nope", nope)
        .set("qk_rope", rope)
        .set("v_dim", args.integer("v-head-dim", 128));
    if (args.flag("q-lora-rank")) mla.set("q_lora", args.integer("q-lora-rank", 0));
    // Its latents are normalised whether --qk-layernorm is given or not; its rotation is the only position.
    model.set("mla", std::move(mla))
        .set("head_dim", nope + rope)
        .set("kv_heads", heads)
        .set("positions", "rope")
        .set("query_key_norm", "none");
}

}  // namespace

Json megatron_model(MegatronReader& args, const MegatronSetting& setting, std::vector<std::string>& assumed) {
    const std::int64_t h = args.needed("hidden-size"), a = args.needed("num-attention-heads");
    if (a == 0 || h == 0) args.fail("num-attention-heads", "at least 1");
    if (!args.flag("kv-channels") && h % a != 0)
        args.fail("num-attention-heads", fmt::format("a divisor of --hidden-size {}, or --kv-channels", h));
    const bool gated = args.flag("swiglu"), squared = args.flag("squared-relu");
    const std::int64_t gated_ffn = static_cast<std::int64_t>(static_cast<double>(h) * 4 * 2 / 3) / 64 * 64;
    const std::int64_t ffn = args.integer("ffn-hidden-size", gated ? gated_ffn : 4 * h);
    const std::int64_t head_dim = args.integer("kv-channels", h / a), groups = args.integer("num-query-groups", 1);
    const bool grouped = args.flag("group-query-attention");
    // Rows of embedding and head: what the profile pads by is a divisor of this.
    const std::int64_t tensor = args.integer("tensor-model-parallel-size", 1);
    const std::int64_t multiple = std::max<std::int64_t>(args.integer("make-vocab-size-divisible-by", 128) * tensor, 1);
    const std::string norm = args.choice("normalization", "LayerNorm", {"LayerNorm", "RMSNorm"});
    Json m = Json::object();
    m.set("name", setting.name.empty() ? "megatron-lm arguments" : setting.name)
        .set("layers", args.needed("num-layers"))
        .set("hidden_size", h)
        .set("attention_heads", a)
        .set("kv_heads", grouped ? groups : a)
        .set("head_dim", head_dim)
        .set("ffn_hidden_size", ffn)
        .set("gated_mlp", gated)
        .set("activation", gated     ? "silu"
                           : squared ? "squared_relu"
                                     : "gelu")
        .set("vocab_size", round_to(vocabulary(args, assumed), multiple))
        .set("tied_embeddings", !args.flag("untie-embeddings-and-output-weights"))
        .set("positions", positions_of(args))
        .set("max_positions", args.integer("max-position-embeddings", args.integer("seq-length", 0)))
        .set("norm", norm == "RMSNorm" ? "rmsnorm" : "layernorm")
        .set("bias", !args.flag("disable-bias-linear"));
    if (args.flag("qk-layernorm")) m.set("query_key_norm", "shared");
    set_rotation(args, head_dim, m);
    set_experts(args, ffn, m);
    set_latents(args, a, m, assumed);
    return m;
}

// ---- parallelism ----------------------------------------------------------------------------

namespace {

Json recompute_of(MegatronReader& args) {
    const std::string granularity = args.choice("recompute-granularity", "", {"full", "selective"});
    const std::string method = args.choice("recompute-method", "", {"uniform", "block"});
    const std::int64_t layers = args.integer("recompute-num-layers", 1);
    const std::string modules = args.text("recompute-modules", "[core_attn]");
    if (granularity.empty()) return Json("none");
    if (granularity == "selective") {
        if (modules != "[core_attn]" && modules != "core_attn") refuse("--recompute-modules", modules, "core_attn");
        return Json("selective");
    }
    if (method == "block") return Json::object().set("block_layers", layers);
    return layers == 1 ? Json("full") : Json::object().set("segment_layers", layers);
}

// "Et*3|(tt|)*2tL" with its repetitions written out.
std::string expanded(const std::string& layout) {
    std::string out;
    std::vector<std::size_t> open;
    std::size_t last = 0;  // where what a "*" repeats begins
    for (std::size_t i = 0; i < layout.size(); ++i) {
        const char c = layout[i];
        if (c == '(') {
            open.push_back(out.size());
        } else if (c == ')' && !open.empty()) {
            last = open.back();
            open.pop_back();
        } else if (c == '*') {
            std::int64_t times = 0;
            for (; i + 1 < layout.size() && '0' <= layout[i + 1] && layout[i + 1] <= '9'; ++i)
                times = std::min<std::int64_t>(times * 10 + (layout[i + 1] - '0'), 10000);
            const std::string piece = out.substr(last);
            for (std::int64_t n = 1; n < times; ++n) out += piece;
        } else {
            last = out.size();
            out += c;
        }
    }
    return out;
}

// Layers of each chunk in the order of the model.
std::vector<std::int64_t> layers_of(const std::string& layout) {
    std::vector<std::int64_t> layers{0};
    for (const char c : expanded(layout)) {
        if (c == '|') layers.push_back(0);
        if (c == 't') ++layers.back();
        if (c == 'm') refuse("--pipeline-model-parallel-layout", layout, "none with layers of multi-token prediction");
    }
    if (std::find(layers.begin(), layers.end(), 0) != layers.end())
        refuse("--pipeline-model-parallel-layout", layout, "a layer in each chunk");
    return layers;
}

void set_stages(MegatronReader& args, std::int64_t pipeline, Json& p, std::vector<std::string>& assumed) {
    const std::int64_t layers = args.needed("num-layers");
    const std::int64_t each = args.integer("num-layers-per-virtual-pipeline-stage", 0);
    std::int64_t chunks = args.integer("num-virtual-stages-per-pipeline-rank", 1);
    if (each > 0) chunks = std::max<std::int64_t>(layers / pipeline / each, 1);
    const std::int64_t first = args.integer("decoder-first-pipeline-num-layers", 0),
                       last = args.integer("decoder-last-pipeline-num-layers", 0);
    const bool as_layers =
        args.flag("account-for-embedding-in-pipeline-split") || args.flag("account-for-loss-in-pipeline-split");
    const std::string layout = args.text("pipeline-model-parallel-layout");
    if (const std::int64_t group = args.integer("microbatch-group-size-per-virtual-pipeline-stage", pipeline);
        group != pipeline && chunks > 1)
        refuse("--microbatch-group-size-per-virtual-pipeline-stage", std::to_string(group), std::to_string(pipeline));
    if (!layout.empty()) {
        const std::vector<std::int64_t> stages = layers_of(layout);
        Json listed = Json::array();
        for (const std::int64_t n : stages) listed.push(Json(n));
        chunks = static_cast<std::int64_t>(stages.size()) / pipeline;
        p.set("stage_layers", std::move(listed));
    }
    if (pipeline == 1) chunks = 1;
    if (pipeline > 1 && first > 0) p.set("first_stage_layers", first);
    if (pipeline > 1 && last > 0) p.set("last_stage_layers", last);
    const std::int64_t runs = pipeline * chunks;
    if (as_layers) {
        p.set("embedding_and_head_as_layers", true);
    } else if (layout.empty() && first + last == 0 && layers % runs != 0 && (layers + 2) % runs == 0) {
        p.set("embedding_and_head_as_layers", true);
        assumed.emplace_back("embedding and head counted as a layer each");
    }
    p.set("pipeline", pipeline).set("virtual_pipeline", chunks);
}

}  // namespace

namespace {

// Megatron's FSDP with what its arguments leave to it: all is shared out, main weights and gradients are fp32.
void set_fsdp(MegatronReader& args, Json& p) {
    const std::string strategy = args.text("data-parallel-sharding-strategy", "optim_grads_params");
    if (strategy != "optim_grads_params") refuse("--data-parallel-sharding-strategy", strategy, "optim_grads_params");
    for (const char* type :
         {"megatron-fsdp-grad-comm-dtype", "megatron-fsdp-main-grads-dtype", "megatron-fsdp-main-params-dtype"})
        if (const std::string name = args.text(type, "fp32"); name != "fp32")
            refuse(std::string("--") + type, name, "fp32");
    if (const std::string outer = args.text("outer-dp-sharding-strategy", "no_shard"); outer != "no_shard")
        refuse("--outer-dp-sharding-strategy", outer, "no_shard");
    p.set("zero_stage", 3);
}

}  // namespace

MegatronLayout read_layout(MegatronReader& args, const MegatronSetting& setting, std::vector<std::string>& assumed) {
    MegatronLayout out;
    const std::int64_t tensor = std::max<std::int64_t>(args.integer("tensor-model-parallel-size", 1), 1);
    const std::int64_t pipeline = std::max<std::int64_t>(args.integer("pipeline-model-parallel-size", 1), 1);
    const std::int64_t context = std::max<std::int64_t>(args.integer("context-parallel-size", 1), 1);
    const std::int64_t one = tensor * pipeline * context;
    out.world = setting.cluster ? setting.cluster->devices() : setting.world > 0 ? setting.world : one;
    if (out.world % one != 0)
        refuse("world_size", std::to_string(out.world),
               fmt::format("a multiple of the {} ranks of tensor, pipeline and context", one));
    out.data = out.world / one;
    out.micro_batch_size = std::max<std::int64_t>(args.integer("micro-batch-size", 1), 1);
    Json p = Json::object();
    const std::int64_t expert = args.integer("expert-model-parallel-size", 1);
    if (expert > 1) p.set("expert", expert);
    if (const std::int64_t sharing = args.integer("expert-tensor-parallel-size", tensor); args.flag("num-experts"))
        p.set("expert_tensor", sharing);
    p.set("tensor", tensor).set("context", context).set("data", out.data).set("micro_batch_size", out.micro_batch_size);
    set_stages(args, pipeline, p, assumed);
    const std::string exchange = args.choice("cp-comm-type", "p2p", {"p2p", "a2a", "allgather", "a2a+p2p"});
    static_cast<void>(args.find("hierarchical-context-parallel-sizes"));
    if (context > 1 && exchange != "p2p" && exchange != "a2a")
        assumed.push_back(fmt::format("context ranks in a ring: --cp-comm-type {} holds as much", exchange));
    p.set("context_method", exchange == "a2a" ? "all-to-all" : "ring");
    const bool sequence = args.flag("sequence-parallel");
    p.set("sequence_parallel", sequence && tensor > 1);
    const bool shards = args.flag("use-distributed-optimizer");
    const std::int64_t instances = args.integer("num-distributed-optimizer-instances", 1),
                       replicas = out.data * context;
    p.set("zero_stage", shards ? 1 : 0);
    const bool routed = args.integer("num-experts", 0) > 0;
    if (shards && instances > 1 && routed)
        assumed.emplace_back("one distributed optimizer over all replicas, where the run's experts have several");
    else if (shards && instances > 1 && replicas % instances == 0 && replicas / instances > 1)
        p.set("zero_shard_size", replicas / instances);
    else if (shards && instances > 1)
        p.set("zero_stage", 0);
    if (args.flag("use-megatron-fsdp")) set_fsdp(args, p);
    p.set("recompute", recompute_of(args));
    static_cast<void>(args.find("tp-comm-overlap-cfg"));
    p.set("overlap", Json::object()
                         .set("gradient_reduce", args.flag("overlap-grad-reduce"))
                         .set("tensor", args.flag("tp-comm-overlap") && sequence && tensor > 1));
    if (args.flag("use-tp-pp-dp-mapping") && pipeline > 1)
        assumed.emplace_back("ranks in the usual order: --use-tp-pp-dp-mapping is not followed");
    out.parallelism = std::move(p);
    return out;
}

// ---- training -------------------------------------------------------------------------------

namespace {

// Not given, "auto", or one of its names; null is the profile's.
Json attention_of(MegatronReader& args, bool own_layers) {
    const std::string backend = args.text("attention-backend", "auto");
    if (own_layers || backend == "unfused" || backend == "local") return Json("unfused");
    if (backend == "flash") return Json("flash2");
    if (backend == "fused") return Json("cudnn");
    if (backend != "auto") refuse("--attention-backend", backend, "auto, flash, fused, unfused or local");
    return {};
}

// One word also where only products are in fewer bits.
std::string precision_of(MegatronReader& args, std::vector<std::string>& assumed) {
    const std::string recipe = args.choice("fp8-recipe", "delayed", {"delayed", "tensorwise", "blockwise", "mxfp8"});
    const std::string format = args.choice("fp8-format", "", {"e4m3", "hybrid"});
    bool some = args.text("num-layers-at-start-in-bf16", "0") != "0";
    some |= args.text("num-layers-at-end-in-bf16", "0") != "0";
    if (args.flag("first-last-layers-bf16") && some) assumed.emplace_back("fp8 in all layers, the first and last too");
    if (!format.empty()) return recipe == "mxfp8" ? "mxfp8" : "fp8";
    return args.flag("bf16") ? "bf16" : args.flag("fp16") ? "fp16" : "fp32";
}

Json cross_entropy_of(MegatronReader& args) {
    const bool fused = args.flag("cross-entropy-loss-fusion");
    const std::string by = args.choice("cross-entropy-fusion-impl", "native", {"native", "te"});
    if (!fused) return Json("fp32-copy");
    return Json(by == "native" ? "native" : "fused");
}

Json software_of(MegatronReader& args, bool own_layers) {
    Json s = Json::object();
    s.set("deterministic", args.flag("deterministic-mode"))
        .set("own_layers", own_layers)
        .set("attention_mask", !args.flag("no-create-attention-mask-in-dataloader"))
        .set("quantised_parameters", args.flag("fp8-param-gather"))
        .set("fused_softmax", !(args.flag("no-masked-softmax-fusion") && own_layers));
    if (args.flag("num-experts")) {
        const std::string dispatcher = args.text("moe-token-dispatcher-type", "allgather");
        if (dispatcher != "allgather" && dispatcher != "alltoall")
            refuse("--moe-token-dispatcher-type", dispatcher, "allgather or alltoall");
        for (const char* name : {"moe-router-dtype", "moe-permute-fusion"}) static_cast<void>(args.find(name));
        s.set("gathers_tokens", dispatcher == "allgather").set("grouped_products", args.flag("moe-grouped-gemm"));
        s.set("expert_overlap", args.flag("overlap-moe-expert-parallel-comm"));
    }
    const std::int64_t limit = args.integer("wgrad-deferral-limit", 0);
    if (args.flag("defer-embedding-wgrad-compute")) s.set("deferred_head", limit);
    return s;
}

// "0:384 200B:768": what the batch is at first.
std::int64_t batch_of(MegatronReader& args, const MegatronLayout& layout) {
    const std::int64_t least = layout.micro_batch_size * layout.data;
    const std::string schedule = args.text("step-batch-size-schedule");
    if (!schedule.empty()) {
        const std::size_t colon = schedule.find(':');
        const std::string first =
            colon == std::string::npos ? "" : schedule.substr(colon + 1, schedule.find(' ') - colon - 1);
        if (first.empty() || first.size() > 9 || first.find_first_not_of("0123456789") != std::string::npos)
            args.fail("step-batch-size-schedule", "batches by tokens, \"0:384 200B:768\"");
        return std::stoll(first);
    }
    return args.integer("global-batch-size", least);
}

}  // namespace

Json megatron_training(MegatronReader& args, const MegatronLayout& layout, std::vector<std::string>& assumed) {
    const bool bf16 = args.flag("bf16"), fp16 = args.flag("fp16"), reduce_in_bf16 = args.flag("grad-reduce-in-bf16");
    const bool collects_in_fp32 = args.flag("accumulate-allreduce-grads-in-fp32");
    const std::string layers = args.choice("transformer-impl", "transformer_engine", {"local", "transformer_engine"});
    const bool own_layers = layers == "local";
    Json t = Json::object();
    t.set("global_batch_size", batch_of(args, layout))
        .set("sequence_length", args.needed("seq-length"))
        .set("precision", precision_of(args, assumed))
        .set("attention", attention_of(args, own_layers))
        .set("cross_entropy", cross_entropy_of(args))
        .set("dropout", Json::object()
                            .set("hidden", args.number("hidden-dropout", 0.1))
                            .set("attention", args.number("attention-dropout", 0.1)))
        .set("fused_gradient_accumulation", !args.flag("no-gradient-accumulation-fusion"))
        .set("software", software_of(args, own_layers));
    if (fp16 && !collects_in_fp32) t.set("gradient_dtype", "fp16");
    if (bf16 && reduce_in_bf16) t.set("gradient_dtype", "bf16");
    return t;
}

}  // namespace foretrain
