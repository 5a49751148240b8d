#include "hardware/basis.h"

#include <gtest/gtest.h>

#include "hardware/cluster_file.h"

namespace foretrain {
namespace {

TEST(Basis, FollowsFromTheBirthCertificate) {
    const Calibration a100 = read_cluster("dgx-a100").device.calibration;
    EXPECT_EQ(basis_of(a100.gemm_for(DType::bf16)->born), Basis::measured);
    EXPECT_EQ(basis_of(a100.gemm_for(DType::fp32)->born), Basis::carried_over);
    EXPECT_EQ(basis_of(read_cluster("dgx-h200").device.calibration.attention.born), Basis::carried_over);
    EXPECT_EQ(basis_of(read_cluster("dgx-1v").device.calibration.attention.born), Basis::assumed)
        << "carried over from a judgement";
    EXPECT_EQ(basis_of({}), Basis::assumed);
    EXPECT_EQ(basis_of(read_cluster("dgx-h100").network.constants.born), Basis::measured);
    EXPECT_EQ(name_of(Basis::carried_over), "carried_over");
}

}  // namespace
}  // namespace foretrain
