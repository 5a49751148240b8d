// Kernel arguments as one line of text, and back:
//
//   gelu_backward rows=4096 width=3072 type=fp32
//
// The first word is the kind, which also says forward or backward and the part of the loss; then
// every field in the order of the struct. One list of fields per struct serves both directions.
// A field that a line leaves out keeps its default; those that few models use are left out where they do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "plan/program/kernel_args.h"

namespace foretrain {

namespace {

template <class Args, class Value>
struct Field {
    std::string_view name;
    Value Args::*member;
    bool rare = false;  // printed only where it differs from the default
};
template <class Args, class Value>
Field(const char*, Value Args::*) -> Field<Args, Value>;
template <class Args, class Value>
Field(const char*, Value Args::*, bool) -> Field<Args, Value>;
constexpr bool rare = true;

constexpr auto fields(const GemmArgs&) {
    using A = GemmArgs;
    return std::tuple(Field{"m", &A::m}, Field{"n", &A::n}, Field{"k", &A::k}, Field{"transpose_a", &A::transpose_a},
                      Field{"transpose_b", &A::transpose_b}, Field{"accumulate", &A::accumulate},
                      Field{"bias", &A::bias}, Field{"role", &A::role}, Field{"type", &A::type},
                      Field{"output", &A::output}, Field{"quantised", &A::quantised, rare},
                      Field{"groups", &A::groups, rare});
}
constexpr auto fields(const BiasGradientArgs&) {
    using A = BiasGradientArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"accumulate", &A::accumulate},
                      Field{"type", &A::type}, Field{"gradient", &A::gradient});
}
constexpr auto fields(const NormForwardArgs&) {
    using A = NormForwardArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"rms", &A::rms},
                      Field{"unbiased", &A::unbiased, rare}, Field{"epsilon", &A::epsilon}, Field{"type", &A::type},
                      Field{"rest", &A::rest, rare});
}
constexpr auto fields(const NormBackwardArgs&) {
    using A = NormBackwardArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"rms", &A::rms},
                      Field{"unbiased", &A::unbiased, rare}, Field{"residual", &A::residual},
                      Field{"accumulate", &A::accumulate}, Field{"epsilon", &A::epsilon}, Field{"type", &A::type},
                      Field{"gradient", &A::gradient}, Field{"rest", &A::rest, rare});
}
constexpr auto fields(const GeluArgs&) {  // backward: by the kind
    using A = GeluArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"function", &A::function, rare},
                      Field{"type", &A::type}, Field{"routed", &A::routed, rare});
}
constexpr auto fields(const SwigluArgs&) {  // backward: by the kind
    using A = SwigluArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"function", &A::function, rare},
                      Field{"type", &A::type}, Field{"routed", &A::routed, rare});
}
constexpr auto fields(const RopeArgs&) {
    using A = RopeArgs;
    return std::tuple(Field{"batch", &A::batch}, Field{"sequence", &A::sequence}, Field{"heads", &A::heads},
                      Field{"kv_heads", &A::kv_heads}, Field{"head_dim", &A::head_dim},
                      Field{"rotary_dim", &A::rotary_dim, rare}, Field{"theta", &A::theta},
                      Field{"backward", &A::backward}, Field{"type", &A::type}, Field{"context", &A::context, rare});
}
constexpr auto fields(const QkNormArgs&) {  // backward: by the kind
    using A = QkNormArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"heads", &A::heads}, Field{"kv_heads", &A::kv_heads},
                      Field{"head_dim", &A::head_dim}, Field{"per_head", &A::per_head}, Field{"rms", &A::rms},
                      Field{"accumulate", &A::accumulate}, Field{"epsilon", &A::epsilon}, Field{"type", &A::type},
                      Field{"gradient", &A::gradient});
}
template <class A>
constexpr auto attention_fields() {
    return std::tuple(Field{"batch", &A::batch}, Field{"sequence", &A::sequence}, Field{"heads", &A::heads},
                      Field{"kv_heads", &A::kv_heads}, Field{"head_dim", &A::head_dim}, Field{"type", &A::type},
                      Field{"window", &A::window, rare}, Field{"score_bytes", &A::score_bytes, rare},
                      Field{"v_head_dim", &A::v_head_dim, rare});
}
constexpr auto fields(const AttentionForwardArgs&) { return attention_fields<AttentionForwardArgs>(); }
constexpr auto fields(const AttentionBackwardArgs&) { return attention_fields<AttentionBackwardArgs>(); }
constexpr auto fields(const RingAttentionArgs&) {  // backward: by the kind
    using A = RingAttentionArgs;
    return std::tuple(Field{"batch", &A::batch}, Field{"sequence", &A::sequence}, Field{"heads", &A::heads},
                      Field{"kv_heads", &A::kv_heads}, Field{"head_dim", &A::head_dim}, Field{"context", &A::context},
                      Field{"step", &A::step}, Field{"type", &A::type}, Field{"v_head_dim", &A::v_head_dim, rare});
}
constexpr auto fields(const KeyValueArgs&) {  // unpack: by the kind
    using A = KeyValueArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"heads", &A::heads}, Field{"kv_heads", &A::kv_heads},
                      Field{"head_dim", &A::head_dim}, Field{"type", &A::type},
                      Field{"v_head_dim", &A::v_head_dim, rare});
}
constexpr auto fields(const RelayoutArgs&) {
    using A = RelayoutArgs;
    return std::tuple(Field{"part", &A::part}, Field{"batch", &A::batch}, Field{"sequence", &A::sequence},
                      Field{"width", &A::width}, Field{"context", &A::context}, Field{"type", &A::type});
}
constexpr auto fields(const EmbeddingArgs&) {  // backward: by the kind
    using A = EmbeddingArgs;
    return std::tuple(Field{"tokens", &A::tokens}, Field{"rows", &A::rows}, Field{"width", &A::width},
                      Field{"accumulate", &A::accumulate}, Field{"type", &A::type}, Field{"gradient", &A::gradient});
}
constexpr auto fields(const PositionsArgs&) {  // backward: by the kind
    using A = PositionsArgs;
    return std::tuple(Field{"tokens", &A::tokens}, Field{"sequence", &A::sequence}, Field{"table_rows", &A::table_rows},
                      Field{"width", &A::width}, Field{"split_tokens", &A::split_tokens},
                      Field{"accumulate", &A::accumulate}, Field{"type", &A::type}, Field{"gradient", &A::gradient},
                      Field{"context", &A::context, rare});
}
constexpr auto fields(const ResidualAddArgs&) {
    using A = ResidualAddArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"width", &A::width}, Field{"bias", &A::bias},
                      Field{"bias2", &A::bias2, rare}, Field{"type", &A::type});
}
constexpr auto fields(const AccumulateArgs&) {
    using A = AccumulateArgs;
    return std::tuple(Field{"elements", &A::elements}, Field{"from", &A::from}, Field{"to", &A::to});
}
constexpr auto fields(const CastArgs&) {
    using A = CastArgs;
    return std::tuple(Field{"elements", &A::elements}, Field{"from", &A::from}, Field{"to", &A::to});
}
constexpr auto fields(const LossArgs&) {  // part: by the kind
    using A = LossArgs;
    return std::tuple(Field{"tokens", &A::tokens}, Field{"columns", &A::columns}, Field{"vocabulary", &A::vocabulary},
                      Field{"scale", &A::scale}, Field{"type", &A::type}, Field{"gradient", &A::gradient});
}
constexpr auto fields(const AdamwArgs&) {
    using A = AdamwArgs;
    return std::tuple(Field{"elements", &A::elements}, Field{"learning_rate", &A::learning_rate},
                      Field{"beta1", &A::beta1}, Field{"beta2", &A::beta2}, Field{"epsilon", &A::epsilon},
                      Field{"weight_decay", &A::weight_decay}, Field{"master", &A::master}, Field{"type", &A::type},
                      Field{"gradient", &A::gradient}, Field{"optimizer", &A::optimizer});
}

