// What a whole training takes at a predicted step: days and GPU-hours for so many tokens, and the money
// and energy that they come to. What was not stated but taken from the cluster's or device's file says so.
//
//   TrainingCost c = training_cost(prediction, {.tokens = 15e12, .price = 2.5});
//   c.days, c.device_hours, c.money_least, c.megawatt_hours, c.assumed
//
// Nothing is added for restarts, evaluation or checkpoints. A price is per GPU and hour in US dollars; a
// file's may be a range, and then so is the money. Power is that of a whole node at most, shared by its
// GPUs, where the cluster states it, else that of the device at most; it is taken as drawn all the time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/cluster_spec.h"

namespace foretrain {

struct Prediction;

struct TrainingWish {
    double tokens = 0;
    std::optional<double> price;  // US dollars for a GPU and hour
    std::optional<double> watts;  // a GPU
};

struct TrainingCost {
    double tokens = 0;
    double steps = 0;
    double days = 0;
    double device_hours = 0;
    PriceRange price;  // of a GPU and hour; 0 to 0: unknown
    double money_least = 0, money_most = 0;
    double watts = 0;  // of a GPU; 0: unknown
    double megawatt_hours = 0;
    std::vector<std::string> assumed;  // what nobody stated, one sentence each
};

// Precondition: the prediction has a step.
TrainingCost training_cost(const Prediction& prediction, const TrainingWish& wish);

}  // namespace foretrain
