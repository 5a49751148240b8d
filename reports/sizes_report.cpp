#include "reports/sizes_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/prediction_report.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

double device_hours(const SizeResult& s) { return seconds(s.best->step) * static_cast<double>(s.devices) / 3600; }

bool any_tight(const RangeResult& range) {
    return std::any_of(range.sizes.begin(), range.sizes.end(),
                       [](const SizeResult& s) { return s.best && !tight_mark(*s.best).empty(); });
}

// What no other size does better: each size's own best plan is told apart by it.
std::string unbeaten(const SizeResult& s) {
    if (s.fewest && s.least_hours) return "speed, hours";
    return s.fewest ? "speed" : s.least_hours ? "hours" : "-";
}

// Columns of a whole training stand there only where tokens are given, of money and energy where price and power
// are known.
std::string best_table(const RangeResult& range) {
    const auto trained = [&](const SizeResult& s) { return s.best && s.best->training.has_value(); };
    const bool training = std::any_of(range.sizes.begin(), range.sizes.end(), trained);
    const auto any = [&](auto known) {
        return std::any_of(range.sizes.begin(), range.sizes.end(),
                           [&](const SizeResult& s) { return trained(s) && known(*s.best->training); });
    };
    const bool priced = any([](const TrainingCost& c) { return c.price.most > 0; });
    const bool powered = any([](const TrainingCost& c) { return c.watts > 0; });
    const bool tight = any_tight(range);
    std::vector<std::string> heading{"unbeaten in", "GPUs", "step s", "tokens/s", "MFU", "peak GiB"};
    if (training) heading.insert(heading.end(), {"days", "GPU-hours"});
    if (priced) heading.emplace_back("USD");
    if (powered) heading.emplace_back("MWh");
    TextTable t(heading, 1);
    for (const SizeResult& s : range.sizes) {
        if (!s.best) {
            t.row({"", fmt::format("{}", s.devices), "none"});
            continue;
        }
        const Prediction& p = *s.best;
        const std::string mark = tight_mark(p).empty() && tight ? " " : tight_mark(p);
        std::vector<std::string> cells{unbeaten(s),
                                       fmt::format("{}", s.devices),
                                       fmt::format("{:.3f}", seconds(p.step)),
                                       grouped(p.tokens_per_second()),
                                       percent(p.mfu()),
                                       gib(p.peak_bytes()) + mark};
        if (training && p.training) {
            const TrainingCost& c = *p.training;
            cells.push_back(amount(c.days));
            cells.push_back(grouped(c.device_hours));
            if (priced)
                cells.push_back(c.money_least == c.money_most
                                    ? grouped(c.money_least)
                                    : fmt::format("{} to {}", grouped(c.money_least), grouped(c.money_most)));
            if (powered) cells.push_back(amount(c.megawatt_hours));
        }
        t.row(std::move(cells));
    }
    return t.text(2);
}

}  // namespace

std::string sizes_table(const RangeResult& range) {
    const Plan& base = range.base;
    std::string s = fmt::format("{} on {}; batch {} x {} tokens, {}; framework {}\n\n", base.model.name,
                                base.cluster.name, base.training.global_batch_size, base.training.sequence_length,
                                name_of(base.training.computes()), framework_text(base));
    s += "Best plan of each size\n" + best_table(range);
    s += "  unbeaten in speed: no smaller size is as fast; in hours: none is faster for as few GPU-hours\n";
    if (any_tight(range)) s += "  " + std::string(tight_note);
    s += "\nThe plans\n";
    for (const SizeResult& size : range.sizes) {
        const std::string what = size.best ? describe(size.best->plan.parallelism) : size.why_not;
        s += wrapped(fmt::format("{} GPUs: {}", size.devices, what), 2, 100);
    }
    for (const SizeResult& size : range.sizes)
        if (size.best && size.best->training) {
            for (const std::string& what : size.best->training->assumed) s += wrapped("Assumed: " + what + ".", 2, 100);
            break;
        }
    return s;
}

Json sizes_json(const RangeResult& range) {
    std::int64_t enumerated = 0, feasible = 0;
    Json sizes = Json::array();
    std::vector<const SizeResult*> found;
    for (const SizeResult& s : range.sizes) {
        enumerated += s.enumerated;
        feasible += s.feasible;
        Json one = Json::object();
        one.set("nodes", s.nodes).set("gpus", s.devices).set("enumerated", s.enumerated).set("feasible", s.feasible);
        if (s.best) {
            found.push_back(&s);
            one.set("step_time_s", seconds(s.best->step)).set("gpu_hours_per_step", device_hours(s));
            one.set("front_of_gpus", s.fewest).set("front_of_gpu_hours", s.least_hours);
        } else {
            one.set("why_not", s.why_not);
        }
        sizes.push(std::move(one));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const SizeResult* a, const SizeResult* b) { return a->best->step < b->best->step; });
    Json plans = Json::array(), pareto = Json::array();
    for (const SizeResult* s : found) {
        plans.push(prediction_json(*s->best));
        if (s->fewest) pareto.push(prediction_json(*s->best));
    }
    Json space = Json::object();
    space.set("enumerated", enumerated).set("feasible", feasible);
    Json out = Json::object();
    out.set("space", std::move(space)).set("plans", std::move(plans)).set("pareto", std::move(pareto));
    return out.set("sizes", std::move(sizes)).set("elapsed_s", range.elapsed_s);
}

std::string sizes_csv(const RangeResult& range) {
    std::string s = prediction_csv_heading();
    for (const SizeResult& size : range.sizes)
        if (size.best) s += prediction_csv_line(*size.best);
    return s;
}

}  // namespace foretrain
