#include "plan/program/access.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace foretrain {
namespace {

TEST(Access, NamesTheCollectiveOfEachKindThatIsOne) {
    EXPECT_EQ(collective_of(InstructionKind::all_reduce), Collective::all_reduce);
    EXPECT_EQ(collective_of(InstructionKind::all_gather), Collective::all_gather);
    EXPECT_EQ(collective_of(InstructionKind::reduce_scatter), Collective::reduce_scatter);
    EXPECT_THROW(collective_of(InstructionKind::send), InternalError);
    EXPECT_THROW(collective_of(InstructionKind::kernel), InternalError);
}

}  // namespace
}  // namespace foretrain
