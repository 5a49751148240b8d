#include "plan/program/result.h"

#include <fmt/format.h>

#include <algorithm>

namespace foretrain {

namespace {

double devices(const Plan& plan) { return static_cast<double>(plan.world()); }

// Share of all devices' dense peak that `flops` a step amounts to; 0 where the peak is unknown.
double utilisation(const Prediction& p, double flops) {
    const auto peak = p.plan.cluster.device.peak.find(p.plan.training.computes());
    if (peak == p.plan.cluster.device.peak.end() || peak->second.per_second <= 0 || p.step.value <= 0) return 0;
    return flops / (seconds(p.step) * devices(p.plan) * peak->second.per_second);
}

}  // namespace

std::int64_t Prediction::busiest_stage() const {
    const auto busiest = std::max_element(times.begin(), times.end(),
                                          [](const StageTime& a, const StageTime& b) { return a.busy() < b.busy(); });
    return busiest == times.end() ? 0 : busiest - times.begin();
}

StageTime Prediction::time_of_busiest() const {
    if (times.empty()) return {};
    StageTime t = times[static_cast<std::size_t>(busiest_stage())];
    const Time until_the_end = step - t.step;
    t.step += until_the_end;
    t.pipeline_exposed += until_the_end;
    t.bubble += until_the_end;
    return t;
}

std::size_t largest_of(const std::vector<StageMemory>& stages) {
    const auto largest = std::max_element(
        stages.begin(), stages.end(), [](const StageMemory& a, const StageMemory& b) { return a.total() < b.total(); });
    return largest == stages.end() ? 0 : static_cast<std::size_t>(largest - stages.begin());
}

std::int64_t Prediction::largest_stage() const { return static_cast<std::int64_t>(largest_of(memory)); }

Bytes Prediction::peak_bytes() const {
    return memory.empty() ? Bytes{} : memory[static_cast<std::size_t>(largest_stage())].total();
}

std::string text(const PeakMoment& moment) {
    if (moment.pass.empty()) return "throughout the step";
    std::string s = moment.pass;
    s += fmt::format("{} of microbatch {}", moment.pass == "message" ? "" : " pass", moment.microbatch);
    if (moment.pass == "message") s += ", between passes";
    if (!moment.section.empty()) s += fmt::format(", in {}", moment.section);
    if (moment.in_flight > 0) s += fmt::format("; {} in flight", moment.in_flight);
    return s;
}

std::string_view name_of(Fit fit) {
    switch (fit) {
        case Fit::fits: return "fits";
        case Fit::tight: return "tight";
        case Fit::out_of_memory: return "out of memory";
    }
    return "?";
}

MemoryVerdict verdict_of(const Prediction& p) {
    MemoryVerdict v;
    v.margin = p.capacity - p.peak_bytes();
    v.margin_share =
        static_cast<double>(v.margin.value) / static_cast<double>(std::max<std::int64_t>(p.capacity.value, 1));
    if (v.margin.value < 0)
        v.fit = Fit::out_of_memory;
    else if (v.margin_share < tight_below)
        v.fit = Fit::tight;
    return v;
}

double Prediction::tokens_per_second() const {
    if (step.value <= 0) return 0;
    const double tokens = static_cast<double>(plan.training.global_batch_size * plan.training.sequence_length);
    return tokens / seconds(step);
}

double Prediction::mfu() const { return utilisation(*this, model_flops); }

double Prediction::mfu_causal() const { return utilisation(*this, model_flops_causal); }

double Prediction::hfu() const { return utilisation(*this, hardware_flops); }

double Prediction::model_tflops_per_device() const {
    if (step.value <= 0) return 0;
    return model_flops / (seconds(step) * devices(plan)) / 1e12;
}

double Validation::step_error() const {
    if (measured_step.value <= 0) return 0;
    return seconds(predicted_step) / seconds(measured_step) - 1;
}

}  // namespace foretrain
