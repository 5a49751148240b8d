#include "tests/sim/support/reference.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace foretrain::support {

std::optional<std::string> reference_file(const std::string& name) {
    const char* folder = std::getenv("FORETRAIN_REFERENCE");
    if (folder == nullptr) return std::nullopt;
    std::string path = std::string(folder) + "/" + name;
    if (!std::ifstream(path)) return std::nullopt;
    return path;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace foretrain::support
