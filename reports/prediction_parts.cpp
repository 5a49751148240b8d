#include "reports/prediction_parts.h"

#include <algorithm>

#include "plan/framework.h"

namespace foretrain {

namespace {

// Messages run between stages and a tied embedding is synchronised between stages: both are
// what the pipeline costs. What replicas exchange is what data parallelism costs.
std::string axis_of(const std::string& wire_key) {
    const std::string axis = wire_key.substr(0, wire_key.find('.'));
    if (axis == name_of(Axis::replica)) return "data";
    for (const char* known : {"tensor", "data", "context", "expert"})
        if (axis == known) return axis;
    return "pipeline";
}

}  // namespace

std::vector<TimePart> breakdown(const StageTime& t) {
    return {{"forward", "forward", "", t.forward},
            {"backward", "backward", "", t.backward},
            {"recompute", "recompute", "", t.recompute},
            {"optimizer", "optimizer", "", t.optimizer},
            {"tensor_exposed", "tensor exposed", "waits for tensor collectives", t.tensor_exposed},
            {"context_exposed", "context exposed", "waits for keys and values", t.context_exposed},
            {"data_exposed", "data exposed", "waits for gradients and parameters", t.data_exposed},
            {"host_exposed", "host exposed", "waits for the host to enqueue", t.host_exposed},
            {"overhead", "overhead", "the framework's own", t.overhead},
            {"pipeline_exposed", "pipeline exposed", "bubble and messages", t.pipeline_exposed}};
}

std::vector<std::pair<std::string, Bytes>> communication_by_axis(const Prediction& prediction) {
    std::vector<std::pair<std::string, Bytes>> most{
        {"tensor", {}}, {"data", {}}, {"pipeline", {}}, {"context", {}}, {"expert", {}}};
    for (const WireCount& stage : prediction.wire) {
        for (auto& [axis, bytes] : most) {
            Bytes sum;
            for (const auto& [key, sent] : stage)
                if (axis_of(key) == axis) sum += sent;
            bytes = std::max(bytes, sum);
        }
    }
    return most;
}

// A refused plan has no step, and the product of its sizes may be anything.
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