constexpr auto fields(const RouterArgs&) {  // backward: by the kind
    using A = RouterArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"experts", &A::experts}, Field{"topk", &A::topk},
                      Field{"type", &A::type});
}
constexpr auto fields(const PermuteArgs&) {
    using A = PermuteArgs;
    return std::tuple(Field{"from", &A::from}, Field{"to", &A::to}, Field{"width", &A::width}, Field{"type", &A::type},
                      Field{"weighed", &A::weighed, rare});
}
constexpr auto fields(const LatentPackArgs&) {  // unpack: by the kind
    using A = LatentPackArgs;
    return std::tuple(Field{"rows", &A::rows}, Field{"heads", &A::heads}, Field{"nope", &A::nope},
                      Field{"rope", &A::rope}, Field{"v_dim", &A::v_dim}, Field{"type", &A::type});
}

template <class Args, class Visit>
void each_field(const Args& args, Visit&& visit) {
    std::apply([&](const auto&... field) { (visit(field), ...); }, fields(args));
}

// What the kind alone says.
KernelArgs defaults(KernelKind kind) {
    using Part = LossArgs::Part;
    switch (kind) {
        case KernelKind::gemm: return GemmArgs{};
        case KernelKind::bias_gradient: return BiasGradientArgs{};
        case KernelKind::norm_forward: return NormForwardArgs{};
        case KernelKind::norm_backward: return NormBackwardArgs{};
        case KernelKind::gelu_forward: return GeluArgs{.backward = false};
        case KernelKind::gelu_backward: return GeluArgs{.backward = true};
        case KernelKind::swiglu_forward: return SwigluArgs{.backward = false};
        case KernelKind::swiglu_backward: return SwigluArgs{.backward = true};
        case KernelKind::rope: return RopeArgs{};
        case KernelKind::qk_norm_forward: return QkNormArgs{.backward = false};
        case KernelKind::qk_norm_backward: return QkNormArgs{.backward = true};
        case KernelKind::attention_forward: return AttentionForwardArgs{};
        case KernelKind::attention_backward: return AttentionBackwardArgs{};
        case KernelKind::ring_attention_forward: return RingAttentionArgs{.backward = false};
        case KernelKind::ring_attention_backward: return RingAttentionArgs{.backward = true};
        case KernelKind::key_value_pack: return KeyValueArgs{.unpack = false};
        case KernelKind::key_value_unpack: return KeyValueArgs{.unpack = true};
        case KernelKind::relayout: return RelayoutArgs{};
        case KernelKind::embedding_forward: return EmbeddingArgs{.backward = false};
        case KernelKind::embedding_backward: return EmbeddingArgs{.backward = true};
        case KernelKind::positions_forward: return PositionsArgs{.backward = false};
        case KernelKind::positions_backward: return PositionsArgs{.backward = true};
        case KernelKind::residual_add: return ResidualAddArgs{};
        case KernelKind::accumulate: return AccumulateArgs{};
        case KernelKind::cast: return CastArgs{};
        case KernelKind::loss_max: return LossArgs{.part = Part::maximum};
        case KernelKind::loss_sum: return LossArgs{.part = Part::sum};
        case KernelKind::loss_forward: return LossArgs{.part = Part::forward};
        case KernelKind::loss_backward: return LossArgs{.part = Part::backward};
        case KernelKind::adamw: return AdamwArgs{};
        case KernelKind::router_forward: return RouterArgs{.backward = false};
        case KernelKind::router_backward: return RouterArgs{.backward = true};
        case KernelKind::permute: return PermuteArgs{};
        case KernelKind::latent_pack: return LatentPackArgs{.unpack = false};
        case KernelKind::latent_unpack: return LatentPackArgs{.unpack = true};
    }
    return GemmArgs{};
}

