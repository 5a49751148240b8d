#include "plan/program/expert_share.h"

#include <algorithm>
#include <cmath>

namespace foretrain {

ExpertShare expert_share(const ModelSpec& model, const Parallelism& p, std::int64_t rows, double imbalance) {
    const MixtureOfExperts& moe = model.moe;
    ExpertShare s;
    if (moe.experts == 0) return s;
    s.experts = moe.experts;
    s.local = moe.experts / p.expert;
    s.ranks = p.expert;
    s.tensor = p.expert_tensor;
    s.ffn = moe.ffn_hidden_size / p.expert_tensor;
    const double mean = static_cast<double>(rows * moe.topk) / static_cast<double>(moe.experts);
    double most = mean * imbalance;
    if (moe.capacity_factor > 0) {
        const double room = mean * moe.capacity_factor;
        most = moe.pad_to_capacity ? room : std::min(room, most);
    }
    s.capacity = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(most)));
    return s;
}

}  // namespace foretrain
