#include "plan/training_file.h"

#include <utility>

namespace foretrain {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 40;
constexpr double most_imbalance = 1000;

const std::vector<std::string> training_keys{"global_batch_size",
                                             "sequence_length",
                                             "precision",
                                             "optimizer",
                                             "flash_attention",
                                             "attention",
                                             "cross_entropy",
                                             "dropout",
                                             "gradient_dtype",
                                             "optimizer_dtype",
                                             "fused_gradient_accumulation",
                                             "compiled",
                                             "software",
                                             "learning_rate",
                                             "beta1",
                                             "beta2",
                                             "epsilon",
                                             "weight_decay",
                                             "expert_imbalance"};
const std::vector<std::string> software_keys{"deterministic",        "own_layers",     "attention_mask",
                                             "quantised_parameters", "fused_softmax",  "deferred_head",
                                             "gathers_tokens",       "expert_overlap", "grouped_products"};
const std::vector<std::string> attention_names{"unfused", "flash1", "flash2", "flash3", "cudnn"};
const std::vector<std::string> cross_entropy_names{"fp32-copy", "native", "fused"};
void read_precision(const Json& value, Training& t) {
    const std::vector<std::string> names{"fp64", "fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"};
    const DType type = *dtype_from_name(names[value.one_of(names)]);
    t.precision = is_quantised(type) ? DType::bf16 : type;
    t.products = is_quantised(type) ? std::optional(type) : std::nullopt;
}

std::optional<bool> choice(const Json& value, const char* key) {
    if (!value.has(key)) return std::nullopt;
    return value.at(key).boolean();
}

// One rate for both, or {"hidden": .., "attention": ..}.
void read_dropout(const Json& value, Training& t) {
    constexpr double most = 0.999;
    if (value.is_number()) {
        t.hidden_dropout = t.attention_dropout = value.number(0, most);
        return;
    }
    value.only_keys({"hidden", "attention"});
    if (value.has("hidden")) t.hidden_dropout = value.at("hidden").number(0, most);
    if (value.has("attention")) t.attention_dropout = value.at("attention").number(0, most);
}

SoftwareChoices software_from(const Json& value) {
    value.only_keys(software_keys);
    SoftwareChoices s;
    s.deterministic = choice(value, "deterministic").value_or(false);
    s.own_layers = choice(value, "own_layers").value_or(false);
    s.attention_mask = choice(value, "attention_mask");
    s.quantised_parameters = choice(value, "quantised_parameters").value_or(false);
    s.gathers_tokens = choice(value, "gathers_tokens").value_or(false);
    s.expert_overlap = choice(value, "expert_overlap").value_or(false);
    s.grouped_products = choice(value, "grouped_products").value_or(false);
    s.fused_softmax = choice(value, "fused_softmax").value_or(true);
    if (value.has("deferred_head")) s.deferred_head = value.at("deferred_head").integer(0, largest);
    return s;
}

// What the framework does where its profile leaves a choice.
void read_choices(const Json& value, Training& t) {
    if (value.has("attention")) t.attention = static_cast<AttentionKind>(value.at("attention").one_of(attention_names));
    if (choice(value, "flash_attention") == false) {
        if (t.attention && *t.attention != AttentionKind::unfused)
            value.at("flash_attention").fail("false", "true beside this \"attention\"");
        t.attention = AttentionKind::unfused;
    }
    if (value.has("cross_entropy"))
        t.cross_entropy = static_cast<CrossEntropy>(value.at("cross_entropy").one_of(cross_entropy_names));
    if (value.has("dropout")) read_dropout(value.at("dropout"), t);
    if (value.has("gradient_dtype")) {
        const std::vector<std::string> names{"fp32", "bf16", "fp16"};
        t.gradient_type = *dtype_from_name(names[value.at("gradient_dtype").one_of(names)]);
    }
    t.fused_gradient_accumulation = choice(value, "fused_gradient_accumulation");
    if (choice(value, "compiled") == true) t.compiled = true;
    if (value.has("software")) t.software = software_from(value.at("software"));
}

}  // namespace

