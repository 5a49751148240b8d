#include "reports/validation_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/figures.h"
#include "reports/prediction_report.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

// predicted / measured - 1; 0 where nothing was measured.
double relative(Time predicted, Time measured) {
    return measured.value <= 0 ? 0 : seconds(predicted) / seconds(measured) - 1;
}

std::string difference(Time predicted, Time measured) {
    const Time d = predicted - measured;
    return (d.value > 0 ? "+" : "") + figure(d);
}

std::string bytes_line(const char* what, Bytes error, const char* meaning) {
    const std::string verdict =
        error.value == 0 ? "exact" : fmt::format("OFF BY {} BYTES", grouped(static_cast<double>(error.value)));
    return fmt::format("{:<16}{:<22}{}\n", what, verdict, meaning);
}

std::string loss_line(const std::vector<double>& losses) {
    if (losses.empty()) return "";
    return fmt::format("{:<16}{:.5f} in the first of {} steps, {:.5f} in the last\n", "Loss", losses.front(),
                       losses.size(), losses.back());
}

std::string kinds_table(const Validation& v) {
    Time all;
    for (const KindError& k : v.by_kind) all += k.measured;
    TextTable t({"kind", "count", "predicted", "measured", "error", "of the time"});
    for (const KindError& k : v.by_kind) {
        const double share = seconds(k.measured) / std::max(seconds(all), 1e-12);
        t.row({k.kind, fmt::format("{}", k.count), figure(k.predicted), figure(k.measured),
               signed_percent(relative(k.predicted, k.measured)),
               fmt::format("{} {:>5.1f} %", bar(share, 15), share * 100)});
    }
    return t.text(2);
}

std::string worst_table(const Validation& v) {
    std::string s = fmt::format("  {:>10}  {:>10}  {:>10}  rank\n", "predicted", "measured", "difference");
    for (const InstructionError& e : v.worst)
        s += fmt::format("  {:>10}  {:>10}  {:>10}  {:>4}  #{}\n{}", figure(e.predicted), figure(e.measured),
                         difference(e.predicted, e.measured), e.rank, e.instruction, wrapped(e.name, 6, 100));
    return s;
}

Json measured_json(const Validation& v) {
    const Training& t = v.prediction.plan.training;
    const double step = seconds(v.measured_step);
    Json losses = Json::array();
    for (double loss : v.losses) losses.push(Json(loss));
    Json out = Json::object();
    out.set("step_time_s", step);
    out.set("tokens_per_second", step > 0 ? static_cast<double>(t.global_batch_size * t.sequence_length) / step : 0.0);
    out.set("losses", std::move(losses));
    out.set("peak_resident_bytes", v.peak_resident.value);
    return out;
}

}  // namespace

std::string validation_table(const Validation& v) {
    std::string s = plan_line(v.prediction.plan) + "\n\n";
    s += fmt::format("{:<16}predicted {}, measured {}: {}\n", "Step time", figure(v.predicted_step),
                     figure(v.measured_step), signed_percent(v.step_error()));
    // The run's own line has the median of the slowest rank of each step, which is no less.
    s += fmt::format("{:<16}measured is the slowest rank's median step, warm-up left out\n", "");
    s += bytes_line("Memory", v.memory_error, "closed form against every rank's device and live peak, by role");
    s += bytes_line("Communication", v.communication_error, "bytes on the wire of every rank, by group and kind");
    s += loss_line(v.losses);
    if (v.peak_resident.value > 0) s += fmt::format("{:<16}{} peak resident set\n", "Process", figure(v.peak_resident));
    s += "\nBy kind           summed over instructions and ranks; waiting and idle are the compute stream's\n" +
         kinds_table(v);
    if (!v.worst.empty()) s += "\nWorst calls       each by its worst instance\n" + worst_table(v);
    return s;
}

Json validation_json(const Validation& v) {
    Json by_kind = Json::array();
    for (const KindError& k : v.by_kind) {
        Json entry = Json::object();
        entry.set("kind", k.kind).set("count", k.count);
        entry.set("predicted_s", seconds(k.predicted)).set("measured_s", seconds(k.measured));
        entry.set("error", relative(k.predicted, k.measured));
        by_kind.push(std::move(entry));
    }
    Json worst = Json::array();
    for (const InstructionError& e : v.worst) {
        Json entry = Json::object();
        entry.set("rank", e.rank).set("instruction", std::int64_t{e.instruction}).set("name", e.name);
        entry.set("predicted_s", seconds(e.predicted)).set("measured_s", seconds(e.measured));
        worst.push(std::move(entry));
    }
    Json out = Json::object();
    out.set("predicted", prediction_json(v.prediction));
    out.set("measured", measured_json(v));
    out.set("step_time_error", v.step_error());
    out.set("memory_error_bytes", v.memory_error.value);
    out.set("communication_error_bytes", v.communication_error.value);
    out.set("by_kind", std::move(by_kind));
    return out.set("worst", std::move(worst));
}

std::string validation_csv(const Validation& v) {
    std::string s = csv_line({"kind", "count", "predicted_s", "measured_s", "error"});
    for (const KindError& k : v.by_kind)
        s += csv_line({k.kind, fmt::format("{}", k.count), fmt::format("{:.9g}", seconds(k.predicted)),
                       fmt::format("{:.9g}", seconds(k.measured)),
                       fmt::format("{:.6f}", relative(k.predicted, k.measured))});
    return s;
}

}  // namespace foretrain
