// What a figure rests on, from its birth certificate: measured on the device or link itself, fitted to
// whole runs, carried over from another device, or assumed where nothing was measured. A later one is
// weaker than the one before it.
//
//   basis_of(read_cluster("dgx-h200").device.calibration.attention.born) == Basis::carried_over
#pragma once

#include <cstdint>
#include <string_view>

#include "hardware/calibration.h"

namespace foretrain {

enum class Basis : std::uint8_t { measured, fitted, carried_over, assumed };
constexpr std::size_t basis_count = 4;

std::string_view name_of(Basis basis);  // "measured", "fitted", "carried_over", "assumed"

// Assumed is what has no source, and what states that no device was measured ("none"), even if it was
// carried over since. Constants that calibrate or a preset states are measured, never fitted to runs.
Basis basis_of(const BirthCertificate& born);

// How the source of what was carried over begins; hardware/calibration_file.h writes it.
constexpr std::string_view carried_over_from = "carried over from ";

}  // namespace foretrain
