// Rules of context parallelism: what of a sequence, and of its heads, each rank can have.
#include <fmt/format.h>

#include <numeric>

#include "plan/check_rules.h"

namespace foretrain::check_rules {

namespace {

// Each context rank holds two chunks of a sequence, which the tensor ranks share under sequence parallelism.
void check_context_sequence(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    const std::int64_t s = plan.training.sequence_length;
    const std::int64_t shared = p.sequence_parallel ? std::lcm<std::int64_t>(2, p.tensor) : 2;
    const std::optional<std::int64_t> multiple = product({p.context, shared});
    if (multiple && s % *multiple == 0) return;
    const std::string form = p.sequence_parallel ? fmt::format("lcm(2, tensor {}) (sequence_parallel)", p.tensor) : "2";
    Rejection r{.reason = "context_divides_sequence",
                .field = "training.sequence_length",
                .found = std::to_string(s),
                .rule = fmt::format("must be a multiple of {} = context {} x {}", text_of(multiple), p.context, form)};
    if (multiple && *multiple <= largest) {
        const std::int64_t below = s / *multiple * *multiple, above = below + *multiple;
        r.allowed = below > 0 ? fmt::format("{}, {}, ...", below, above) : fmt::format("{}, ...", above);
        r.suggestion = std::to_string(below > 0 && s - below <= above - s ? below : above);
    }
    out.push_back(std::move(r));
}

}  // namespace

// All-to-all gives each context rank whole heads; a ring has no kernel for a window.
void check_context(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    const ModelSpec& m = plan.model;
    if (p.context == 1) return;
    check_context_sequence(plan, out);
    if (p.context_method == ContextMethod::ring) {
        const SlidingWindow& window = m.sliding_window;
        if (window.size > 0 && window.size < plan.training.sequence_length)
            out.push_back({.reason = "ring_sees_whole_sequences",
                           .field = "parallelism.context_method",
                           .found = fmt::format("ring with a sliding window of {}", window.size),
                           .rule = "a ring passes on every block of keys and has no window",
                           .allowed = "all-to-all",
                           .suggestion = "all-to-all"});
        return;
    }
    const auto divides = [&](const char* reason, const char* of, std::int64_t heads) {
        const std::optional<std::int64_t> ranks = product({p.tensor, p.context});
        if (heads % p.tensor != 0 || (ranks && heads % *ranks == 0)) return;  // check_tensor tells of the first
        Rejection r = must_divide(reason, "parallelism.context", p.context,
                                  p.tensor > 1 ? fmt::format("{} / tensor (all-to-all)", of).c_str()
                                               : fmt::format("{} (all-to-all)", of).c_str(),
                                  heads / p.tensor, devices_beside_context(plan) * p.context);
        out.push_back(std::move(r));
    };
    divides("context_divides_heads", "attention_heads", m.attention_heads);
    if (m.kv_heads != m.attention_heads) divides("context_divides_kv_heads", "kv_heads", m.kv_heads);  // else told
}

}  // namespace foretrain::check_rules
