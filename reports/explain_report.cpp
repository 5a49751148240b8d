#include "reports/explain_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "plan/plan_file.h"
#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

constexpr std::size_t columns = 100;

double ratio(Time a, Time b) { return seconds(a) / std::max(seconds(b), 1e-12); }

// "gemm 53.9 %, attention 6.8 %": what is at least a thousandth of the step, largest first.
std::string shares(std::vector<TimePart> parts, Time step) {
    std::stable_sort(parts.begin(), parts.end(), [](const TimePart& a, const TimePart& b) { return a.time > b.time; });
    std::string s;
    for (const TimePart& part : parts)
        if (ratio(part.time, step) >= 0.001)
            s += fmt::format("{}{} {}", s.empty() ? "" : ", ", part.label, percent(ratio(part.time, step)));
    return s;
}

// Communication, memory and the rest: what to look at for each part of a step.
std::string remedy(const std::string& key) {
    if (key == "gemm" || key == "head") return "the devices' arithmetic is what it is bound by";
    if (key == "attention") return "attention over the sequence is what it is bound by";
    if (key == "other_kernels") return "kernels bound by memory bandwidth are what it spends most on";
    if (key == "recompute") return "computing again what memory could not keep costs it most";
    if (key == "optimizer") return "the optimizer step costs it most";
    if (key == "tensor_exposed") return "waiting for tensor collectives costs it most: they stand between kernels";
    if (key == "context_exposed") return "waiting for keys and values of other context ranks costs it most";
    if (key == "data_exposed") return "gradients and parameters on their way cost it most";
    if (key == "pipeline_exposed") return "messages between stages cost it most";
    if (key == "bubble")
        return "filling and draining the pipeline costs it most: more microbatches a step, or more chunks a stage, "
               "make it smaller";
    if (key == "host") return "the host that launches kernels is what it waits for most";
    return key + " costs it most";
}

// Where one stage has clearly more to do than the others on average, and what would share it.
std::string imbalance(const Prediction& p) {
    if (p.times.size() < 2) return "";
    Time all;
    for (const StageTime& t : p.times) all += t.busy();
    const Time mean{all.value / static_cast<std::int64_t>(p.times.size())};
    const std::int64_t stage = p.busiest_stage();
    const double more = ratio(p.times[static_cast<std::size_t>(stage)].busy(), mean) - 1;
    if (more < 0.02) return "";
    const char* option = stage == 0                                               ? " (--first-stage-layers)"
                         : stage + 1 == static_cast<std::int64_t>(p.times.size()) ? " (--last-stage-layers)"
                                                                                  : "";
    return fmt::format(
        " Stage {} is busy {} longer than stages on average, and they wait for it: fewer layers there{}, "
        "or embedding and head counted as layers (--embedding-and-head-as-layers), would share that.",
        stage, percent(more), option);
}

}  // namespace

std::string longer(Time step, Time than) {
    const double more = ratio(step, than) - 1;
    if (std::abs(more) < 0.0005) return "as long";
    return fmt::format("{} {}", percent(std::abs(more)), more > 0 ? "longer" : "shorter");
}

std::string limits_text(const Prediction& p) {
    if (p.times.empty()) return "";
    const StageTime t = p.time_of_busiest();
    std::vector<TimePart> computing, waiting;
    Time computes;
    for (const TimePart& part : breakdown(t)) {
        (part.computes ? computing : waiting).push_back(part);
        if (part.computes) computes += part.time;
    }
    std::string s = fmt::format("Of {}, {} computes: {}.", figure(t.step), percent(ratio(computes, t.step)),
                                shares(computing, t.step));
    if (const std::string waits = shares(waiting, t.step); !waits.empty()) s += fmt::format(" The rest: {}.", waits);
    const auto by_time = [](const TimePart& a, const TimePart& b) { return a.time < b.time; };
    const auto most = std::max_element(waiting.begin(), waiting.end(), by_time);
    const auto again =
        std::find_if(computing.begin(), computing.end(), [](const TimePart& part) { return part.key == "recompute"; });
    // What could be otherwise: kernels that must run limit it only where nothing else takes a twentieth.
    const TimePart* limit = most != waiting.end() ? &*most : nullptr;
    if (again != computing.end() && (limit == nullptr || again->time > limit->time)) limit = &*again;
    if (limit == nullptr || ratio(limit->time, t.step) < 0.05)
        limit = &*std::max_element(computing.begin(), computing.end(), by_time);
    const bool must_be = limit->computes && limit->key != "recompute";
    return s + (must_be ? " Little else matters: " : " Apart from what must be computed, ") + remedy(limit->key) + "." +
           imbalance(p);
}

Json alternative_json(const Alternative& a) {
    Json out = Json::object();
    out.set("feasible", a.feasible());
    if (!a.feasible()) return out.set("why_not", a.why_not);
    out.set("parallelism", parallelism_to_json(a.parallelism));
    return out.set("step_time_s", seconds(a.step)).set("peak_bytes", a.peak.value);
}

