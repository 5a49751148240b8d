// A preset file embedded in the binary (CMakeLists.txt generates the tables of each room).
#pragma once

#include <span>
#include <string_view>

namespace foretrain {

struct Preset {
    std::string_view name;  // file name without ".json"
    std::string_view text;
};

std::span<const Preset> models_presets();    // models/presets
std::span<const Preset> hardware_presets();  // hardware/presets
std::span<const Preset> plan_presets();      // plan/presets
std::span<const Preset> sim_presets();       // sim/presets

}  // namespace foretrain