constexpr std::array role_names{std::string_view("forward"), std::string_view("input_gradient"),
                                std::string_view("weight_gradient")};
constexpr std::array function_names{std::string_view("gelu"), std::string_view("silu"), std::string_view("relu"),
                                    std::string_view("squared_relu")};
constexpr std::array part_names{std::string_view("split_heads"), std::string_view("join_heads"),
                                std::string_view("join_sequence"), std::string_view("split_sequence")};

std::string value_text(std::int64_t value) { return fmt::format("{}", value); }
std::string value_text(double value) { return fmt::format("{}", value); }  // the shortest that reads back the same
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(DType value) { return std::string(name_of(value)); }
std::string value_text(std::optional<DType> value) { return value ? value_text(*value) : "none"; }
std::string value_text(GemmRole value) { return std::string(role_names.at(static_cast<std::size_t>(value))); }
std::string value_text(Pointwise value) { return std::string(function_names.at(static_cast<std::size_t>(value))); }
std::string value_text(RelayoutArgs::Part value) { return std::string(part_names.at(static_cast<std::size_t>(value))); }

// Each answers false for a value that it does not know, and says in `expected` what it does.
template <class Number>
bool parse_number(std::string_view text, Number& value) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end;
}
bool parse_value(std::string_view text, std::int64_t& value, std::string& expected) {
    expected = "an integer of at least 0";
    return parse_number(text, value) && value >= 0;
}
bool parse_value(std::string_view text, double& value, std::string& expected) {
    expected = "a finite number";
    return parse_number(text, value) && std::isfinite(value);
}
bool parse_value(std::string_view text, bool& value, std::string& expected) {
    expected = "true or false";
    value = text == "true";
    return value || text == "false";
}
bool parse_value(std::string_view text, DType& value, std::string& expected) {
    expected = "an element type: fp64, fp32, bf16, fp16, fp8 or int32";
    const auto type = dtype_from_name(text);
    value = type.value_or(value);
    return type.has_value();
}
bool parse_value(std::string_view text, std::optional<DType>& value, std::string& expected) {
    expected = "fp8, mxfp8 or nvfp4";
    value = dtype_from_name(text);
    return value && is_quantised(*value);
}
template <class Enum, class Names>
bool parse_choice(std::string_view text, Enum& value, const Names& names) {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) return false;
    value = static_cast<Enum>(found - names.begin());
    return true;
}
bool parse_value(std::string_view text, GemmRole& value, std::string& expected) {
    expected = "forward, input_gradient or weight_gradient";
    return parse_choice(text, value, role_names);
}
bool parse_value(std::string_view text, Pointwise& value, std::string& expected) {
    expected = "gelu, silu, relu or squared_relu";
    return parse_choice(text, value, function_names);
}
bool parse_value(std::string_view text, RelayoutArgs::Part& value, std::string& expected) {
    expected = "split_heads, join_heads, join_sequence or split_sequence";
    return parse_choice(text, value, part_names);
}

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (std::size_t at = text.find_first_not_of(' '); at != text.npos; at = text.find_first_not_of(' ', at)) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

