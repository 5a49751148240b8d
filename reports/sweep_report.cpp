#include "reports/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/plan_file.h"
#include "reports/explain_report.h"
#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/prediction_report.h"
#include "reports/text_table.h"

namespace foretrain {

namespace {

// "1f1b", or "1f1b v4" with four chunks a stage: a column of its own would not fit beside all others.
std::string schedule_of(const Parallelism& p) {
    const std::string_view name = name_of(p.schedule);
    return p.virtual_pipeline == 1 ? std::string(name) : fmt::format("{} v{}", name, p.virtual_pipeline);
}

// With the method where there is one, short: the line below the table says it in full.
std::string context_cell(const Parallelism& p) {
    if (p.context == 1) return "1";
    return fmt::format("{} {}", p.context, p.context_method == ContextMethod::ring ? "ring" : "a2a");
}

bool any_tight(const std::vector<Prediction>& plans) {
    return std::any_of(plans.begin(), plans.end(), [](const Prediction& p) { return !tight_mark(p).empty(); });
}

bool any_context(const std::vector<Prediction>& plans) {
    return std::any_of(plans.begin(), plans.end(), [](const Prediction& p) { return p.plan.parallelism.context > 1; });
}

// With the ranks that share an expert's matrices, where there are any.
std::string expert_cell(const Parallelism& p) {
    return p.expert_tensor == 1 ? fmt::format("{}", p.expert) : fmt::format("{} etp{}", p.expert, p.expert_tensor);
}

bool any_experts(const std::vector<Prediction>& plans) {
    return std::any_of(plans.begin(), plans.end(), [](const Prediction& p) { return p.plan.model.has_experts(); });
}

std::string plans_table(const std::vector<Prediction>& plans) {
    Bytes most;
    for (const Prediction& p : plans) most = std::max(most, p.peak_bytes());
    const bool small = most.value < GiB;  // in GiB, all would round to nothing
    const bool context = any_context(plans), experts = any_experts(plans);
    const std::string unmarked = any_tight(plans) ? " " : "";  // so that the figures stay below each other
    std::vector<std::string> heading{"#",       "tp",        "pp",       "dp",
                                     "zero",    "mbs",       "schedule", "recompute",
                                     "step ms", "tok/s/GPU", "MFU",      small ? "peak MiB" : "peak GiB"};
    if (experts) heading.insert(heading.begin() + 2, "ep");
    if (context) heading.insert(heading.begin() + 2, "cp");
    TextTable t(heading, 0);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const Prediction& p = plans[i];
        const std::string mark = tight_mark(p);
        const Parallelism& a = p.plan.parallelism;
        std::vector<std::string> row{
            fmt::format("{}", i + 1),
            fmt::format("{}", a.tensor),
            fmt::format("{}", a.pipeline),
            fmt::format("{}", a.data),
            describe_zero(a),
            fmt::format("{}", a.micro_batch_size),
            schedule_of(a),
            describe(a.recompute),
            fmt::format("{:.2f}", seconds(p.step) * 1e3),
            grouped(tokens_per_second_per_device(p)),
            percent(p.mfu()),
            (small ? fmt::format("{:.2f}", static_cast<double>(p.peak_bytes().value) / static_cast<double>(MiB))
                   : gib(p.peak_bytes())) +
                (mark.empty() ? unmarked : mark)};
        if (experts) row.insert(row.begin() + 2, expert_cell(a));
        if (context) row.insert(row.begin() + 2, context_cell(a));
        t.row(row);
    }
    return t.text(2);
}

// A front thinned for the eye: the fastest plan, then each that needs at least `percent` less memory
// than the one shown before it, and the smallest.
std::vector<Prediction> thinned(const std::vector<Prediction>& front, std::int64_t percent) {
    std::vector<Prediction> shown{front.front()};
    for (std::size_t i = 1; i < front.size(); ++i) {
        const std::int64_t last = shown.back().peak_bytes().value;
        if (i + 1 == front.size() || front[i].peak_bytes().value <= last - last / 100 * percent)
            shown.push_back(front[i]);
    }
    return shown;
}

// At most `top` rows from the fastest to the smallest; JSON has them all.
std::string pareto_table(const std::vector<Prediction>& front, std::size_t top) {
    std::vector<Prediction> shown = front;
    std::int64_t saving = 0;
    for (const std::int64_t percent : {5, 10, 20, 40})
        if (shown.size() > top) shown = thinned(front, saving = percent);
    if (shown.size() > top) shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(top) - 1, shown.end() - 1);
    std::string s =
        fmt::format("Pareto front        nothing else is both faster and smaller{}\n{}",
                    saving == 0 ? "" : fmt::format("; each saves {} % or more", saving), plans_table(shown));
    if (shown.size() < front.size()) s += fmt::format("  and {} more (--format json)\n", front.size() - shown.size());
    return s;
}

std::string counts(const SweepResult& r) {
    return fmt::format("{} plans enumerated, {} feasible, {} estimated ({} excluded by their bound).\n",
                       grouped(static_cast<double>(r.enumerated)), grouped(static_cast<double>(r.feasible)),
                       grouped(static_cast<double>(r.estimated)),
                       grouped(static_cast<double>(std::max<std::int64_t>(r.feasible - r.estimated, 0))));
}

