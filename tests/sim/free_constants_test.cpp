// The list of free constants against the files whose figures it names: a path that leads nowhere is an error.
#include "sim/free_constants.h"

#include <gtest/gtest.h>

#include "hardware/calibration_file.h"
#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "hardware/links.h"
#include "plan/framework.h"
#include "plan/framework_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

struct Figures {
    FigureRoom room;
    std::string owner;
    Json json;
};

// Of all that is embedded.
std::vector<Figures> all_figures() {
    std::vector<Figures> all;
    for (const std::string& name : framework_names())
        for (const std::string& version : framework_versions(name)) {
            const std::string reference = name + "@" + version;
            all.push_back({FigureRoom::costs, reference, costs_to_json(framework_named(reference).costs)});
        }
    for (const std::string& name : device_preset_names())
        all.push_back({FigureRoom::calibration, name, calibration_to_json(device_from_json(Json(name)).calibration)});
    ClusterSpec cluster = read_cluster("dgx-h100");
    for (const std::string& link : domain_links()) {
        cluster.domain = domain_constants(Json(link));
        all.push_back({FigureRoom::domain, link, cluster_to_json(cluster).at("domain")});
    }
    for (const std::string& fabric : fabrics()) {
        cluster.network.constants = network_constants(Json(fabric));
        all.push_back({FigureRoom::network, fabric, cluster_to_json(cluster).at("network")});
    }
    return all;
}

TEST(FreeConstants, EveryPathLeadsToAFigureWithinItsBounds) {
    const std::vector<Figures> all = all_figures();
    for (const ConstantRule& rule : constant_rules()) {
        EXPECT_FALSE(rule.reason.empty()) << rule.name;
        for (const ConstantPath& path : rule.paths) {
            std::size_t found = 0;
            for (const Figures& f : all) {
                if (f.room != path.room || !matches(path.owner, f.owner)) continue;
                for (const Place& place : places_in(f.json, path.inside)) {
                    const double value = figure_in(f.json, place);
                    if (value == 0) continue;  // none of it: nothing to scale
                    ++found;
                    EXPECT_GE(value, rule.least) << f.owner << " " << text_of(path);
                    EXPECT_LE(value, rule.most) << f.owner << " " << text_of(path);
                }
            }
            EXPECT_GT(found, 0U) << rule.name << ": " << text_of(path) << " leads nowhere";
        }
    }
}

TEST(FreeConstants, AreChosenByNameOrPath) {
    EXPECT_EQ(constant_rules("*").size(), constant_rules().size());
    EXPECT_EQ(constant_rules("message").size(), 1U);
    for (const ConstantRule& rule : constant_rules("*.costs.host.*"))
        EXPECT_EQ(rule.paths.front().inside.front(), "host") << rule.name;
    EXPECT_EQ(refusal([] { constant_rules("mesage"); }).suggestion, "message");
}

TEST(FreeConstants, RefusesWhatHasNoSense) {
    const auto field = [](const std::string& constants) {
        return refusal([&] {
                   constant_rules_from_json(
                       Json::parse(R"({"format": "foretrain.constants/1", "constants": [)" + constants + "]}", "c"));
               })
            .field;
    };
    const std::string good = R"("paths": ["a.costs.b"], "least": 1, "most": 2, "prior": 0.1, "reason": "c")";
    EXPECT_EQ(field(R"({"name": "x", )" + good + R"(, "moost": 3})"), "constants[0].moost");
    EXPECT_EQ(field(R"({"name": "x", )" + good + R"(}, {"name": "x", )" + good + "}"), "constants[1].name");
    EXPECT_EQ(field(R"({"name": "x", "paths": ["a"], "least": 1, "most": 2, "prior": 0.1, "reason": "c"})"),
              "constants[0].paths[0]");
    EXPECT_EQ(field(R"({"name": "x", "paths": ["a.costs.b"], "least": 3, "most": 2, "prior": 0.1, "reason": "c"})"),
              "constants[0].most");
    EXPECT_EQ(field(R"({"name": "x", "paths": ["a.costs.b"], "least": 1, "most": 2, "prior": "wide", "reason": "c"})"),
              "constants[0].prior");
}

}  // namespace
}  // namespace foretrain