[[noreturn]] void unknown(std::string field, std::string_view found, std::string expected,
                          const std::vector<std::string>& candidates) {
    throw UserError({.field = std::move(field),
                     .found = fmt::format("\"{}\"", found),
                     .expected = std::move(expected),
                     .suggestion = nearest(found, candidates)});
}

// Sets the field that `word` ("name=value") names.
template <class Args>
void set_field(Args& args, std::string_view kernel, std::string_view word, std::vector<std::string_view>& seen) {
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view text = equals == word.npos ? std::string_view() : word.substr(equals + 1);
    bool known = false;
    std::vector<std::string> names;
    each_field(args, [&](const auto& field) {
        names.emplace_back(field.name);
        if (field.name != name) return;
        known = true;
        std::string expected;
        if (!parse_value(text, args.*field.member, expected))
            unknown(fmt::format("{}.{}", kernel, name), text, expected, {});
    });
    if (!known) unknown(std::string(kernel), name, fmt::format("a field of {}", kernel), names);
    for (std::string_view earlier : seen)
        if (earlier == name) unknown(std::string(kernel), name, "each field once", {});
    seen.push_back(name);
}

// About the largest of the counts that kernel_args.cpp makes of the sizes, without overflow.
double size_or_one(std::int64_t x) { return static_cast<double>(std::max<std::int64_t>(x, 1)); }
template <class Args>
double magnitude(const Args& args) {
    double product = 1;
    each_field(args, [&](const auto& field) {
        if (field.name == "window" || field.name == "context" || field.name == "step") return;  // they only take away
        if constexpr (std::is_same_v<decltype(args.*field.member), const std::int64_t&>)
            product *= size_or_one(args.*field.member);
    });
    if constexpr (std::is_same_v<Args, AttentionForwardArgs> || std::is_same_v<Args, AttentionBackwardArgs> ||
                  std::is_same_v<Args, RingAttentionArgs>)
        product *= size_or_one(args.sequence);
    return product;
}
double magnitude(const PositionsArgs& a) {
    return (size_or_one(a.tokens) + size_or_one(a.sequence) + size_or_one(a.table_rows)) * size_or_one(a.width);
}

}  // namespace

std::string to_text(const KernelArgs& args) {
    std::string text(name_of(kind_of(args)));
    std::visit(
        [&](const auto& a) {
            const std::decay_t<decltype(a)> usual;
            each_field(a, [&](const auto& field) {
                if (field.rare && a.*field.member == usual.*field.member) return;
                text += fmt::format(" {}={}", field.name, value_text(a.*field.member));
            });
        },
        args);
    return text;
}

KernelArgs kernel_args_from_text(std::string_view text) {
    const std::vector<std::string_view> words = words_of(text);
    const std::string_view name = words.empty() ? std::string_view() : words.front();
    const auto kind = kernel_kind_from_name(name);
    if (!kind) unknown("kernel", name, "the name of a kernel", {kernel_kind_names.begin(), kernel_kind_names.end()});
    KernelArgs args = defaults(*kind);
    std::visit(
        [&](auto& a) {
            std::vector<std::string_view> seen;
            for (std::size_t i = 1; i < words.size(); ++i) set_field(a, name, words[i], seen);
            constexpr double most = 1e17;  // times the largest factors of work(), this fits 64 bits
            if (magnitude(a) > most) unknown(std::string(name), text, "sizes whose product is below 1e17", {});
        },
        args);
    return args;
}

}  // namespace foretrain
