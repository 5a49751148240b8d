#include "sim/interval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "plan/attention_choice.h"
#include "plan/framework.h"

namespace foretrain {

namespace {

constexpr double unstated_of_measured = 0.15, unstated_of_others = 0.25;

// What a part's constants say of themselves.
struct Trust {
    double spread = 0;
    Basis basis = Basis::assumed;
    bool spread_assumed = false;
};

template <class Constants>
Trust trust_in(const Constants& c) {
    return {c.spread, basis_of(c.born)};
}

Trust trust_in_gemm(const Calibration& c, DType type) {
    const GemmConstants* g = c.gemm_serving(type);
    return g == nullptr ? Trust{} : trust_in(*g);
}

// A factor that was fitted to runs makes a time no better known than those.
Trust fitted(Trust trust) { return {trust.spread, std::max(trust.basis, Basis::fitted)}; }

Time share(Time whole, double of, double sum) {
    return sum > 0 ? Time{std::llround(static_cast<double>(whole.value) * (of / sum))} : Time{};
}

class Parts {
public:
    explicit Parts(const Plan& plan) : plan_(plan), framework_(framework_named(plan.framework)) {}

    std::vector<PartInterval> of(const StageTime& t) {
        add_passes(t);
        share_bubble(t.bubble);
        at(UncertainPart::memory_bound) += t.optimizer;
        const Parallelism& p = plan_.parallelism;
        at(links(p.tensor * p.context * p.data)) += t.data_exposed;
        at(links(plan_.world())) += t.messages();
        return parts(t.step);
    }

private:
    using Part = UncertainPart;

    Time& at(Part part) { return times_[static_cast<std::size_t>(part)]; }
    Part links(std::int64_t span) const {
        return plan_.cluster.holds_inside(span) ? Part::links_inside : Part::links_between;
    }

    void add_passes(const StageTime& t) {
        const Parallelism& p = plan_.parallelism;
        at(Part::gemm) = t.gemm + t.head;
        at(Part::attention) = t.attention;
        at(Part::memory_bound) = t.other_kernels();
        Time attention = t.recompute, other;
        if (p.recompute.kind != Recompute::Kind::selective) {
            const double sum = seconds(t.gemm + t.attention + t.other_kernels());
            attention = share(t.recompute, seconds(t.attention), sum);
            other = share(t.recompute, seconds(t.other_kernels()), sum);
        }
        at(Part::attention) += attention;
        at(Part::memory_bound) += other;
        at(Part::gemm) += t.recompute - attention - other;
        at(links(p.tensor)) += t.tensor_exposed;
        at(links(p.tensor * p.context)) += t.context_exposed;
        at(links(p.expert * p.expert_tensor)) += t.expert_exposed;
        at(Part::software) += t.host_exposed + t.overhead;
    }

    // In proportion to what is there so far; what rounding leaves goes to GEMM, so that the sum stays.
    void share_bubble(Time bubble) {
        Time sum, left = bubble;
        for (const Time& time : times_) sum += time;
        for (Time& time : times_) {
            const Time more = share(bubble, seconds(time), seconds(sum));
            time += more;
            left -= more;
        }
        at(Part::gemm) += left;
    }

    Trust trust(Part part) const {
        const Calibration& c = plan_.cluster.device.calibration;
        const SoftwareCosts& costs = framework_.costs;
        switch (part) {
            case Part::gemm: {
                const DType type = plan_.training.computes();
                const bool differs = costs.gemm_takes(type, plan_.cluster.device.dense_bf16_tera()) != 1;
                return differs ? fitted(trust_in_gemm(c, type)) : trust_in_gemm(c, type);
            }
            case Part::attention: {
                // Unfused, it moves its scores through memory: other constants, and fitted ones.
                if (unfused_attention(plan_, framework_).product_efficiency > 0)
                    return fitted(trust_in(c.memory_bound));
                const bool differs = costs.factor_for(c.attention.kernel) != nullptr;
                return differs ? fitted(trust_in(c.attention)) : trust_in(c.attention);
            }
            case Part::memory_bound:
                return costs.traffic == TrafficFactors{} ? trust_in(c.memory_bound) : fitted(trust_in(c.memory_bound));
            case Part::links_inside: return trust_in(plan_.cluster.domain);
            case Part::links_between: return trust_in(plan_.cluster.network.constants);
            case Part::software: return {framework_.step_spread, Basis::fitted, framework_.step_spread_assumed};
        }
        return {};
    }

    std::vector<PartInterval> parts(Time step) const {
        std::vector<PartInterval> out;
        for (std::size_t i = 0; i < uncertain_part_count; ++i) {
            const auto part = static_cast<Part>(i);
            const bool of_step = part == Part::software;
            if (times_[i] <= Time{} && !of_step) continue;
            const Trust t = trust(part);
            PartInterval p{.part = part, .time = times_[i], .spread = t.spread, .of_step = of_step, .basis = t.basis};
            p.stated = t.spread > 0 && !t.spread_assumed;
            if (t.spread == 0) p.spread = t.basis == Basis::measured ? unstated_of_measured : unstated_of_others;
            p.half_width = Time{std::llround(static_cast<double>((of_step ? step : p.time).value) * p.spread)};
            out.push_back(p);
        }
        std::stable_sort(out.begin(), out.end(),
                         [](const PartInterval& a, const PartInterval& b) { return a.half_width > b.half_width; });
        return out;
    }

    const Plan& plan_;
    const Framework& framework_;
    std::array<Time, uncertain_part_count> times_;
};

}  // namespace

StepInterval step_interval(const Prediction& p) {
    StepInterval interval;
    if (p.times.empty() || p.step <= Time{}) return interval;
    interval.parts = Parts(p.plan).of(p.time_of_busiest());
    double squares = 0;
    for (const PartInterval& part : interval.parts) {
        squares += std::pow(static_cast<double>(part.half_width.value), 2);
        interval.rests[static_cast<std::size_t>(part.basis)] += part.time;
    }
    const double half = std::sqrt(squares);
    const std::int64_t room = INT64_MAX - p.step.value;  // a step of months has no room for as many more
    const Time width{half < static_cast<double>(INT64_MAX) ? std::min<std::int64_t>(std::llround(half), room) : room};
    interval.low = std::max(p.step - width, Time{});
    interval.high = p.step + width;
    return interval;
}

}  // namespace foretrain
