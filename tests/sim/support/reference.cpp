#include "tests/sim/support/reference.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/json.h"

namespace foretrain::support {

std::optional<std::string> reference_file(const std::string& name) {
    const char* folder = std::getenv("FORETRAIN_REFERENCE");
    if (folder == nullptr) return std::nullopt;
    std::string path = std::string(folder) + "/" + name;
    if (!std::ifstream(path)) return std::nullopt;
    return path;
}

std::vector<MeasuredGemm> read_gemms(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // gpu,dtype,m,n,k,latency_us,...
    std::vector<MeasuredGemm> rows;
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        MeasuredGemm g;
        char comma = 0;
        std::getline(fields, g.gpu, ',');
        std::getline(fields, g.dtype, ',');
        fields >> g.m >> comma >> g.n >> comma >> g.k >> comma >> g.us;
        rows.push_back(g);
    }
    return rows;
}

std::vector<MeasuredCollective> read_collectives(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::vector<MeasuredCollective> rows;
    constexpr std::int64_t most = std::int64_t{1} << 50;
    while (std::getline(file, line)) {
        const Json row = Json::parse(line, path);
        if (!row.has("ranks") || !row.has("nodes") || !row.has("bytes") || !row.has("time_us")) continue;
        rows.push_back({row.at("table").string(), row.at("collective").string(), row.at("ranks").integer(1, most),
                        row.at("nodes").integer(1, most), row.at("bytes").integer(0, most),
                        row.at("time_us").number(0, 1e12)});
    }
    return rows;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace foretrain::support
