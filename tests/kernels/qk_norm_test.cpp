#include "tests/kernels/support/tensors.h"

namespace foretrain::test {
namespace {

// Head by head, by the slot's place in its group of queries, key and value.
Tensor<double> reference(const QkNormArgs& a, Tensor<double> qkv, const Tensor<double>& query,
                         const Tensor<double>& key) {
    const auto group = static_cast<std::size_t>(a.heads / a.kv_heads), d = static_cast<std::size_t>(a.head_dim);
    const std::size_t heads = qkv.size() / d, in_row = static_cast<std::size_t>(a.heads + 2 * a.kv_heads);
    for (std::size_t head = 0; head < heads; ++head) {
        const std::size_t slot = head % in_row % (group + 2), g = head % in_row / (group + 2);
        if (slot == group + 1) continue;
        const bool is_key = slot == group;
        double mean = 0, squares = 0;
        for (std::size_t i = 0; i < d && !a.rms; ++i) mean += qkv[head * d + i] / static_cast<double>(d);
        for (std::size_t i = 0; i < d; ++i) squares += std::pow(qkv[head * d + i] - mean, 2) / static_cast<double>(d);
        const std::size_t weight = a.per_head ? (is_key ? g : g * group + slot) * d : 0;
        for (std::size_t i = 0; i < d; ++i)
            qkv[head * d + i] =
                (qkv[head * d + i] - mean) / std::sqrt(squares + a.epsilon) * (is_key ? key : query)[weight + i];
    }
    return qkv;
}

void check(bool per_head, bool rms, std::int64_t heads, std::int64_t kv_heads) {
    QkNormArgs a{.rows = 5,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = 6,
                 .per_head = per_head,
                 .rms = rms,
                 .accumulate = false,
                 .type = DType::fp64,
                 .gradient = DType::fp64};
    const std::int64_t width = (heads + 2 * kv_heads) * 6, queries = per_head ? heads * 6 : 6;
    const std::int64_t keys = per_head ? kv_heads * 6 : 6;
    auto before = random_tensor<double>(5 * width, 1), query = random_tensor<double>(queries, 2);
    auto key = random_tensor<double>(keys, 3);
    const auto dy = random_tensor<double>(5 * width, 4);
    auto qkv = before, raw = zeros<double>(5 * (heads + kv_heads) * 6);
    call(a, {qkv.data(), raw.data(), query.data(), key.data()});
    expect_near(qkv, reference(a, before, query, key), 1e-12, to_text(a));

    auto dqkv = dy, dquery = Tensor<double>(query.size(), 7), dkey = Tensor<double>(key.size(), 7);
    QkNormArgs b = a;
    b.backward = true;
    call(b, {dqkv.data(), raw.data(), query.data(), key.data(), dquery.data(), dkey.data()});
    const auto loss = [&] { return dot(dy, reference(a, before, query, key)); };
    expect_gradient(loss, before, dqkv, to_text(b) + " dqkv");
    expect_gradient(loss, query, dquery, to_text(b) + " dquery");
    expect_gradient(loss, key, dkey, to_text(b) + " dkey");
    b.accumulate = true;
    auto again = dy, twice = dquery;
    call(b, {again.data(), raw.data(), query.data(), key.data(), twice.data(), dkey.data()});
    for (std::size_t i = 0; i < twice.size(); ++i) EXPECT_NEAR(twice[i], 2 * dquery[i], 1e-12);
}

TEST(QkNorm, ForwardAndBackward) {
    for (bool per_head : {false, true})
        for (bool rms : {false, true}) {
            check(per_head, rms, 1, 1);
            check(per_head, rms, 4, 2);
            check(per_head, rms, 3, 1);
        }
}

}  // namespace
}  // namespace foretrain::test