// What the batch keeps from being tried at all: few would guess it from a small number of plans.
std::string left_out(const SweepResult& r) {
    const LeftOutByBatch& l = r.left_out;
    if (l.combinations == 0 || r.enumerated == 0) return "";
    const auto count = [](std::int64_t n) { return grouped(static_cast<double>(n)); };
    return wrapped(
        fmt::format("Not tried: {} of {} combinations of tensor, pipeline, chunks and context, as a batch of {} "
                    "is no multiple of the data ranks that they leave. A batch of {} would allow {}.",
                    count(l.combinations), count(l.of), r.base.training.global_batch_size, l.batch,
                    l.then_left_out == 0 ? "all" : fmt::format("all but {}", count(l.then_left_out))),
        0, 100);
}

// The commonest reason first, each with one plan that it struck.
std::string fallen(const SweepResult& r) {
    if (!r.nothing.empty()) return "Why there are none\n" + wrapped(r.nothing, 2, 100);
    if (r.fell.empty()) return "";
    std::vector<std::pair<std::string, RejectionCount>> reasons(r.fell.begin(), r.fell.end());
    std::stable_sort(reasons.begin(), reasons.end(),
                     [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
    std::string s = r.best.empty() ? "Why they fell\n" : "Why the rest fell\n";
    for (const auto& [reason, count] : reasons) {
        s += fmt::format("  {:>9}  {}\n", grouped(static_cast<double>(count.count)), reason);
        if (!count.example.empty()) s += wrapped("e.g. " + count.example, 13, 100);
        if (!count.text.empty()) s += wrapped(count.text, 13, 100);
    }
    return s;
}

}  // namespace

std::string sweep_table(const SweepResult& r, std::size_t top) {
    const std::int64_t devices = r.base.cluster.devices();
    std::string s =
        fmt::format("{} on {}, {} GPU{}; batch {} x {} tokens, {}; framework {}\n", r.base.model.name,
                    r.base.cluster.name, devices, devices == 1 ? "" : "s", r.base.training.global_batch_size,
                    r.base.training.sequence_length, name_of(r.base.training.computes()), framework_text(r.base));
    if (r.best.empty()) {
        s += "No plan is feasible. " + counts(r) + left_out(r) + "\n" + fallen(r);
        return r.explanation ? s + "\n" + explanation_table(*r.explanation, nullptr) : s;
    }
    const Prediction& best = r.best.front();
    const Plan& plan = best.plan;
    const std::vector<Prediction> shown(r.best.begin(),
                                        r.best.begin() + static_cast<std::ptrdiff_t>(std::min(top, r.best.size())));
    s += counts(r) + left_out(r) + "\n";
    s += fmt::format("{}\n{}", shown.size() == 1 ? "Best plan" : fmt::format("Best {} plans", shown.size()),
                     plans_table(shown));
    s += fmt::format("  tp tensor, {}pp pipeline, dp data, v chunks/stage, mbs micro-batch, sp sequence parallel\n",
                     any_context(shown) ? "cp context, " : "");
    if (any_experts(shown)) s += "  ep ranks that share out experts, etp that share an expert's matrices\n";
    const std::string note = "  " + std::string(tight_note);
    s += any_tight(shown) ? note + "\n" : "\n";
    s += fmt::format("The best: {}\n\n", describe(plan.parallelism));
    s += time_heading(best) + time_table(best) + "\n";
    s += fmt::format("Memory              {} on each GPU, by stage\n{}\n", memory_unit(best), memory_table(best));
    if (r.explanation)
        s += explanation_table(*r.explanation, &best) + "\n";
    else
        s += "What limits it\n" + wrapped(limits_text(best), 2, 100) + "\n";
    if (best.training) s += training_table(*best.training) + "\n";
    s += pareto_table(r.pareto, top);
    if (any_tight(r.pareto) && !any_tight(shown)) s += note;
    const std::string why = fallen(r);
    return why.empty() ? s : s + "\n" + why;
}

namespace {

// Model, cluster and training are those of every plan, the best among them: hundreds of copies are a megabyte.
Json front_json(const Prediction& p) {
    const Json whole = plan_to_json(p.plan);
    Json own = Json::object();
    own.set("framework", whole.at("framework")).set("parallelism", whole.at("parallelism"));
    return prediction_json(p).set("plan", std::move(own));
}

}  // namespace

Json sweep_json(const SweepResult& r) {
    Json fell = Json::object();
    for (const auto& [reason, count] : r.fell) {
        Json entry = Json::object();
        entry.set("count", count.count).set("example", count.example).set("text", count.text);
        fell.set(reason, std::move(entry));
    }
    Json space = Json::object();
    space.set("enumerated", r.enumerated).set("feasible", r.feasible).set("estimated", r.estimated);
    space.set("fell", std::move(fell));
    if (const LeftOutByBatch& l = r.left_out; l.combinations > 0)
        space.set("left_out_by_batch", Json::object()
                                           .set("combinations", l.combinations)
                                           .set("of", l.of)
                                           .set("batch", l.batch)
                                           .set("then_left_out", l.then_left_out));
    if (!r.nothing.empty()) space.set("nothing", r.nothing);
    Json plans = Json::array();
    for (const Prediction& p : r.best) plans.push(prediction_json(p));
    Json pareto = Json::array();
    for (const Prediction& p : r.pareto) pareto.push(front_json(p));

    Json out = Json::object();
    out.set("space", std::move(space)).set("plans", std::move(plans)).set("pareto", std::move(pareto));
    if (r.explanation)
        out.set("explanation", explanation_json(*r.explanation, r.best.empty() ? nullptr : &r.best.front()));
    return out.set("elapsed_s", r.elapsed_s);
}

std::string sweep_csv(const SweepResult& r) {
    std::string s = prediction_csv_heading();
    for (const Prediction& p : r.best) s += prediction_csv_line(p);
    return s;
}

}  // namespace foretrain
