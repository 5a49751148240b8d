// Data and weights: the same values whoever makes them, under any sharding.
#include "exec/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "exec/cpu_device.h"
#include "exec/weights.h"
#include "models/parameters.h"

namespace foretrain {
namespace {

TEST(SyntheticData, TargetsAreTheTokensOneFurther) {
    const SyntheticData data(3, 1000, 128);
    std::vector<std::int32_t> tokens(128), targets(128);
    for (std::int64_t sample : {0, 1, 17, 1 << 20}) {
        data.tokens(sample, tokens);
        data.targets(sample, targets);
        for (std::size_t p = 0; p + 1 < tokens.size(); ++p) EXPECT_EQ(tokens[p + 1], targets[p]);
    }
}

TEST(SyntheticData, FollowsARuleNineTimesInTen) {
    const SyntheticData data(3, 1000, 4096);
    std::vector<std::int32_t> tokens(4096), targets(4096);
    data.tokens(5, tokens);
    data.targets(5, targets);
    std::map<std::int32_t, std::map<std::int32_t, int>> followers;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
        ASSERT_GE(tokens[p], 0);
        ASSERT_LT(tokens[p], 64);
        ++followers[tokens[p]][targets[p]];
    }
    int ruled = 0;
    for (const auto& [token, counts] : followers) {
        int most = 0;
        for (const auto& [next, count] : counts) most = std::max(most, count);
        ruled += most;
    }
    EXPECT_NEAR(ruled / 4096.0, 0.9, 0.02);
}

TEST(SyntheticData, SeedsAndSamplesDiffer) {
    std::set<std::vector<std::int32_t>> seen;
    for (std::uint64_t seed : {0u, 1u}) {
        for (std::int64_t sample = 0; sample < 20; ++sample) {
            std::vector<std::int32_t> tokens(64);
            SyntheticData(seed, 1000, 64).tokens(sample, tokens);
            seen.insert(tokens);
        }
    }
    EXPECT_EQ(seen.size(), 40u);
}

// Whatever the data ranks, a step reads the same samples, each once.
TEST(SyntheticData, EveryPlanReadsTheSameSamples) {
    for (const std::int64_t ranks : {1, 2, 4}) {
        for (const std::int64_t micro : {1, 2}) {
            Program program;
            program.grid.data = ranks;
            program.micro_batch_size = micro;
            program.microbatches = 8 / (ranks * micro);
            std::set<std::int64_t> samples;
            for (std::int64_t r = 0; r < ranks; ++r)
                for (std::int64_t k = 0; k < program.microbatches; ++k)
                    for (std::int64_t j = 0; j < micro; ++j) samples.insert(first_sample(program, 3, k, r) + j);
            EXPECT_EQ(samples.size(), 8u);
            EXPECT_EQ(*samples.begin(), 24);
            EXPECT_EQ(*samples.rbegin(), 31);
        }
    }
}

TEST(CounterRandom, NormalHasTheMomentsOfOne) {
    const CounterRandom random = CounterRandom::keyed(hash("w"), 1);
    constexpr int count = 200000;
    double sum = 0, squares = 0, fourth = 0, neighbours = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const double x = random.normal(i);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        neighbours += x * random.normal(i + 1);
    }
    EXPECT_NEAR(sum / count, 0, 0.01);
    EXPECT_NEAR(squares / count, 1, 0.015);
    EXPECT_NEAR(fourth / count, 3, 0.1);
    EXPECT_NEAR(neighbours / count, 0, 0.01);
}

