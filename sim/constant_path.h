// Where a free constant stands: whose figure it is, and where in that one's file.
//
//   ConstantPath p = constant_path("h100-sxm-80gb.calibration.gemm.bf16.efficiency");
//   p.owner == "h100-sxm-80gb";  p.room == FigureRoom::calibration;  p.inside == {"gemm", "bf16", "efficiency"}
//   places_in(figures, p.inside)                 // what `*` stands for, spelt out; empty: no such figure
//   with_figure(figures, place, 0.9)             // the same figures but for that one
//
// A `*` in the owner's name stands for any letters ("megatron-*@2022.costs.stall.step_us"), as a member for any
// member. In a list a member goes by its first text: {"dtype": "bf16", ...} is "bf16".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace foretrain {

// A framework's costs, a device's calibration, the links inside a node by their name, the network by its fabric.
enum class FigureRoom : std::uint8_t { costs, calibration, domain, network };
std::string_view name_of(FigureRoom room);

using Place = std::vector<std::string>;

struct ConstantPath {
    std::string owner;
    FigureRoom room = FigureRoom::costs;
    Place inside;
};

ConstantPath constant_path(const Json& text);  // UserError at `text`
std::string text_of(const ConstantPath& path);

bool matches(std::string_view pattern, std::string_view name);

std::vector<Place> places_in(const Json& figures, const Place& pattern);
// Preconditions: the place is there, and is a number.
double figure_in(const Json& figures, const Place& place);
Json with_figure(const Json& figures, const Place& place, Json value);

}  // namespace foretrain
