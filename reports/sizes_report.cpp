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

std::string marks(const SizeResult& s) { return std::string(s.fewest ? "t" : "-") + (s.least_hours ? "h" : "-"); }

// A column of money stands there only where there is a price.
std::string best_table(const RangeResult& range) {
    const auto trained = [&](const SizeResult& s) { return s.best && s.best->training.has_value(); };
    const bool training = std::any_of(range.sizes.begin(), range.sizes.end(), trained);
    std::vector<std::string> heading{"front", "GPUs", "step s", "tokens/s", "MFU", "peak GiB"};
    if (training) heading.insert(heading.end(), {"days", "GPU-hours", "USD"});
    TextTable t(heading, 1);
    for (const SizeResult& s : range.sizes) {
        if (!s.best) {
            t.row({"", fmt::format("{}", s.devices), "none"});
            continue;
        }
        const Prediction& p = *s.best;
        std::vector<std::string> cells{marks(s),
                                       fmt::format("{}", s.devices),
                                       fmt::format("{:.3f}", seconds(p.step)),
                                       grouped(p.tokens_per_second()),
                                       percent(p.mfu()),
                                       gib(p.peak_bytes())};
        if (training && p.training) {
            const TrainingCost& c = *p.training;
            cells.push_back(fmt::format("{:.4g}", c.days));
            cells.push_back(grouped(c.device_hours));
            cells.push_back(c.price.most <= 0 ? "-"
                            : c.money_least == c.money_most
                                ? grouped(c.money_least)
                                : fmt::format("{} to {}", grouped(c.money_least), grouped(c.money_most)));
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
                                name_of(base.training.precision), base.framework);
    s += "Best plan of each size   t: no smaller size is as fast; h: none is faster for as few GPU-hours\n";
    s += best_table(range) + "\nThe plans\n";
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
