#include "plan/corrections.h"

#include "plan/framework_file.h"

namespace foretrain {

void correct(Plan& plan, const Corrections& corrections) {
    const Framework& named = framework_named(plan.framework);
    for (const Framework& f : corrections.frameworks)
        if (f.name == named.name && f.version == named.version) {
            plan.framework = FrameworkRef(f, framework_file_json({f}));
            break;
        }
    for (const ClusterSpec& with : corrections.clusters) {
        ClusterSpec& c = plan.cluster;
        if (with.device.name == c.device.name) c.device.calibration = with.device.calibration;
        if (!with.domain.link.empty() && with.domain.link == c.domain.link) c.domain = with.domain;
        if (!with.network.fabric.empty() && with.network.fabric == c.network.fabric) {
            const double two_nodes = c.network.constants.two_node_tree_gbps;  // a system's own, not the fabric's
            c.network.constants = with.network.constants;
            c.network.constants.two_node_tree_gbps = two_nodes;
        }
    }
}

}  // namespace foretrain
