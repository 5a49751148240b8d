// Measured tables, which are not part of the repository: tests that need them look in the folder that
// FORETRAIN_REFERENCE names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace foretrain::support {

struct MeasuredGemm {
    std::string gpu, dtype;
    std::int64_t m = 0, n = 0, k = 0;
    double us = 0;
};

struct MeasuredCollective {
    std::string table, collective;
    std::int64_t ranks = 0, nodes = 0, bytes = 0;
    double us = 0;
};

std::optional<std::string> reference_file(const std::string& name);  // nothing where it is absent
std::vector<MeasuredGemm> read_gemms(const std::string& path);
std::vector<MeasuredCollective> read_collectives(const std::string& path);

double median(std::vector<double> values);  // precondition: not empty

}  // namespace foretrain::support