namespace {

std::string what_if_table(const Explanation& e, const Prediction& best) {
    std::string s = "What would move it most (the same plan, if nothing else is said)\n";
    for (const WhatIf& w : e.what_if) {
        if (!w.then.feasible()) {
            s += wrapped(fmt::format("{}: cannot be. {}", w.change, w.then.why_not), 2, columns);
            continue;
        }
        s += fmt::format("  {:<40}{:>10}  {}\n", w.change, figure(w.then.step), longer(w.then.step, best.step));
        if (w.then.parallelism != best.plan.parallelism && w.key == "memory_x2")
            s += fmt::format("    {}\n", describe(w.then.parallelism));
    }
    return s;
}

std::string link_text(const LinkNeed& need) {
    switch (need.answer) {
        case LinkNeed::Answer::unused: return "";
        case LinkNeed::Answer::hidden:
            return fmt::format("Communication {} is hidden: {:.2g} of the bandwidth there is would do.", need.link,
                               need.factor);
        case LinkNeed::Answer::needs:
            return fmt::format(
                "Communication {} would be hidden with {:.3g} times the bandwidth, {:.4g} GB/s per GPU and direction "
                "where there are {:.4g}.",
                need.link, need.factor, need.factor * need.gbps_now, need.gbps_now);
        case LinkNeed::Answer::cannot:
            return fmt::format(
                "No bandwidth hides the communication {}: latency alone leaves a step of {}, where a link that takes "
                "no time would make it {}.",
                need.link, figure(need.best_step), figure(need.free_step));
    }
    return "";
}

std::string smallest_text(const SmallestSize& smallest, const std::string& batch) {
    if (smallest.devices == 0)
        return fmt::format("No size up to {} GPUs has a plan with {}.", smallest.searched_to, batch);
    return fmt::format("Fewest GPUs with {}: {} on {} node{} ({}).", batch, smallest.devices, smallest.nodes,
                       smallest.nodes == 1 ? "" : "s", describe(smallest.then.parallelism));
}

std::string sizes_table(const Explanation& e) {
    return wrapped(smallest_text(e.smallest, "any batch"), 2, columns) +
           wrapped(smallest_text(e.smallest_with_batch, "this batch"), 2, columns);
}

}  // namespace

std::string explanation_table(const Explanation& e, const Prediction* best) {
    if (best == nullptr) return "How many GPUs it takes\n" + sizes_table(e);
    std::string s = "What limits it\n" + wrapped(limits_text(*best), 2, columns);
    for (const LinkNeed& need : e.links)
        if (const std::string words = link_text(need); !words.empty()) s += wrapped(words, 2, columns);
    s += "\n" + what_if_table(e, *best) + "\nHow far it goes\n";
    if (e.largest_micro_batch) {
        const std::int64_t size = e.largest_micro_batch->parallelism.micro_batch_size;
        const bool own = size == best->plan.parallelism.micro_batch_size;
        s += fmt::format("  Largest micro-batch of this plan that fits: {}, {}.\n", size,
                         own ? "its own"
                             : fmt::format("{} a step, {}", figure(e.largest_micro_batch->step),
                                           longer(e.largest_micro_batch->step, best->step)));
    }
    return s + sizes_table(e);
}

namespace {

std::string_view name_of(LinkNeed::Answer answer) {
    switch (answer) {
        case LinkNeed::Answer::unused: return "unused";
        case LinkNeed::Answer::hidden: return "hidden";
        case LinkNeed::Answer::needs: return "needs";
        case LinkNeed::Answer::cannot: return "cannot";
    }
    return "?";
}

Json link_json(const LinkNeed& need) {
    Json out = Json::object();
    out.set("link", need.key).set("answer", name_of(need.answer));
    if (need.answer == LinkNeed::Answer::unused) return out;
    out.set("gbps_per_gpu", need.gbps_now);
    const bool known = need.answer != LinkNeed::Answer::cannot;
    out.set("factor", known ? Json(need.factor) : Json());
    out.set("gbps_per_gpu_needed", known ? Json(need.factor * need.gbps_now) : Json());
    out.set("step_time_s_if_free", seconds(need.free_step));
    return out.set("step_time_s_if_boundless", seconds(need.best_step)).set("text", link_text(need));
}

Json smallest_json(const SmallestSize& smallest) {
    Json out = Json::object();
    out.set("gpus", smallest.devices > 0 ? Json(smallest.devices) : Json()).set("searched_to", smallest.searched_to);
    if (smallest.devices > 0) out.set("nodes", smallest.nodes).set("plan", alternative_json(smallest.then));
    return out;
}

}  // namespace

Json explanation_json(const Explanation& e, const Prediction* best) {
    Json out = Json::object();
    if (best != nullptr) {
        out.set("limits", limits_text(*best));
        Json all = Json::array();
        for (const WhatIf& w : e.what_if) {
            Json one = Json::object();
            one.set("key", w.key).set("change", w.change).set("gain_s", seconds(w.gain));
            all.push(one.set("then", alternative_json(w.then)));
        }
        Json links = Json::array();
        for (const LinkNeed& need : e.links) links.push(link_json(need));
        out.set("what_if", std::move(all)).set("links", std::move(links));
        out.set("largest_micro_batch",
                e.largest_micro_batch ? Json(e.largest_micro_batch->parallelism.micro_batch_size) : Json());
    }
    out.set("smallest_with_any_batch", smallest_json(e.smallest));
    return out.set("smallest_with_this_batch", smallest_json(e.smallest_with_batch));
}

std::string nearest_table(const Prediction& wish) {
    if (wish.nearest->empty()) return "No change of one or two of its fields makes it fit.\n";
    std::string s = "Nearest that fits   fewest fields changed, then fastest; against the step it would have had\n";
    for (const NearestChange& c : *wish.nearest)
        s += fmt::format("  {:<50}{:>10}  {}\n", fmt::format("{}", fmt::join(c.changes, ", ")), figure(c.then.step),
                         longer(c.then.step, wish.step));
    return s;
}

Json nearest_json(const Prediction& wish) {
    Json all = Json::array();
    for (const NearestChange& c : *wish.nearest) {
        Json changes = Json::array();
        for (const std::string& change : c.changes) changes.push(Json(change));
        Json one = Json::object();
        one.set("changes", std::move(changes)).set("cost_s", seconds(c.cost));
        all.push(one.set("then", alternative_json(c.then)));
    }
    return all;
}

}  // namespace foretrain