// A stage of one unit with a column-parallel, a row-parallel, a gated and a replicated tensor.
StageProgram stage_of(std::int64_t tensor_ranks, std::int64_t data_ranks, int zero, DType type) {
    StageProgram stage;
    const auto parameter = [&](std::string name, std::int64_t outer, std::int64_t sharded, std::int64_t inner,
                               bool replicated, Init init) {
        Parameter p;
        p.name = std::move(name);
        p.outer = outer;
        p.sharded = sharded;
        p.inner = inner;
        p.replicated = replicated;
        p.init = static_cast<std::int8_t>(init);
        p.init_std = 0.5;
        for (const Parameter& before : stage.parameters)
            p.unit_offset += local_elements(before, {.tensor_ranks = tensor_ranks});
        stage.parameters.push_back(p);
    };
    parameter("qkv.weight", 1, 8, 5, false, Init::normal);
    parameter("projection.weight", 3, 4, 1, false, Init::normal);
    parameter("fc1.weight", 2, 4, 3, false, Init::normal);
    parameter("norm.weight", 1, 7, 1, true, Init::ones);
    parameter("norm.bias", 1, 7, 1, true, Init::normal);
    std::int64_t elements = 0;
    for (const Parameter& p : stage.parameters) elements += local_elements(p, {.tensor_ranks = tensor_ranks});

    Unit unit;
    unit.elements = round_up(elements, data_ranks);
    Buffer b;
    b.region = Region::weights;
    b.type = type;
    b.elements = zero == 3 ? unit.elements / data_ranks : unit.elements;
    (zero == 3 ? unit.weight_shard : unit.weight) = 0;
    stage.buffers.push_back(b);
    if (zero < 3) {  // a master copy, sharded
        unit.master = 1;
        b.offset = stage.buffers[0].bytes();
        b.elements = unit.elements / data_ranks;
        stage.buffers.push_back(b);
        unit.momentum = 1;
    }
    stage.units.push_back(unit);
    return stage;
}

std::map<std::string, ParameterState> collected(std::int64_t tensor_ranks, std::int64_t data_ranks, int zero,
                                                DType type, double spoil = 0) {
    const KernelTable none{};
    CpuDevice device(none);
    StateCollector state;
    const StageProgram stage = stage_of(tensor_ranks, data_ranks, zero, type);
    Bytes size;
    for (const Buffer& b : stage.buffers) size += b.bytes();
    for (std::int64_t t = 0; t < tensor_ranks; ++t) {
        for (std::int64_t d = 0; d < data_ranks; ++d) {
            std::byte* arena = device.allocate(size);
            const AddressOf address = [&](std::int32_t b) {
                return arena + stage.buffers[static_cast<std::size_t>(b)].offset.value;
            };
            const Shard shard{tensor_ranks, t, d};
            initialise_weights(stage, shard, 11, address, device);
            if (t == 1) reinterpret_cast<double*>(arena)[stage.units[0].elements - 3] += spoil;  // in norm.bias
            state.add(t * data_ranks + d, stage, shard, address, device);
        }
    }
    return state.take();
}

TEST(Weights, AreTheSameUnderEverySharding) {
    for (const DType type : {DType::fp64, DType::fp32}) {
        const auto whole = collected(1, 1, 0, type);
        EXPECT_EQ(whole.at("fc1.weight").weights.size(), 24u);
        EXPECT_EQ(whole.at("norm.weight").weights, std::vector<double>(7, 1.0));
        for (const std::int64_t t : {1, 2, 4})
            for (const std::int64_t d : {1, 2, 3, 8})
                for (const int zero : {0, 3}) {
                    const auto sharded = collected(t, d, zero, type);
                    ASSERT_EQ(sharded.size(), whole.size());
                    for (const auto& [name, tensor] : whole) {
                        EXPECT_EQ(sharded.at(name).weights, tensor.weights) << name << ' ' << t << ' ' << d;
                        // The master copy, read back as momentum.
                        if (zero == 0) {
                            EXPECT_EQ(sharded.at(name).momentum, tensor.weights) << name;
                        }
                    }
                }
    }
}

TEST(Weights, FloatIsDoubleRounded) {
    const auto exact = collected(1, 1, 0, DType::fp64);
    const auto single = collected(1, 1, 0, DType::fp32);
    for (const auto& [name, tensor] : exact)
        for (std::size_t e = 0; e < tensor.weights.size(); ++e)
            EXPECT_EQ(static_cast<float>(tensor.weights[e]), static_cast<float>(single.at(name).weights[e]));
}

TEST(Weights, ReplicasThatDriftApartAreAnError) { EXPECT_THROW(collected(2, 1, 0, DType::fp64, 1e-15), RunError); }

}  // namespace
}  // namespace foretrain
