#include "hardware/links.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace foretrain {
namespace {

using support::refusal;

TEST(Links, AreFoundByName) {
    const DomainConstants d = domain_constants(Json("nvlink4"));
    EXPECT_EQ(d.link, "nvlink4");
    EXPECT_EQ(d.ring_gbps, 371);
    EXPECT_EQ(d.nvls_ranks, 5);
    EXPECT_EQ(network_constants(Json("tcp")).efficiency, 0.8);
    for (const std::string& name : domain_links()) EXPECT_GT(domain_constants(Json(name)).ring_gbps, 0) << name;
    for (const std::string& name : fabrics()) EXPECT_FALSE(network_constants(Json(name)).born.source.empty()) << name;
    EXPECT_EQ(refusal([] { domain_constants(Json("nvlink44")); }).suggestion, "nvlink4");
    EXPECT_EQ(refusal([] { network_constants(Json("infinband")); }).suggestion, "infiniband");
    EXPECT_FALSE(find_domain_constants("threads"));
}

TEST(Links, AreCarriedOver) {
    const DomainConstants fast = domain_constants(Json("nvlink4")), cut = domain_constants(Json("nvlink4-8"));
    EXPECT_EQ(cut.ring_gbps, 165);
    EXPECT_EQ(cut.a_us, fast.a_us);
    EXPECT_GT(cut.spread, fast.spread);
    EXPECT_TRUE(cut.born.source.starts_with("carried over from nvlink4 ("));
}

// Fewer ranks of a mesh have fewer links between them; beyond eight a switch of two tiers reduces slower.
TEST(Links, DependOnTheSizeOfAGroup) {
    const DomainConstants mesh = domain_constants(Json("nvlink2-mesh"));
    EXPECT_EQ(mesh.ring_of(2), 20);
    EXPECT_EQ(mesh.ring_of(3), 80);
    EXPECT_EQ(mesh.ring_of(4), 80);
    EXPECT_EQ(mesh.ring_of(8), 120);
    const DomainConstants rack = domain_constants(Json("nvl72"));
    EXPECT_EQ(rack.nvls_of(8), 533);
    EXPECT_EQ(rack.nvls_of(72), 450);
    EXPECT_EQ(domain_constants(Json("nvlink5")).nvls_of(16), 533);
}

}  // namespace
}  // namespace foretrain
