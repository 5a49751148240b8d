// Reading and writing what was measured of a device, and carrying it over to one that was not.
//
// A part either states its own constants, with their birth certificate, or names what it is like, why,
// and how far that can be trusted; its own figures then override. `like` is a device's preset, or an
// element type that the same device was measured with:
//
//   "calibration": {"like": "h100-sxm-80gb", "spread": 0.06, "reason": "the same chip"}
//   "gemm": [{"dtype": "fp16", "like": "a100-sxm-80gb", "spread": 0.15, "reason": "...", "sustained": 0},
//            {"dtype": "fp32", "like": "fp16", "spread": 0.25, "reason": "..."}]
//
// What was carried over says so in its certificate: "carried over from a100-sxm-80gb (...): ...".
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "hardware/basis.h"
#include "hardware/calibration.h"
#include "hardware/fields.h"

namespace foretrain {

Calibration calibration_from_json(const Json& value);
Json calibration_to_json(const Calibration& calibration);

// "fp32"; UserError at `at` for what is no element type.
DType dtype_of(const Json& at, const std::string& name);

// What stands in a part that is carried over.
struct Carried {
    std::string like;
    Json where;  // of `like`, for errors
    double spread = 0;
    std::string reason;
};

// Takes "like", "spread" and "reason" where the part has a "like"; these three go together. Without a
// "like" nothing is taken: the spread of a part is a field like any other.
std::optional<Carried> carried_over(FieldReader& in);

template <class Part>
void carry_over(Part& part, const Carried& c) {
    part.spread = c.spread;
    part.born.source = std::string(carried_over_from) + c.like + " (" + c.reason + "): " + part.born.source;
}

}  // namespace foretrain
