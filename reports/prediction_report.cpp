#include "reports/prediction_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "plan/plan_file.h"
#include "reports/explain_report.h"
#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/text_table.h"
#include "reports/trust_report.h"

namespace foretrain {

namespace {

// Memory is shown in GiB, and in MiB where all of a small plan would round to nothing.
struct MemoryUnit {
    std::string name = "GiB";
    double size = static_cast<double>(GiB);

    explicit MemoryUnit(Bytes largest) {
        if (largest.value < GiB) *this = MemoryUnit("MiB", static_cast<double>(MiB));
    }
    std::string operator()(Bytes b) const {
        return b.value == 0 ? "-" : fmt::format("{:.2f}", static_cast<double>(b.value) / size);
    }

private:
    MemoryUnit(std::string unit, double bytes) : name(std::move(unit)), size(bytes) {}
};

bool same_memory(const StageMemory& a, const StageMemory& b) {
    return a.weights == b.weights && a.gradients == b.gradients && a.optimizer == b.optimizer &&
           a.activations == b.activations && a.communication == b.communication && a.workspace == b.workspace &&
           a.libraries == b.libraries && a.reserved == b.reserved;
}

std::string verdict(const Prediction& p) {
    const MemoryVerdict v = verdict_of(p);
    const std::string needs =
        fmt::format("stage {} needs {} of {}", p.largest_stage(), figure(p.peak_bytes()), figure(p.capacity));
    const std::string margin =
        fmt::format("{} ({})", figure(Bytes{std::abs(v.margin.value)}), percent(std::abs(v.margin_share)));
    switch (v.fit) {
        case Fit::fits: return fmt::format("Fits: {}; {} to spare.", needs, margin);
        case Fit::tight: return fmt::format("Tight: {}; only {} to spare.", needs, margin);
        case Fit::out_of_memory: return fmt::format("Out of memory: {}; {} too much.", needs, margin);
    }
    return needs;
}

// A name, its figure and a remark: all of the report above the memory is set in these columns.
std::string line(std::string_view name, std::string_view value, std::string_view remark = "") {
    std::string text = fmt::format("{:<18}{:>10}  {}", name, value, remark);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
}

std::string speed_table(const Prediction& p) {
    const auto peak = p.plan.cluster.device.peak.find(p.plan.training.computes());
    const std::string of =
        peak == p.plan.cluster.device.peak.end()
            ? "peak unknown"
            : fmt::format("of {:.4g} dense {} TFLOP/s", peak->second.tera(), name_of(p.plan.training.computes()));
    return line("Step time", figure(p.step), interval_text(p)) +
           line("Tokens/s", grouped(p.tokens_per_second()), grouped(tokens_per_second_per_device(p)) + " per GPU") +
           line("TFLOP/s per GPU", fmt::format("{:.4g}", p.model_tflops_per_device()), of) +
           line("MFU", percent(p.mfu()), "attention in full, no recompute") +
           line("  causal", percent(p.mfu_causal()), "attention by half") +
           line("HFU", percent(p.hfu()), "recompute counted");
}

std::string money(const TrainingCost& c) {
    if (c.money_least == c.money_most) return "$" + amount(c.money_least);
    return fmt::format("${} to ${}", amount(c.money_least), amount(c.money_most));
}

// "all_gather 1.2 GiB, reduce_scatter 1.2 GiB": the collectives of an axis, where there are several.
std::string collectives_of(const Prediction& p, const std::string& axis) {
    std::string s;
    std::size_t several = 0;
    for (const SentBytes& sent : communication_by_collective(p)) {
        if (axis_of_group(sent.group) != axis) continue;
        s += fmt::format("{}{} {}", several++ > 0 ? ", " : "", sent.collective, figure(sent.bytes));
    }
    return s;
}

std::string communication_table(const Prediction& p) {
    std::string s;
    for (const auto& [axis, bytes] : communication_by_axis(p))
        if (bytes.value > 0) s += line("  " + axis, figure(bytes), collectives_of(p, axis));
    if (s.empty()) return line("Communication", "none");
    return "Communication       sent by a GPU in a step\n" + s;
}

// The plan in words. Where devices do not divide by the other ranks no number of data ranks follows, and what
// stands there nobody asked for.
std::string as_asked(const Prediction& p) {
    std::string words = describe(p.plan.parallelism);
    const bool follows = std::none_of(p.rejections.begin(), p.rejections.end(), [](const Rejection& r) {
        return r.reason == "devices_divisible" || r.reason == "context_divides_devices";
    });
    if (const std::string none = " dp 1 "; !follows && words.find(none) != std::string::npos)
        words.replace(words.find(none), none.size(), " ");
    return words;
}

std::string heading(const Prediction& p) {
    const Plan& plan = p.plan;
    const Training& t = plan.training;
    std::string s = fmt::format("{} on {}: {} GPU{}, {} node{}; framework {}\n", plan.model.name, plan.cluster.name,
                                plan.cluster.devices(), plan.cluster.devices() == 1 ? "" : "s", plan.cluster.nodes,
                                plan.cluster.nodes == 1 ? "" : "s", framework_text(plan));
    s += fmt::format("  {}\n", as_asked(p));
    s += fmt::format("  batch {} x {} tokens, {}", t.global_batch_size, t.sequence_length, name_of(t.computes()));
    if (p.step.value > 0)
        s += fmt::format(", {} microbatch{} a step", plan.microbatches(), plan.microbatches() == 1 ? "" : "es");
    s += "\n";
    if (p.memory.empty() || padded_vocabulary(p) == plan.model.vocab_size) return s;
    return s + fmt::format("  vocabulary {}, padded to {}\n", plan.model.vocab_size, padded_vocabulary(p));
}

}  // namespace

std::string training_table(const TrainingCost& c) {
    std::string s = fmt::format("Training            {} tokens, {} steps\n", short_count(c.tokens), grouped(c.steps));
    s += line("  days", amount(c.days)) + line("  GPU-hours", amount(c.device_hours));
    if (c.price.most > 0) s += fmt::format("  money             {}\n", money(c));
    if (c.watts > 0) s += line("  energy", amount(c.megawatt_hours), fmt::format("MWh, at {:.0f} W a GPU", c.watts));
    for (const std::string& what : c.assumed) s += wrapped("Assumed: " + what + ".", 2, 98);
    return s;
}

std::string plan_line(const Plan& plan) {
    return fmt::format("{} on {}, {} GPU{}: {}", plan.model.name, plan.cluster.name, plan.cluster.devices(),
                       plan.cluster.devices() == 1 ? "" : "s", describe(plan.parallelism));
}

std::string time_heading(const Prediction& p) {
    if (p.times.size() == 1) return "Time of a step\n";
    return fmt::format("Time of a step      on stage {} of {}, the busiest (stages count from 0)\n", p.busiest_stage(),
                       p.times.size());
}

// How evenly the stages share the work.
std::string balance_line(const Prediction& p) {
    if (p.times.size() < 2) return "";
    const auto [least, most] = std::minmax_element(
        p.times.begin(), p.times.end(), [](const StageTime& a, const StageTime& b) { return a.busy() < b.busy(); });
    if (least->busy() == most->busy()) return "  Stages are equally busy.\n";
    return fmt::format("  Stages are busy for {} (stage {}) to {} (stage {}).\n", figure(least->busy()),
                       least - p.times.begin(), figure(most->busy()), most - p.times.begin());
}

std::string time_table(const Prediction& p) {
    if (p.times.empty()) return "";
    const StageTime busiest = p.time_of_busiest();
    const double whole = std::max(seconds(busiest.step), 1e-12);
    std::string s;
    for (const TimePart& part : breakdown(busiest)) {
        const double share = seconds(part.time) / whole;
        s += line("  " + part.label, figure(part.time),
                  fmt::format("{:>7}  {}  {}", percent(share), bar(share, 20), part.remark));
    }
    s += fmt::format("  {:-<26}\n", "");
    std::string passes;
    for (const TimePart& part : by_pass(busiest))
        passes += fmt::format("{}{} {}", passes.empty() ? "kernels: " : ", ", part.label, figure(part.time));
    return s + line("  = step", figure(busiest.step), passes) + balance_line(p) + trust_table(p);
}

std::string memory_unit(const Prediction& p) { return MemoryUnit(largest_allocation(p)).name; }

std::string memory_table(const Prediction& p) {
    if (p.memory.empty()) return "";
    const MemoryUnit in(largest_allocation(p));
    TextTable t({"stage", "weights", "grads", "optim.", "activ.", "comm.", "work", "reserved", "total", "of capacity"});
    for (std::size_t i = 0; i < p.memory.size();) {
        const StageMemory& m = p.memory[i];
        std::size_t end = i + 1;
        while (end < p.memory.size() && same_memory(m, p.memory[end])) ++end;
        const double share =
            static_cast<double>(m.total().value) / static_cast<double>(std::max<std::int64_t>(p.capacity.value, 1));
        t.row({end - i == 1 ? fmt::format("{}", i) : fmt::format("{}-{}", i, end - 1), in(m.weights), in(m.gradients),
               in(m.optimizer), in(m.activations), in(m.communication), in(m.workspace + m.libraries), in(m.reserved),
               in(m.total()), fmt::format("{} {:>5.1f} %", bar(share, 10), share * 100)});
        i = end;
    }
    const StageMemory& largest = p.memory[static_cast<std::size_t>(p.largest_stage())];
    std::string s = t.text(2);
    s += fmt::format("  Live at once on stage {}: at most {} of {} allocated.\n", p.largest_stage(),
                     figure(largest.live_peak), figure(largest.allocated()));
    if (const auto n = static_cast<std::size_t>(p.largest_stage()); n < p.peaks.size())
        s += fmt::format("  Its peak: {}.\n", moment_text(p, p.peaks[n]));
    return s + "  " + verdict(p) + "\n";
}

std::string prediction_table(const Prediction& p) {
    std::string s = heading(p) + "\n";
    const bool only_memory = std::all_of(p.rejections.begin(), p.rejections.end(),
                                         [](const Rejection& r) { return r.reason == "out_of_memory"; });
    if (!p.rejections.empty()) {
        s += only_memory ? "DOES NOT FIT\n" : "REFUSED\n";
        for (const Rejection& r : p.rejections) s += wrapped(text(r), 2, 100);
        if (!only_memory) return s;
        s += "\n";
        if (p.nearest) s += nearest_table(p) + "\n";
    }
    if (p.step.value > 0) {
        s += speed_table(p) + "\n";
        s += time_heading(p) + time_table(p) + "\n";
        s += communication_table(p) + "\n";
        if (p.training) s += training_table(*p.training) + "\n";
    }
    if (!p.memory.empty())
        s += fmt::format("Memory              {} on each GPU, by stage\n{}{}", memory_unit(p), memory_table(p),
                         host_table(p));
    return s;
}

}  // namespace foretrain
