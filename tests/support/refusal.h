// What a call is refused with; a failed expectation if it is not.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace foretrain::support {

inline UserErrorText refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const UserError& e) {
        return e.text();
    }
    ADD_FAILURE() << "not refused";
    return {};
}

}  // namespace foretrain::support
