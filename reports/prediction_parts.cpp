#include "reports/prediction_parts.h"

#include <algorithm>

#include "plan/framework.h"

namespace foretrain {

// Messages run between stages and a tied embedding is synchronised between stages: both are
// what the pipeline costs. What replicas exchange is what data parallelism costs.
std::string axis_of_group(const std::string& group) {
    for (const Axis among_replicas : {Axis::replica, Axis::shard, Axis::replicate, Axis::expert_replica})
        if (group == name_of(among_replicas)) return "data";
    if (group == name_of(Axis::expert_tensor)) return "expert";
    for (const char* known : {"tensor", "data", "context", "expert"})
        if (group == known) return group;
    return "pipeline";
}

std::vector<TimePart> breakdown(const StageTime& t) {
    return {{"gemm", "gemm", "matrix products of the layers", t.gemm, true},
            {"attention", "attention", "", t.attention, true},
            {"head", "head and loss", "all its kernels", t.head, true},
            {"other_kernels", "other kernels", "norms, activations, embedding, ...", t.other_kernels(), true},
            {"recompute", "recompute", "", t.recompute, true},
            {"optimizer", "optimizer", "", t.optimizer, true},
            {"tensor_exposed", "tensor exposed", "waits for tensor collectives", t.tensor_exposed},
            {"context_exposed", "context exposed", "waits for keys and values", t.context_exposed},
            {"expert_exposed", "expert exposed", "waits for tokens sent to experts", t.expert_exposed},
            {"data_exposed", "data exposed", "waits for gradients and parameters", t.data_exposed},
            {"host_exposed", "host exposed", "waits for the host to enqueue", t.host_exposed},
            {"overhead", "overhead", "the framework's own", t.overhead},
            {"pipeline_exposed", "pipeline exposed", "waits for messages between stages", t.messages()},
            {"bubble", "bubble", "waits for other stages' passes", t.bubble}};
}

std::vector<TimePart> by_pass(const StageTime& t) {
    return {{"forward", "forward", "", t.forward, true}, {"backward", "backward", "recompute apart", t.backward, true}};
}

std::vector<SentBytes> communication_by_collective(const Prediction& prediction) {
    std::vector<SentBytes> most;
    for (const WireCount& stage : prediction.wire)
        for (const auto& [key, bytes] : stage) {
            const std::size_t dot = key.find('.');
            const SentBytes sent{key.substr(0, dot), key.substr(dot + 1), bytes};
            const auto known = std::find_if(most.begin(), most.end(), [&](const SentBytes& s) {
                return s.group == sent.group && s.collective == sent.collective;
            });
            if (known == most.end())
                most.push_back(sent);
            else
                known->bytes = std::max(known->bytes, bytes);
        }
    return most;
}

std::vector<std::pair<std::string, Bytes>> communication_by_axis(const Prediction& prediction) {
    std::vector<std::pair<std::string, Bytes>> most{
        {"tensor", {}}, {"data", {}}, {"pipeline", {}}, {"context", {}}, {"expert", {}}};
    for (const WireCount& stage : prediction.wire) {
        for (auto& [axis, bytes] : most) {
            Bytes sum;
            for (const auto& [key, sent] : stage)
                if (axis_of_group(key.substr(0, key.find('.'))) == axis) sum += sent;
            bytes = std::max(bytes, sum);
        }
    }
    return most;
}

std::string framework_version(const Plan& plan) {
    const Framework* framework = find_framework(plan.framework);
    return framework == nullptr ? "" : framework->version;
}

std::string framework_text(const Plan& plan) {
    const Framework* framework = find_framework(plan.framework);
    if (framework == nullptr) return plan.framework.reference();
    const std::string own = plan.framework.own() == nullptr ? "" : ", own figures";
    return framework->name + " (" + framework->version + own + ")";
}

std::string moment_text(const Prediction& prediction, const PeakMoment& moment) {
    if (prediction.plan.parallelism.virtual_pipeline == 1 || moment.in_flight == 0) return text(moment);
    PeakMoment rest = moment;
    rest.in_flight = 0;
    return text(rest) + "; " + std::to_string(moment.in_flight) +
           (moment.in_flight == 1 ? " chunk pass in flight" : " chunk passes in flight");
}

std::string tight_mark(const Prediction& prediction) { return fit_of(prediction) == Fit::tight ? "!" : ""; }

// A refused plan has no step, and the product of its sizes may be anything.
Bytes largest_allocation(const Prediction& p) {
    Bytes most;
    for (const StageMemory& m : p.memory) most = std::max(most, m.allocated());
    return most;
}

Bytes largest_reservation(const Prediction& p) {
    Bytes most;
    for (const StageMemory& m : p.memory) most = std::max(most, m.allocated() + m.slack);
    return most;
}

double tokens_per_second_per_device(const Prediction& prediction) {
    if (prediction.step.value <= 0) return 0;
    return prediction.tokens_per_second() / static_cast<double>(prediction.plan.world());
}

std::int64_t padded_vocabulary(const Prediction& prediction) {
    const Plan& plan = prediction.plan;
    const Framework* framework = find_framework(plan.framework);
    return framework == nullptr ? plan.model.vocab_size
                                : padded_vocabulary(plan.model, *framework, plan.parallelism.tensor);
}

}  // namespace foretrain
