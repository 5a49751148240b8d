// A cluster, whole, "like" another, or in the short form: it reads back as it is written, and scales.
#include "hardware/cluster_file.h"
#include "plan/rank_grid.h"
#include "sim/cost.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        ClusterSpec c = cluster_from_json(Json::parse(text, "input"));
        const std::string written = cluster_to_json(c).dump(-1);
        fuzz::require(cluster_to_json(cluster_from_json(Json::parse(written, "written"))).dump(-1) == written,
                      "a cluster reads back");
        fuzz::require(c.devices() >= 1, "a cluster has devices");
        const CostModel cost(c, RankGrid{.data = c.devices()});
        scale_to_devices(c, 8);
        scale_to_nodes(c, 4);
    });
}
