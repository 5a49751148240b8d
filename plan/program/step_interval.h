// How far a predicted step can be trusted: an interval that holds the true step in four cases of five,
// which parts make it so wide, and what the step's time rests on.
//
//   const StepInterval& i = prediction.interval;      // low <= prediction.step <= high
//   i.parts.front()                                   // the weakest: it moves the step most
//   i.resting(Basis::measured) + ... == prediction.step
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "hardware/basis.h"

namespace foretrain {

// Constants that are wrong together. `software` is the framework's profile: its share of the step, but its
// half-width is of the whole step.
enum class UncertainPart : std::uint8_t { gemm, attention, memory_bound, links_inside, links_between, software };
constexpr std::size_t uncertain_part_count = 6;

std::string_view key_of(UncertainPart part);    // "gemm", "links_inside", ...: in JSON
std::string_view label_of(UncertainPart part);  // "links in a node": for a person

struct PartInterval {
    UncertainPart part = UncertainPart::gemm;
    Time time;             // of the step on its slowest stage, its share of the bubble included
    double spread = 0;     // relative half-width of the part, 1: as wide as the time itself
    bool of_step = false;  // relative to the whole step, and not to `time`
    bool stated = true;    // the spread is in the device's, link's or framework's file, and no assumption there
    Basis basis = Basis::measured;
    Time half_width;  // what the step moves by if this part alone is off by its spread
};

struct StepInterval {
    static constexpr double coverage = 0.8;  // of the cases; what `spread` means in hardware/calibration.h
    Time low, high;
    std::vector<PartInterval> parts;      // those that take time, the widest first
    std::array<Time, basis_count> rests;  // of the step, by Basis; sums to it

    Time resting(Basis basis) const { return rests[static_cast<std::size_t>(basis)]; }
};

}  // namespace foretrain
