// What nccl-tests printed: any text, taken up by a cluster.
#include "hardware/cluster_file.h"
#include "hardware/nccl_tests.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        static const ClusterSpec preset = read_cluster("dgx-h100");
        ClusterSpec cluster = preset;
        set_measured(cluster, read_nccl_test(text, "input"), "input");
        fuzz::require(cluster_from_json(Json::parse(cluster_to_json(cluster).dump(-1), "written")) == cluster,
                      "a cluster reads back");
    });
}
