#include "base/dtype.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(DType, GoesByItsName) {
    for (std::size_t t = 0; t < dtype_count; ++t) {
        const auto type = static_cast<DType>(t);
        EXPECT_EQ(dtype_from_name(name_of(type)), type) << name_of(type);
    }
    EXPECT_EQ(dtype_from_name("fp4"), std::nullopt);
}

// 16 elements of nvfp4: eight bytes and one of their scale.
TEST(DType, ProductsReadFewerBytes) {
    EXPECT_EQ(16 * operand_bytes(DType::nvfp4), 9);
    EXPECT_EQ(operand_bytes(DType::fp8), 1);
    EXPECT_EQ(operand_bytes(DType::bf16), 2);
    for (const DType t : {DType::fp8, DType::mxfp8, DType::nvfp4}) EXPECT_TRUE(is_quantised(t));
    for (const DType t : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) EXPECT_FALSE(is_quantised(t));
}

}  // namespace
}  // namespace foretrain
