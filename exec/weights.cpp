#include "exec/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/counter_random.h"
#include "base/error.h"
#include "models/parameters.h"

namespace foretrain {

namespace {

// Values are made in pieces: a copy of a whole unit would show in the resident set, which is compared
// with the prediction.
constexpr std::int64_t piece = 1 << 16;  // elements

// The part [first, last) of a unit's flat run that a buffer holds. A buffer as long as the unit holds
// all of it; a shorter one is this rank's shard.
struct Run {
    std::int64_t first = 0, last = 0;
};

Run run_of(const Unit& unit, const Buffer& buffer, const Shard& shard) {
    if (buffer.elements == unit.elements) return {0, unit.elements};
    return {shard.place * buffer.elements, (shard.place + 1) * buffer.elements};
}

// Calls visit(parameter, local element, element of the run's buffer) for what the run holds of the
// unit's parameters. Padding at the unit's end belongs to none.
template <class Visit>
void for_each_element(const StageProgram& stage, std::int32_t unit, Run run, const Shard& shard, Visit visit) {
    for (const Parameter& p : stage.parameters) {
        if (p.unit != unit) continue;
        const std::int64_t first = std::max(p.unit_offset, run.first);
        const std::int64_t last = std::min(p.unit_offset + local_elements(p, shard), run.last);
        for (std::int64_t e = first; e < last; ++e) visit(p, e - p.unit_offset, e - run.first);
    }
}

double initial_value(const Parameter& p, const CounterRandom& random, std::int64_t element) {
    switch (static_cast<Init>(p.init)) {
        case Init::normal: return p.init_std * random.normal(static_cast<std::uint64_t>(element));
        case Init::ones: return 1;
        case Init::zeros: return 0;
    }
    return 0;
}

std::vector<double> initial_values(const StageProgram& stage, std::int32_t unit, Run run, const Shard& shard,
                                   std::uint64_t seed) {
    std::vector<double> values(static_cast<std::size_t>(run.last - run.first), 0.0);
    const Parameter* current = nullptr;
    CounterRandom random = CounterRandom::keyed(0, seed);
    for_each_element(stage, unit, run, shard, [&](const Parameter& p, std::int64_t local, std::int64_t at) {
        if (&p != current) random = CounterRandom::keyed(hash(p.name), seed);
        current = &p;
        values[static_cast<std::size_t>(at)] = initial_value(p, random, global_element(p, shard, local));
    });
    return values;
}

void write_values(Device& device, std::byte* to, DType type, const std::vector<double>& values) {
    if (type == DType::fp64) {
        device.write(to, values.data(), Bytes{static_cast<std::int64_t>(values.size() * sizeof(double))});
    } else if (type == DType::fp32) {
        const std::vector<float> rounded(values.begin(), values.end());
        device.write(to, rounded.data(), Bytes{static_cast<std::int64_t>(rounded.size() * sizeof(float))});
    } else {
        throw RunError(fmt::format("weights of type {} cannot be initialised", name_of(type)));
    }
}

std::vector<double> read_values(Device& device, const std::byte* from, const Buffer& buffer) {
    const auto count = static_cast<std::size_t>(buffer.elements);
    if (buffer.type == DType::fp64) {
        std::vector<double> values(count);
        device.read(values.data(), from, buffer.bytes());
        return values;
    }
    if (buffer.type != DType::fp32)
        throw RunError(fmt::format("values of type {} cannot be collected", name_of(buffer.type)));
    std::vector<float> values(count);
    device.read(values.data(), from, buffer.bytes());
    return {values.begin(), values.end()};
}

}  // namespace

std::int64_t local_elements(const Parameter& p, const Shard& shard) {
    return p.outer * p.sharded * p.inner / (p.replicated ? 1 : shard.tensor_ranks);
}

std::int64_t global_element(const Parameter& p, const Shard& shard, std::int64_t local) {
    if (p.replicated) return local;
    const std::int64_t width = p.sharded / shard.tensor_ranks;
    const std::int64_t j = local % p.inner;
    const std::int64_t i = local / p.inner % width;
    const std::int64_t o = local / p.inner / width;
    return (o * p.sharded + shard.tensor_rank * width + i) * p.inner + j;
}

void initialise_weights(const StageProgram& stage, const Shard& shard, std::uint64_t seed, const AddressOf& address,
                        Device& device) {
    for (std::size_t u = 0; u < stage.units.size(); ++u) {
        const Unit& unit = stage.units[u];
        if (unit.tied_to >= 0) continue;  // its weight is another unit's
        // Below ZeRO-3 the shard lies inside the whole and is filled with it.
        for (const std::int32_t b : {unit.weight >= 0 ? unit.weight : unit.weight_shard, unit.master}) {
            if (b < 0) continue;
            const Buffer& buffer = stage.buffers[static_cast<std::size_t>(b)];
            const Run run = run_of(unit, buffer, shard);
            for (std::int64_t first = run.first; first < run.last; first += piece) {
                const Run part{first, std::min(first + piece, run.last)};
                write_values(device, address(b) + (first - run.first) * size_of(buffer.type), buffer.type,
                             initial_values(stage, static_cast<std::int32_t>(u), part, shard, seed));
            }
        }
    }
}

void StateCollector::add(std::int64_t rank, const StageProgram& stage, const Shard& shard, const AddressOf& address,
                         Device& device) {
    const std::lock_guard lock(mutex_);
    for (std::size_t u = 0; u < stage.units.size(); ++u) {
        const Unit& unit = stage.units[u];
        if (unit.tied_to >= 0) continue;
        const auto index = static_cast<std::int32_t>(u);
        const std::int32_t weight = unit.weight >= 0 ? unit.weight : unit.weight_shard;
        add_buffer(rank, stage, index, weight, "weights", shard, address, device);
        add_buffer(rank, stage, index, unit.momentum, "momentum", shard, address, device);
        add_buffer(rank, stage, index, unit.variance, "variance", shard, address, device);
    }
}

void StateCollector::add_buffer(std::int64_t rank, const StageProgram& stage, std::int32_t unit, std::int32_t buffer,
                                const char* role, const Shard& shard, const AddressOf& address, Device& device) {
    if (buffer < 0) return;
    const Buffer& b = stage.buffers[static_cast<std::size_t>(buffer)];
    const std::vector<double> values = read_values(device, address(buffer), b);
    const Run run = run_of(stage.units[static_cast<std::size_t>(unit)], b, shard);
    const Parameter* current = nullptr;
    Whole* whole = nullptr;
    for_each_element(stage, unit, run, shard, [&](const Parameter& p, std::int64_t local, std::int64_t at) {
        if (&p != current) {
            current = &p;
            whole = &tensors_[p.name][role];
            const auto size = static_cast<std::size_t>(p.outer * p.sharded * p.inner);
            whole->values.resize(size, 0.0);
            whole->rank.resize(size, -1);
        }
        merge(rank, p.name, *whole, global_element(p, shard, local), values[static_cast<std::size_t>(at)]);
    });
}

void StateCollector::merge(std::int64_t rank, const std::string& tensor, Whole& whole, std::int64_t element,
                           double value) {
    double& here = whole.values[static_cast<std::size_t>(element)];
    std::int32_t& giver = whole.rank[static_cast<std::size_t>(element)];
    if (giver < 0) {
        here = value;
        giver = static_cast<std::int32_t>(rank);
    } else if (std::bit_cast<std::uint64_t>(here) != std::bit_cast<std::uint64_t>(value)) {
        throw RunError(fmt::format("{}[{}] is {:.17g} on rank {} and {:.17g} on rank {}: replicas have drifted apart",
                                   tensor, element, here, giver, value, rank));
    }
}

std::map<std::string, ParameterState> StateCollector::take() {
    const std::lock_guard lock(mutex_);
    std::map<std::string, ParameterState> state;
    for (auto& [name, roles] : tensors_) {
        for (auto& [role, whole] : roles) {
            const bool complete = std::find(whole.rank.begin(), whole.rank.end(), -1) == whole.rank.end();
            FORETRAIN_CHECK(complete, fmt::format("no rank holds all of {} of {}", role, name));
            ParameterState& s = state[name];
            (role == "weights" ? s.weights : role == "momentum" ? s.momentum : s.variance) = std::move(whole.values);
        }
    }
    tensors_.clear();
    return state;
}

}  // namespace foretrain
