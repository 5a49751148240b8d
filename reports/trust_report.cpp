#include "reports/trust_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reports/figures.h"

namespace foretrain {

namespace {

constexpr std::size_t widest_line = 98;

double share(Time part, Time whole) { return seconds(part) / std::max(seconds(whole), 1e-12); }

// "GEMM (+-5 % of 52.7 %)", "the framework's profile (+-15 % of the step)"
std::string words(const PartInterval& part, Time step) {
    const std::string of = part.of_step ? "the step" : percent(share(part.time, step));
    return fmt::format("{} (+-{:.0f} % of {}{})", label_of(part.part), 100 * part.spread, of,
                       part.stated ? "" : ", assumed");
}

std::string_view words(Basis basis) {
    switch (basis) {
        case Basis::measured: return "measured";
        case Basis::fitted: return "fitted to runs";
        case Basis::carried_over: return "carried over from other devices or links";
        case Basis::assumed: return "assumed";
    }
    return "?";
}

Basis basis_at(std::size_t i) { return static_cast<Basis>(i); }

}  // namespace

std::string interval_text(const Prediction& p) {
    if (p.interval.parts.empty()) return "";
    return fmt::format("{} .. {}, {:.0f} % interval", figure(p.interval.low), figure(p.interval.high),
                       100 * StepInterval::coverage);
}

std::string trust_table(const Prediction& p) {
    const StepInterval& i = p.interval;
    if (i.parts.empty()) return "";
    constexpr std::size_t named = 3;
    std::vector<std::string> widest, rests;
    for (std::size_t n = 0; n < std::min(named, i.parts.size()); ++n) widest.push_back(words(i.parts[n], p.step));
    for (std::size_t b = 0; b < basis_count; ++b)
        if (i.rests[b] > Time{})
            rests.push_back(fmt::format("{} {}", percent(share(i.rests[b], p.step)), words(basis_at(b))));
    return wrapped(fmt::format("{:.0f} % interval: {} to {}. Widest: {}.", 100 * StepInterval::coverage, figure(i.low),
                               figure(i.high), fmt::join(widest, ", ")),
                   2, widest_line) +
           wrapped(fmt::format("Time rests on constants: {}.", fmt::join(rests, ", ")), 2, widest_line);
}

std::string host_table(const Prediction& p) {
    const HostMemory& h = p.host;
    if (h.needed() <= Bytes{}) return "";
    std::vector<std::string> parts;
    if (h.building > Bytes{}) parts.push_back(figure(h.building) + " while weights are built on the host");
    if (h.checkpoint > Bytes{})
        parts.push_back("at most " + figure(h.checkpoint) + " while a checkpoint is written beside training");
    if (h.batch > Bytes{}) parts.push_back(figure(h.batch) + " for a step's tokens");
    const std::string has = h.capacity <= Bytes{} ? "its size is unknown"
                            : h.too_much()        ? fmt::format("TOO MUCH for its {}", figure(h.capacity))
                                                  : fmt::format("it has {}", figure(h.capacity));
    return wrapped(fmt::format("Host memory of a node: {}; {}. Processes and file caches come on top.",
                               fmt::join(parts, ", "), has),
                   2, widest_line);
}

Json interval_json(const StepInterval& i) {
    Json rests = Json::object();
    Time step;
    for (const Time& time : i.rests) step += time;
    for (std::size_t b = 0; b < basis_count; ++b) rests.set(std::string(name_of(basis_at(b))), share(i.rests[b], step));
    Json parts = Json::array();
    for (const PartInterval& p : i.parts) {
        Json part = Json::object();
        part.set("part", key_of(p.part)).set("time_s", seconds(p.time)).set("spread", p.spread);
        part.set("of_step", p.of_step).set("stated", p.stated).set("basis", name_of(p.basis));
        parts.push(part.set("half_width_s", seconds(p.half_width)));
    }
    Json out = Json::object();
    out.set("coverage", StepInterval::coverage).set("low_s", seconds(i.low)).set("high_s", seconds(i.high));
    out.set("weakest", i.parts.empty() ? Json() : Json(std::string(key_of(i.parts.front().part))));
    return out.set("time_rests_on", std::move(rests)).set("parts", std::move(parts));
}

Json host_json(const HostMemory& h) {
    Json out = Json::object();
    out.set("building_bytes", h.building.value).set("checkpoint_bytes", h.checkpoint.value);
    out.set("batch_bytes", h.batch.value).set("needed_bytes", h.needed().value);
    out.set("capacity_bytes", h.capacity > Bytes{} ? Json(h.capacity.value) : Json());
    return out.set("too_much", h.too_much());
}

}  // namespace foretrain
