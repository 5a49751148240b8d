// Reading and writing a device: a preset by name, or a file (format "foretrain.device/1").
//
//   DeviceSpec d = device_from_json(Json("a100-sxm-80gb"));
//
// Presets go by their aliases too ("h100", "H100_SXM5-80GB"), links and clusters likewise.
// The file holds what DeviceSpec holds: peak FLOP/s by element type, memory, and the calibration
// constants with their birth certificates (hardware/calibration.h), which may be
// carried over from another device (hardware/calibration_file.h).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace foretrain {

DeviceSpec device_from_json(const Json& value);  // a name, a path relative to the value's file, or an object
Json device_to_json(const DeviceSpec& device);

std::vector<std::string> device_preset_names();

// The embedded file of this name and format; UserError at `where`, with the nearest name, if none is.
Json hardware_preset(const std::string& name, const std::string& format, const Json& where);
std::vector<std::string> hardware_preset_names(const std::string& format);

}  // namespace foretrain
