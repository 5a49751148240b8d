// Initial weights, and the way back: from the shards that ranks hold to whole tensors by name.
//
// Element e of a tensor's global view (outer, sharded, inner) starts as init_std times the normal
// number keyed by (name, seed, e); so a rank fills its shard alone, and every plan starts from the
// same weights, in float as in double up to rounding.
//
//   initialise_weights(stage, {.tensor_ranks = 2, .tensor_rank = 1, .place = 0}, seed, address, device);
//   StateCollector state;                       // shared by all ranks
//   state.add(rank, stage, shard, address, device);
//   state.take()["layers.0.qkv.weight"].weights
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "exec/device.h"
#include "plan/program/program.h"

namespace foretrain {

// Which part of its stage's parameters a rank holds.
struct Shard {
    std::int64_t tensor_ranks = 1;
    std::int64_t tensor_rank = 0;
    std::int64_t place = 0;  // among the replicas that share out parameters: which part of them is its own
};

// Where a buffer (index in StageProgram::buffers) is on this rank.
using AddressOf = std::function<std::byte*(std::int32_t buffer)>;

// Element of the global view that stands at `local` of this rank's view.
std::int64_t global_element(const Parameter& parameter, const Shard& shard, std::int64_t local);
std::int64_t local_elements(const Parameter& parameter, const Shard& shard);

void initialise_weights(const StageProgram& stage, const Shard& shard, std::uint64_t seed, const AddressOf& address,
                        Device& device);

// A parameter after a run, whole. Momentum and variance are empty in a program without optimizer.
struct ParameterState {
    std::vector<double> weights, momentum, variance;
};

// Puts the shards of all ranks together. An element that several ranks hold must be the same bits on
// all of them (RunError naming tensor, element and ranks): replicas that drift apart are a defect of
// the program, and no single one of them is the result.
class StateCollector {
public:
    void add(std::int64_t rank, const StageProgram& stage, const Shard& shard, const AddressOf& address,
             Device& device);
    std::map<std::string, ParameterState> take();  // every tensor must be complete

private:
    struct Whole {
        std::vector<double> values;
        std::vector<std::int32_t> rank;  // that gave the value; -1: none yet
    };
    void add_buffer(std::int64_t rank, const StageProgram& stage, std::int32_t unit, std::int32_t buffer,
                    const char* role, const Shard& shard, const AddressOf& address, Device& device);
    void merge(std::int64_t rank, const std::string& tensor, Whole& whole, std::int64_t element, double value);

    std::mutex mutex_;
    std::map<std::string, std::map<std::string, Whole>> tensors_;  // by name, then role
};

}  // namespace foretrain
