// Measured tables, which are not part of the repository: tests that need them look in the folder that
// FORETRAIN_REFERENCE names.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace foretrain::support {

std::optional<std::string> reference_file(const std::string& name);  // nothing where it is absent

double median(std::vector<double> values);  // precondition: not empty

}  // namespace foretrain::support