Training training_from_json(const Json& value) {
    refuse_unless_neutral(value, "optimizer", Json("adamw"));
    refuse_unless_neutral(value, "optimizer_dtype", Json());
    Training t;
    read_choices(value, t);
    t.global_batch_size = value.at("global_batch_size").integer(1, largest);
    t.sequence_length = value.at("sequence_length").integer(1, largest);
    if (value.has("precision")) read_precision(value.at("precision"), t);
    const auto number = [&](const char* key, double& x, double least, double most) {
        if (value.has(key)) x = value.at(key).number(least, most);
    };
    number("learning_rate", t.learning_rate, 0, 1e6);
    number("beta1", t.beta1, 0, 1 - 1e-12);
    number("beta2", t.beta2, 0, 1 - 1e-12);
    number("epsilon", t.epsilon, 0, 1e6);
    number("weight_decay", t.weight_decay, 0, 1e6);
    number("expert_imbalance", t.expert_imbalance, 1, most_imbalance);
    return t;
}

void refuse_unless_neutral(const Json& parent, const char* key, const Json& neutral) {
    if (!parent.has(key)) return;
    const Json value = parent.at(key);
    if (value.dump(-1) == neutral.dump(-1)) return;
    value.unsupported(value.found(), neutral.is_null() ? "the key left out" : neutral.dump(-1));
}

void check_training_keys(const Json& value) { value.only_keys(training_keys); }

namespace {

// Only what is stated: a plan file says no more than its user did.
Json software_to_json(const SoftwareChoices& s) {
    Json out = Json::object();
    if (s.deterministic) out.set("deterministic", true);
    if (s.own_layers) out.set("own_layers", true);
    if (s.attention_mask) out.set("attention_mask", *s.attention_mask);
    if (s.quantised_parameters) out.set("quantised_parameters", true);
    if (s.gathers_tokens) out.set("gathers_tokens", true);
    if (s.expert_overlap) out.set("expert_overlap", true);
    if (s.grouped_products) out.set("grouped_products", true);
    if (!s.fused_softmax) out.set("fused_softmax", false);
    if (s.deferred_head > 0) out.set("deferred_head", s.deferred_head);
    return out;
}

void choices_to_json(const Training& t, Json& out) {
    if (t.attention) out.set("attention", name_of(*t.attention));
    if (t.cross_entropy) out.set("cross_entropy", name_of(*t.cross_entropy));
    if (t.hidden_dropout || t.attention_dropout) {
        Json dropout = Json::object();
        if (t.hidden_dropout) dropout.set("hidden", *t.hidden_dropout);
        if (t.attention_dropout) dropout.set("attention", *t.attention_dropout);
        out.set("dropout", std::move(dropout));
    }
    if (t.gradient_type) out.set("gradient_dtype", name_of(*t.gradient_type));
    if (t.fused_gradient_accumulation) out.set("fused_gradient_accumulation", *t.fused_gradient_accumulation);
    if (t.compiled) out.set("compiled", *t.compiled);
    if (t.software != SoftwareChoices{}) out.set("software", software_to_json(t.software));
}

}  // namespace

Json training_to_json(const Training& t) {
    Json training = Json::object();
    training.set("global_batch_size", t.global_batch_size)
        .set("sequence_length", t.sequence_length)
        .set("precision", name_of(t.computes()))
        .set("optimizer", "adamw")
        .set("learning_rate", t.learning_rate)
        .set("beta1", t.beta1)
        .set("beta2", t.beta2)
        .set("epsilon", t.epsilon)
        .set("weight_decay", t.weight_decay);
    if (t.expert_imbalance != 0) training.set("expert_imbalance", t.expert_imbalance);
    choices_to_json(t, training);
    return training;
}

}  // namespace foretrain
