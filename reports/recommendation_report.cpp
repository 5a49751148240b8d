#include "reports/recommendation_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/plan_file.h"
#include "reports/explain_report.h"
#include "reports/figures.h"
#include "reports/prediction_parts.h"
#include "reports/prediction_report.h"

namespace foretrain {

namespace {

constexpr std::size_t columns = 100;

// Of the slowest stage's step.
std::string share_of_step(const Prediction& p, Time StageTime::*part) {
    const StageTime t = p.time_of_busiest();
    return percent(seconds(t.*part) / std::max(seconds(t.step), 1e-12));
}

std::string tensor_text(const Prediction& p) {
    const std::int64_t tensor = p.plan.parallelism.tensor, node = p.plan.cluster.devices_per_node;
    if (tensor == 1) return "no layer is split, so no collective stands between its kernels";
    const std::string waits =
        fmt::format("waiting for its collectives is {} of the step", share_of_step(p, &StageTime::tensor_exposed));
    if (tensor <= node) return fmt::format("inside a node of {} GPUs; {}", node, waits);
    return fmt::format("wider than a node of {} GPUs; {}", node, waits);
}

std::string context_text(const Prediction& p) {
    if (p.plan.parallelism.context == 1) return "every rank has whole sequences";
    return fmt::format("{} tokens of a sequence on each rank; waiting for the others' is {} of the step",
                       p.plan.training.sequence_length / p.plan.parallelism.context,
                       share_of_step(p, &StageTime::context_exposed));
}

std::string pipeline_text(const Prediction& p) {
    const std::int64_t stages = p.plan.parallelism.pipeline;
    if (stages == 1) return "one stage, so there is no bubble";
    return fmt::format("{} of the model's {} layers a stage; the bubble is {} of the step",
                       p.plan.model.layers / stages, p.plan.model.layers, share_of_step(p, &StageTime::bubble));
}

std::string virtual_text(const Prediction& p) {
    const std::int64_t chunks = p.plan.parallelism.virtual_pipeline;
    if (p.plan.parallelism.pipeline == 1) return "there is nothing to interleave in one stage";
    if (chunks == 1) return "each stage holds one run of layers, and sends each microbatch on once";
    return fmt::format("each stage takes turns with {} runs of layers, for a smaller bubble and more messages", chunks);
}

std::string zero_text(const Prediction& p) {
    const Parallelism& a = p.plan.parallelism;
    if (a.data == 1) return "there is one data rank, and nothing to share out";
    const char* shared[] = {"each data rank keeps all of its state", "optimizer state is shared out over {} data ranks",
                            "optimizer state and gradients are shared out over {} data ranks",
                            "optimizer state, gradients and weights are shared out over {} data ranks"};
    const std::string ranks =
        a.zero_shard_size == 0 ? fmt::format("{}", a.data) : fmt::format("each {} of {}", a.zero_shard_size, a.data);
    return fmt::format(fmt::runtime(shared[std::clamp(a.zero_stage, 0, 3)]), ranks);
}

std::string recompute_text(const Prediction& p) {
    const MemoryVerdict v = verdict_of(p);
    const std::string room = fmt::format("the largest stage has {} to spare", figure(v.margin));
    if (p.plan.parallelism.recompute.kind == Recompute::Kind::none) return "it fits without: " + room;
    return fmt::format("it takes {} of the step; {}", share_of_step(p, &StageTime::recompute), room);
}

std::string expert_text(const Prediction& p) {
    const std::int64_t experts = p.plan.model.moe.experts, ranks = p.plan.parallelism.expert;
    if (ranks == 1) return fmt::format("each rank holds all {} experts of its layers, and no token leaves it", experts);
    return fmt::format(
        "{} of {} experts of a layer on each rank, inside {}", experts / ranks, experts,
        ranks * p.plan.parallelism.expert_tensor <= p.plan.cluster.devices_per_node ? "a node" : "more nodes than one");
}

std::string expert_tensor_text(const Prediction& p) {
    const std::int64_t ranks = p.plan.parallelism.expert_tensor;
    return ranks == 1 ? "an expert's matrices are whole" : fmt::format("{} ranks share an expert's matrices", ranks);
}

std::string because(const AxisReason& r, const Prediction& best) {
    if (r.axis == "tensor") return tensor_text(best);
    if (r.axis == "context") return context_text(best);
    if (r.axis == "pipeline") return pipeline_text(best);
    if (r.axis == "virtual_pipeline") return virtual_text(best);
    if (r.axis == "zero_stage") return zero_text(best);
    if (r.axis == "recompute") return recompute_text(best);
    if (r.axis == "expert") return expert_text(best);
    if (r.axis == "expert_tensor") return expert_tensor_text(best);
    const std::int64_t n = best.plan.microbatches();
    return fmt::format("{} microbatch{} a step on each data rank", n, n == 1 ? "" : "es");
}

std::string in_words(const std::string& axis) {
    if (axis == "zero_stage") return "ZeRO stage";
    if (axis == "virtual_pipeline") return "virtual pipeline";
    if (axis == "micro_batch_size") return "micro-batch size";
    if (axis == "expert_tensor") return "expert tensor";
    return axis;
}

std::string capital(std::string s) {
    if (!s.empty() && s[0] >= 'a' && s[0] <= 'z') s[0] = static_cast<char>(s[0] - 'a' + 'A');
    return s;
}

std::string against(const Alternative& a, const Prediction& best) {
    return fmt::format("takes {}, {} ({})", figure(a.step), longer(a.step, best.step), describe(a.parallelism));
}

std::string thumb_text(const RuleOfThumb& thumb, const Prediction* best) {
    const std::string rule = capital(thumb.rule) + ". ";
    if (!thumb.then.feasible()) return rule + "No such plan is feasible: " + thumb.then.why_not;
    if (best == nullptr) return rule + figure(thumb.then.step);
    if (thumb.then.parallelism == best->plan.parallelism) return rule + "That is the recommended plan.";
    return rule + "Its best " + against(thumb.then, *best) + ".";
}

}  // namespace

std::string reason_text(const AxisReason& r, const Prediction& best) {
    std::string s = fmt::format("{} {}: {}.", capital(in_words(r.axis)), r.value, because(r, best));
    if (!r.alternative.feasible())
        return s + fmt::format(" With any other, no plan is feasible: {}", r.alternative.why_not);
    if (r.other.empty()) return s + " There is no other choice.";
    return s + fmt::format(" The best plan with {} {} {}.", in_words(r.axis), r.other, against(r.alternative, best));
}

std::string recommendation_table(const Recommendation& r) {
    const Plan& base = r.sweep.base;
    std::string s =
        fmt::format("{} on {}, {} GPU{}; batch {} x {} tokens, {}; framework {}\n", base.model.name, base.cluster.name,
                    base.cluster.devices(), base.cluster.devices() == 1 ? "" : "s", base.training.global_batch_size,
                    base.training.sequence_length, name_of(base.training.computes()), framework_text(base));
    if (r.sweep.best.empty()) {
        s += "There is no plan to recommend: none of " + grouped(static_cast<double>(r.sweep.enumerated)) +
             " is feasible.\n\n";
        for (const auto& [reason, count] : r.sweep.fell)
            s += wrapped(fmt::format("{} fell for {}, e.g. {}: {}", count.count, reason, count.example, count.text), 2,
                         columns);
        if (!r.sweep.nothing.empty()) s += wrapped(r.sweep.nothing, 2, columns);
        s += "\nRule of thumb\n" + wrapped(thumb_text(r.thumb, nullptr), 2, columns);
        return s + "\n" + explanation_table(r.explanation, nullptr);
    }
    const Prediction& best = r.sweep.best.front();
    s += fmt::format("Recommended: {}\n", describe(best.plan.parallelism));
    s += fmt::format("  {} a step, {} tokens/s, MFU {}; best of {} plans, {} of them feasible\n\n", figure(best.step),
                     grouped(best.tokens_per_second()), percent(best.mfu()),
                     grouped(static_cast<double>(r.sweep.enumerated)), grouped(static_cast<double>(r.sweep.feasible)));
    s += "Why\n";
    for (const AxisReason& reason : r.reasons) s += wrapped(reason_text(reason, best), 2, columns);
    s += "\nRule of thumb\n" + wrapped(thumb_text(r.thumb, &best), 2, columns) + "\n";
    s += time_heading(best) + time_table(best) + "\n";
    s += fmt::format("Memory              {} on each GPU, by stage\n{}\n", memory_unit(best), memory_table(best));
    if (best.training) s += training_table(*best.training) + "\n";
    return s + explanation_table(r.explanation, &best);
}

Json recommendation_json(const Recommendation& r) {
    const Prediction* best = r.sweep.best.empty() ? nullptr : &r.sweep.best.front();
    Json reasons = Json::array();
    for (const AxisReason& reason : r.reasons) {
        Json one = Json::object();
        one.set("axis", reason.axis).set("value", reason.value);
        one.set("other", reason.other.empty() ? Json() : Json(reason.other));
        const bool another = !reason.other.empty() || !reason.alternative.feasible();
        one.set("alternative", another ? alternative_json(reason.alternative) : Json());
        reasons.push(one.set("text", reason_text(reason, *best)));
    }
    Json thumb = alternative_json(r.thumb.then);
    thumb.set("rule", r.thumb.rule).set("text", thumb_text(r.thumb, best));
    Json space = Json::object();
    space.set("enumerated", r.sweep.enumerated).set("feasible", r.sweep.feasible);
    Json out = Json::object();
    out.set("feasible", best != nullptr).set("recommended", best == nullptr ? Json() : prediction_json(*best));
    out.set("reasons", std::move(reasons)).set("rule_of_thumb", std::move(thumb));
    out.set("explanation", explanation_json(r.explanation, best)).set("space", std::move(space));
    return out.set("elapsed_s", r.sweep.elapsed_s);
}

}  // namespace foretrain
