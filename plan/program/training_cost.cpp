#include "plan/program/training_cost.h"

#include <fmt/format.h>

#include "plan/program/result.h"

namespace foretrain {

namespace {

std::string source_of(const std::map<std::string, std::string>& sources, const char* figure) {
    const auto found = sources.find(figure);
    return found == sources.end() ? "" : fmt::format(" ({})", found->second);
}

void set_price(TrainingCost& c, const ClusterSpec& cluster, const std::optional<double>& stated) {
    if (stated) {
        c.price = {*stated, *stated};
    } else {
        const bool own = cluster.price.most > 0;
        c.price = own ? cluster.price : cluster.device.price;
        if (c.price.most > 0)
            c.assumed.push_back(fmt::format("price: {} to {} US dollars a GPU-hour, of {}{}", c.price.least,
                                            c.price.most, own ? cluster.name : cluster.device.name,
                                            own ? source_of(cluster.sources, "price_usd_per_device_hour")
                                                : source_of(cluster.device.sources, "price_usd_per_hour")));
    }
    c.money_least = c.device_hours * c.price.least;
    c.money_most = c.device_hours * c.price.most;
}

void set_energy(TrainingCost& c, const ClusterSpec& cluster, const std::optional<double>& stated) {
    if (stated) {
        c.watts = *stated;
    } else if (cluster.power_watts_per_node > 0) {
        c.watts = cluster.power_watts_per_node / cluster.devices_of_node();
        c.assumed.push_back(fmt::format("power: {:.0f} W a GPU, its share of a {} node at most{}", c.watts,
                                        cluster.name, source_of(cluster.sources, "power_watts_per_node")));
    } else if (cluster.device.power_watts > 0) {
        c.watts = cluster.device.power_watts;
        c.assumed.push_back(fmt::format("power: {:.0f} W, the most that a {} draws by itself{}", c.watts,
                                        cluster.device.name, source_of(cluster.device.sources, "power_watts")));
    }
    c.megawatt_hours = c.device_hours * c.watts * 1e-6;
}

}  // namespace

TrainingCost training_cost(const Prediction& p, const TrainingWish& wish) {
    TrainingCost c;
    const Training& t = p.plan.training;
    c.tokens = wish.tokens;
    c.steps = wish.tokens / (static_cast<double>(t.global_batch_size) * static_cast<double>(t.sequence_length));
    const double hours = c.steps * seconds(p.step) / 3600;
    c.days = hours / 24;
    c.device_hours = hours * static_cast<double>(p.plan.cluster.devices());
    set_price(c, p.plan.cluster, wish.price);
    set_energy(c, p.plan.cluster, wish.watts);
    return c;
}

}  // namespace foretrain
