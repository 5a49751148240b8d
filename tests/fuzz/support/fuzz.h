// One input of a fuzzer: bytes from an enemy. A reader may refuse them, by UserError and by nothing
// else; whatever it accepts must be safe to use and to write down.
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
//       return attempt(data, size, [](std::string_view text) { use(parse(text)); });
//   }
//
// A finding is a crash, a sanitizer's report, a hang, more than 1 GB, any other exception, or a promise
// that does not hold (`require`).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "plan/plan.h"

namespace foretrain::fuzz {

// Calls `use` and takes a UserError for an answer. Inputs that name devices of the operating system
// are left alone: reading one may wait forever, and rightly so.
int attempt(const std::uint8_t* data, std::size_t size, const std::function<void(std::string_view)>& use);

// Ends the process where a promise is broken.
void require(bool holds, const char* promise);

// The plan with links between the devices of its node, which the small plans of tests leave out.
inline Plan linked(Plan plan) {
    plan.cluster.domain.ring_gbps = plan.cluster.domain.pairwise_gbps = 10;
    return plan;
}

// Checks the plan and, where it is small enough to be predicted in about a millisecond, predicts it by
// every rung of the ladder, which must agree.
void predict(const Plan& plan);

}  // namespace foretrain::fuzz
